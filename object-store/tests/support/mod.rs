//! A server with one bucket, and backends that read from it.
#![allow(dead_code, reason = "no test uses all of it")]
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests"
)]

use std::path::PathBuf;
use std::time::Duration;

use ringmain_backends::{Error, FileHandle, ReadBackend};
use ringmain_object_store::remote::{
    FailureKind, RemoteFailure, RemoteOptions, RetryOptions, UrlBackend, UrlOptions,
};
use ringmain_test_server::Server;
use tempfile::TempDir;

/// A folder that is served as the bucket `bucket`.
pub(crate) struct Store {
    pub(crate) server: Server,
    pub(crate) folder: TempDir,
}

impl Store {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let server = Server::start([("bucket", folder.path())]);
        Self { server, folder }
    }

    /// Writes an object again, as a store does: as another file.
    pub(crate) fn put(&self, key: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.path().join(key);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        let fresh = path.with_extension("fresh");
        std::fs::write(&fresh, bytes).expect("a file");
        std::fs::rename(fresh, path).expect("the object");
        url(key)
    }

    pub(crate) fn options(&self) -> UrlOptions {
        let config = self.server.client_config();
        config.into_iter().fold(UrlOptions::default().remote(quick()), |options, (name, value)| {
            options.config(name, value)
        })
    }

    pub(crate) fn backend(&self) -> UrlBackend {
        UrlBackend::over_auto(self.options()).expect("a backend")
    }

    pub(crate) fn backend_with(&self, remote: RemoteOptions) -> UrlBackend {
        UrlBackend::over_auto(self.options().remote(remote)).expect("a backend")
    }

    /// A backend with other settings of the client.
    pub(crate) fn backend_with_config(&self, changes: &[(&str, &str)]) -> UrlBackend {
        let options = changes
            .iter()
            .fold(self.options(), |options, (name, value)| options.config(*name, *value));
        UrlBackend::over_auto(options).expect("a backend")
    }
}

/// The URL of an object in the bucket.
pub(crate) fn url(key: &str) -> PathBuf {
    PathBuf::from(format!("s3://bucket/{key}"))
}

/// Deadlines that only a hang reaches, and short pauses.
pub(crate) fn quick() -> RemoteOptions {
    let retry = RetryOptions {
        timeout: Duration::from_secs(240),
        first_contact: Duration::from_secs(240),
        shortage: Duration::from_secs(240),
        pause_min: Duration::from_millis(2),
        pause_max: Duration::from_millis(50),
    };
    RemoteOptions { retry, stall_timeout: Duration::from_secs(120), ..RemoteOptions::default() }
}

/// As [`quick`], and a failure is final.
pub(crate) fn hasty() -> RemoteOptions {
    let retry =
        RetryOptions { timeout: Duration::ZERO, first_contact: Duration::ZERO, ..quick().retry };
    RemoteOptions { retry, ..quick() }
}

/// Bytes that differ from their neighbours and repeat late.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251 + at / 65_521) as u8).collect()
}

/// The failure of a store inside an error, after a look for secrets.
#[track_caller]
pub(crate) fn failure(error: &Error) -> RemoteFailure {
    let text = format!("{error} {error:?} {:?}", error.io_error());
    assert!(!text.contains("5ecret"), "a secret in: {text}");
    match RemoteFailure::of(error) {
        Some(failure) => failure.clone(),
        None => panic!("not a failure of a store: {error:?}"),
    }
}

/// Panics unless the object cannot be opened for this reason, with a message that has all of the words.
#[track_caller]
pub(crate) fn assert_refused(backend: &UrlBackend, url: &str, kind: FailureKind, words: &[&str]) {
    let error = match backend.open(url.as_ref()) {
        Ok(_) => panic!("{url} was opened"),
        Err(error) => error,
    };
    assert!(matches!(error, Error::Open { .. }), "{error:?}");
    let found = failure(&error);
    assert_eq!(found.kind(), kind, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "`{word}` is missing in: {error}");
    }
}

pub(crate) fn read(
    backend: &dyn ReadBackend,
    file: &FileHandle,
    offset: u64,
    len: usize,
) -> Vec<u8> {
    use ringmain_backends::ReadBackendExt;
    backend.read_to_vec(file, offset, len).expect("bytes")
}
