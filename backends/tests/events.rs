//! The events of `auto`. A test program of its own: whether an event is wanted is remembered for the
//! whole process, and other tests do not want any.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test may

mod common;
#[path = "common/subscriber.rs"]
mod subscriber;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::numbered::NumberedFile;
use ringmain_backends::{BackendKind, BackendOptions, Expectation, open_backend};
use subscriber::Subscriber;

#[test]
fn choices_are_events() {
    let events = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&events);
    let counting = Subscriber(move |_: &tracing::Event<'_>| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    tracing::subscriber::with_default(counting, || {
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
