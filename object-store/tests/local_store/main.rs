//! `RingmainStore` beside `LocalFileSystem`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests are tests"
)]
#![allow(clippy::single_range_in_vec_init, reason = "a request may have a single range")]

mod bounds;
mod cancellation;
mod changes;
mod errors;
mod integration;
mod model;
mod read_ahead;
mod watched;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use object_store::local::LocalFileSystem;
use ringmain_backends::{BackendKind, BackendOptions, ReadBackend, open_backend};
use ringmain_object_store::local_store::RingmainStore;

/// Longer than any machine needs: a wait that lasts this long has failed.
const LONG: Duration = Duration::from_secs(120);

fn local(dir: &Path) -> LocalFileSystem {
    LocalFileSystem::new_with_prefix(dir).unwrap()
}

fn store(dir: &Path) -> RingmainStore {
    RingmainStore::new(local(dir)).unwrap()
}

/// The backends that work here, and `auto`. With two open files, `auto` opens files again all the time.
fn backends() -> Vec<Arc<dyn ReadBackend>> {
    let kinds = [
        BackendKind::Auto,
        BackendKind::Pread,
        BackendKind::Mmap,
        BackendKind::Direct,
        BackendKind::Uring,
    ];
    let few_files = BackendOptions { open_files_max: 2, ..BackendOptions::default() };
    let all = kinds.iter().filter_map(|kind| open_backend(*kind, &BackendOptions::default()).ok());
    all.chain([open_backend(BackendKind::Auto, &few_files).unwrap()]).collect()
}

fn numbered(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 7 + at / 251 + seed * 31) % 251) as u8).collect()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
