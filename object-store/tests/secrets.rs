//! No key, no token and no signature is in anything that the clients log, whatever goes wrong.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests"
)]

mod support;

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use ringmain_backends::{ReadBackend, ReadBackendExt};
use ringmain_test_server::{Fault, KEY_ID, SECRET_KEY};
use support::{Store, hasty, pattern, quick};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Everything that was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Visit for Log {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = self.0.lock().expect("the log");
        writeln!(text, "{field}={value:?}").expect("a line");
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        attributes.record(&mut self.clone());
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        // The server is in this process too, and logs the headers of its requests.
        if !event.metadata().target().starts_with("s3s") {
            event.record(&mut self.clone());
        }
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl log::Log for Log {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        let mut text = self.0.lock().expect("the log");
        writeln!(text, "{}", record.args()).expect("a line");
    }
    fn flush(&self) {}
}

#[test]
fn nothing_secret_is_logged() {
    let log = Log::default();
    tracing::subscriber::set_global_default(log.clone()).expect("no other subscriber");
    log::set_boxed_logger(Box::new(log.clone())).expect("no other logger");
    log::set_max_level(log::LevelFilter::Trace);

    const TOKEN: &str = "t0ken-5ecret";
    let store = Store::new();
    let url = store.put("folder/object", pattern(100_000));
    let options = [quick(), hasty()]
        .map(|remote| store.options().remote(remote).config("aws_session_token", TOKEN));
    let mut texts = String::new();
    for options in options {
        let backend = ringmain_object_store::remote::UrlBackend::over_auto(options.clone())
            .expect("a backend");
        let file = backend.open(&url).expect("the object");
        let is_hasty = options.remote.retry.timeout.is_zero();
        for fault in [
            Fault::Drop,
            Fault::CutAfter(10),
            Fault::Status { status: 403, code: Some("SignatureDoesNotMatch"), retry_after_s: None },
            Fault::Status { status: 503, code: Some("SlowDown"), retry_after_s: None },
        ] {
            store.server.set_faults(move |info| match is_hasty || info.number % 3 == 0 {
                true => vec![fault.clone()],
                false => Vec::new(),
            });
            let outcomes = [
                backend.read_to_vec(&file, 0, 100_000).map(|bytes| bytes.len()),
                backend
                    .list("s3://bucket/folder".as_ref())
                    .map(|found| found.map_or(0, |it| it.len())),
                backend.open("s3://bucket/missing".as_ref()).map(|_| 0),
            ];
            writeln!(texts, "{outcomes:?} {backend:?} {options:?}").expect("a line");
        }
        store.server.clear_faults();
    }
    let logged = log.0.lock().expect("the log").clone();
    assert!(logged.contains("127.0.0.1"), "nothing was logged: {logged}");
    for secret in [SECRET_KEY, KEY_ID, TOKEN, "Signature=", "AWS4-HMAC"] {
        for text in [&logged, &texts] {
            let line = text.lines().find(|line| line.contains(secret));
            assert!(line.is_none(), "{secret} is in {line:?}");
        }
    }
}
