//! Every backend over a filesystem that fails on request: the right bytes, or an error that names the
//! file and the place. Never wrong bytes, a dead process or a hang.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

#[path = "../common/mod.rs"]
mod common;
mod disasters;
mod suite;

use std::path::PathBuf;
use std::sync::Arc;

use ringmain_backends::probe::drop_cached;
use ringmain_backends::{BackendKind, BackendOptions, ReadBackend, open_backend};
use ringmain_fault_fs::{FaultFs, Options};

/// A mounted filesystem with a file, or `None` where it cannot be mounted and need not be.
struct Patient {
    fs: FaultFs,
    contents: Vec<u8>,
}

/// The test in which the processes that serve filesystems begin.
const SERVER: &str = "server";

/// By itself it does nothing.
#[test]
fn server() {
    ringmain_fault_fs::serve();
}

/// The name of the file.
const NAME: &str = "data";
/// Not a multiple of a page, of a block, or of the kernel's read-ahead.
const LEN: usize = 700_001;

impl Patient {
    fn mount(options: Options) -> Option<Self> {
        match FaultFs::mount(options, SERVER) {
            Ok(fs) => Some(Self::with_file(fs)),
            Err(error) => {
                common::filesystem_missing("a FUSE filesystem", &error.to_string());
                None
            }
        }
    }

    /// No byte is zero, so that zeros in the place of bytes are seen.
    fn with_file(fs: FaultFs) -> Self {
        let contents: Vec<u8> =
            (0..LEN).map(|at| (at * 7 % 251 + at / 4096 % 4 + 1) as u8).collect();
        std::fs::write(fs.path().join(NAME), &contents).unwrap();
        // What was written is still in the page cache, and would be read from there.
        let patient = Self { fs, contents };
        patient.forget();
        patient
    }

    fn path(&self) -> PathBuf {
        self.fs.path().join(NAME)
    }

    /// Takes the file out of the page cache.
    fn forget(&self) {
        let file = std::fs::File::open(self.path()).unwrap();
        file.sync_all().unwrap();
        drop_cached(&file, 0..LEN as u64).unwrap();
    }
}

/// Every backend that reads files here.
fn backends() -> Vec<Arc<dyn ReadBackend>> {
    let kinds = BackendKind::ALL.into_iter().filter(|kind| *kind != BackendKind::Memory);
    kinds.filter_map(|kind| open(kind, &BackendOptions::default())).collect()
}

fn open(kind: BackendKind, options: &BackendOptions) -> Option<Arc<dyn ReadBackend>> {
    open_backend(kind, options).map_err(|error| common::excuse(kind, &error)).ok()
}
