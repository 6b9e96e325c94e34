//! An open file that is read through the page cache by positional calls.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use super::access_hint::AccessHint;
use crate::handle_cache::Cached;
use crate::{Access, sys};

/// A file that `pread` or `uncached` reads.
#[derive(Debug)]
pub(crate) struct BufferedFile {
    file: File,
    hint: AccessHint,
    /// The filesystem answers reads that must not wait.
    answers_nowait: AtomicBool,
}

impl BufferedFile {
    pub(crate) fn new(file: File, access: Access) -> Self {
        let hint = AccessHint::new(access, |access| sys::advise_access(&file, access));
        Self { file, hint, answers_nowait: AtomicBool::new(true) }
    }

    /// Several ranges are going to be read.
    pub(crate) fn expect_batch(&self) {
        self.hint.expect_batch(|access| sys::advise_access(&self.file, access));
    }

    /// Reads follow one another.
    pub(crate) fn expect_stream(&self) {
        self.hint.expect_stream(|access| sys::advise_access(&self.file, access));
    }

    /// This range alone is going to be read.
    pub(crate) fn expect_single(&self, start: u64, end: u64) {
        self.hint.expect_single(start, end, |access| sys::advise_access(&self.file, access));
    }

    /// Returns `true` if reads that must not wait are answered. Not known before the first.
    pub(crate) fn answers_nowait(&self) -> bool {
        self.answers_nowait.load(Ordering::Relaxed)
    }

    /// Calls `read`, which must not wait for the device. Returns how many bytes it copied; the
    /// rest is on its way into the page cache. `None` if there was no answer: a call that waits has
    /// to be made.
    pub(crate) fn read_nowait(
        &self,
        dst: &mut [u8],
        offset: u64,
        mut read: impl FnMut(&File, &mut [u8], u64) -> io::Result<usize>,
    ) -> Option<usize> {
        if !self.answers_nowait() {
            return None;
        }
        match read(&self.file, dst, offset) {
            Ok(copied) => Some(copied),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(0),
            Err(error) => {
                // The call that waits meets any other error again, and reports it.
                if is_refusal(&error) {
                    self.answers_nowait.store(false, Ordering::Relaxed);
                }
                None
            }
        }
    }
}

impl Cached for BufferedFile {
    const HINT: usize = 1;

    fn file(&self) -> &File {
        &self.file
    }

    fn expect_access(&self, access: Access) {
        self.hint.set(access, |access| sys::advise_access(&self.file, access));
    }
}

fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
        || matches!(sys::errno_name(error), Some("EOPNOTSUPP" | "ENOSYS" | "EINVAL"))
}
