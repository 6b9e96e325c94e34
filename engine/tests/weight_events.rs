//! The events of `WeightSource`. A test program of its own: whether an event is wanted is remembered for the whole
//! process, and other tests do not want any.
#![allow(clippy::unwrap_used)] // a test may

#[path = "../../backends/tests/common/subscriber.rs"]
mod subscriber;

use std::fmt;
use std::sync::{Arc, Mutex};

use ringmain::Engine;
use ringmain::weights::{MmapOptions, Prefer, Unchanging, WeightSource};
use subscriber::Subscriber;
use tracing::field::{Field, Visit};

/// Keeps the fields of each event as a text.
#[derive(Clone, Default)]
struct Collecting(Arc<Mutex<Vec<String>>>);

impl Collecting {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{field}={value:?} ");
    }
}

impl Collecting {
    fn keep(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields(format!("{} ", event.metadata().level()));
        event.record(&mut fields);
        if fields.0.contains("path=") {
            self.0.lock().unwrap().push(fields.0);
        }
    }
}

#[test]
fn every_choice_is_an_event() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.bin");
    std::fs::write(&path, vec![7; 3 << 20]).unwrap();
    // SAFETY: nothing writes to the file after this.
    let unchanging = unsafe { Unchanging::promise() };
    let collecting = Collecting::default();
    let kept = collecting.clone();
    let subscriber = Subscriber(move |event: &tracing::Event<'_>| kept.keep(event));
    tracing::subscriber::with_default(subscriber, || {
        let way = |events: &[String], way: &str| {
            let last = events.last().unwrap();
            assert!(
                last.starts_with("DEBUG ") && last.contains(&format!("way=\"{way}\"")),
                "{last}"
            );
            assert!(last.contains("bytes=3145728") && last.contains("model.bin"), "{last}");
        };
        let source = WeightSource::open(&path, Prefer::Gds(unchanging)).unwrap();
        let events = collecting.take();
        way(&events, source.source_type());
        // One event for each way that was passed over, and for each option that was not applied.
        let unmet = source.mapped().map_or(0, |weights| weights.unmet().len());
        assert_eq!(events.len(), 1 + source.passed_over().len() + unmet, "{events:?}");
        for passed_over in source.passed_over() {
            let found = events.iter().find(|event| event.starts_with("WARN "));
            assert!(found.unwrap().contains(&passed_over.reason), "{events:?}");
        }

        let plain = MmapOptions::new();
        WeightSource::open_with_options(&path, Prefer::Mmap(unchanging), &plain).unwrap();
        let events = collecting.take();
        way(&events, "mmap");
        assert_eq!(events.len(), 1, "{events:?}");

        WeightSource::open(&path, Prefer::Buffer).unwrap();
        way(&collecting.take(), "buffer");
        WeightSource::open(&path, Prefer::Backend(Engine::new().unwrap())).unwrap();
        way(&collecting.take(), "backend");
    });
}
