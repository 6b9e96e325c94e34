//! The events of `auto`. A test program of its own: whether an event is wanted is remembered for the
//! whole process, and other tests do not want any.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test may

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::numbered::NumberedFile;
use ringmain_backends::{BackendKind, BackendOptions, Expectation, open_backend};

/// Counts events, as any subscriber of `tracing` may.
struct Counting(Arc<AtomicUsize>);

impl tracing::Subscriber for Counting {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "ringmain"
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn choices_are_events() {
    let events = Arc::new(AtomicUsize::new(0));
    tracing::subscriber::with_default(Counting(Arc::clone(&events)), || {
        let numbered = NumberedFile::new();
        let count = || events.load(Ordering::Relaxed);
        let auto = open_backend(BackendKind::Auto, &BackendOptions::default()).unwrap();
        let after_choice = count();
        assert!(after_choice > 0, "the choice of the backends");
        let file = auto.open(numbered.path()).unwrap();
        let after_open = count();
        auto.expect(&[&file], &Expectation::default()).unwrap();
        let after_expect = count();
        assert!(after_expect > after_open, "what is expected");
        numbered.check(&*auto, &file, &[3, 1000, 20]);
        assert!(count() > after_expect, "the ways of a batch");
    });
}
