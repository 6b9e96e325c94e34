//! Helpers of several test binaries; none uses all of them.
#![allow(dead_code)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

#[cfg(target_os = "linux")]
pub(crate) mod give_up;
#[cfg(target_os = "linux")]
pub(crate) mod image;
#[cfg(target_os = "linux")]
pub(crate) mod numbered;
#[cfg(feature = "conformance")]
pub(crate) mod subjects;

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Arc, Mutex};

use ringmain_backends::{BackendKind, BackendOptions, Error, ReadBackend, open_backend};

/// A line on standard error, past any capture by libtest.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Says which filesystem cannot be tested here, or fails where it must be.
pub(crate) fn filesystem_missing(filesystem: &str, why: &str) {
    let required = std::env::var("CI").is_ok_and(|value| value == "true")
        || std::env::var_os("RINGMAIN_REQUIRE_FILESYSTEMS").is_some();
    assert!(!required, "{filesystem} is required and cannot be tested: {why}");
    say(&format!("{filesystem}: not tested: {why}"));
}

/// Passes over a backend that this machine cannot run: says so once, and fails if `RINGMAIN_REQUIRE_BACKENDS` names it or something else is wrong.
pub(crate) fn excuse(kind: BackendKind, error: &Error) {
    static SAID: Mutex<BTreeSet<BackendKind>> = Mutex::new(BTreeSet::new());
    assert!(error.is_unsupported(), "{error}");
    let required = std::env::var("RINGMAIN_REQUIRE_BACKENDS").unwrap_or_default();
    let is_required = required.split(',').any(|name| name.trim() == kind.name());
    assert!(!is_required, "RINGMAIN_REQUIRE_BACKENDS names {kind}, but: {error}");
    if SAID.lock().unwrap().insert(kind) {
        say(&format!("{kind}: unavailable: {error}"));
    }
}

/// The backend, or `None` where it may be missing: it must also read the temporary directory.
pub(crate) fn open_or_excuse(
    kind: BackendKind,
    options: &BackendOptions,
) -> Option<Arc<dyn ReadBackend>> {
    let probe = tempfile::NamedTempFile::new().unwrap();
    let opened = open_backend(kind, options)
        .and_then(|backend| backend.open(probe.path()).map(|_file| backend));
    opened.map_err(|error| excuse(kind, &error)).ok()
}
