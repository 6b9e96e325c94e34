//! A file, read through cuFile or through memory of the host.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use super::libraries::{Opened, STAGING_BYTES, check, cufile_error};
use super::{DeviceMemory, Gds, GdsError, GdsRoute};
use crate::retry::{Patience, Shortfall, shortfall_at_end};
use crate::sys::{self, CuFileFailed as Failed, CuFileHandle};
use crate::version::ChangedFile;
use crate::{BackendKind, Error, FileChange, FileHandle, FileVersion, ReadBackendExt};

/// cuFile reads at most this much in one call, so that a call ends in time.
const PART_BYTES: u64 = 1 << 30;

/// A file whose bytes are read into the memory of a GPU.
///
/// Any number of threads may read it. Each needs the CUDA context of the memory that it fills, as for every call of
/// CUDA.
#[derive(Debug)]
pub struct GdsFile {
    gds: Gds,
    /// For staged reads, and to name the file in errors.
    file: FileHandle,
    version: FileVersion,
    route: GdsRoute,
    /// Closed after it is deregistered: the fields are dropped in this order.
    registered: Option<Registered>,
}

/// A file that cuFile knows.
#[derive(Debug)]
struct Registered {
    gds: Gds,
    handle: CuFileHandle,
    direct: File,
}

impl GdsFile {
    pub(super) fn open(gds: &Gds, path: &Path) -> Result<Self, GdsError> {
        let file = gds.opened.backend.open(path)?;
        let (registered, route) = match Registered::open(gds, path) {
            Ok(registered) => (Some(registered), GdsRoute::CuFile),
            Err(error) => (None, GdsRoute::Staged { reason: error.to_string() }),
        };
        let version = version_of(gds, registered.as_ref(), &file)?;
        Ok(Self { gds: gds.clone(), file, version, route, registered })
    }

    /// Returns how the bytes reach the GPU.
    #[must_use]
    pub fn route(&self) -> &GdsRoute {
        &self.route
    }

    /// Returns the size of the file in bytes, as it was when it was opened.
    #[must_use]
    pub fn file_len(&self) -> u64 {
        self.version.len()
    }

    /// Reads a range of the file to the bytes of the memory from `at` on. It returns when all of them are there.
    ///
    /// After an error, the memory holds some of the bytes. A file that was written to, truncated or replaced since it
    /// was opened is an error.
    pub fn read(
        &self,
        memory: &mut DeviceMemory,
        at: usize,
        range: Range<u64>,
    ) -> Result<(), GdsError> {
        let opened = &*self.gds.opened;
        opened.check_process()?;
        let len = range.end.saturating_sub(range.start);
        let outside = || GdsError::OutsideMemory { at, len, memory_bytes: memory.len() };
        let end = usize::try_from(len).ok().and_then(|len| at.checked_add(len));
        if end.is_none_or(|end| end > memory.len()) {
            return Err(outside());
        }
        if range.end > self.version.len() {
            return Err(self.failed(&range, Shortfall::PastEnd(self.version.len())).into());
        }
        match &self.registered {
            Some(registered) => self.read_directly(registered, memory, at, &range)?,
            None => self.read_staged(opened, memory, at, &range)?,
        }
        self.check_unchanged(&range)
    }

    fn read_directly(
        &self,
        registered: &Registered,
        memory: &mut DeviceMemory,
        at: usize,
        range: &Range<u64>,
    ) -> Result<(), GdsError> {
        let (cufile, mut done) = (&self.gds.opened.cufile, 0);
        let mut patience = Patience::default();
        while range.start + done < range.end {
            let offset = range.start + done;
            let part = (range.end - offset).min(PART_BYTES);
            // SAFETY: the caller of `DeviceMemory::new` promised the memory, and the range was compared with it.
            let read = unsafe {
                cufile.read(registered.handle, memory.address(), part, offset, at as u64 + done)
            };
            match read {
                Ok(0) => {
                    let shortfall = shortfall_at_end(&registered.direct, range.end);
                    if !shortfall.is_unexpected_end() || !patience.spend() {
                        return Err(self.failed(range, shortfall).into());
                    }
                }
                Ok(bytes) => {
                    // A longer answer than the request would be a bug of the library, and overflow the next offset.
                    done += bytes.min(part);
                    patience.renew();
                }
                Err(Failed::Errno(source)) if patience.allows(&source) => {}
                Err(Failed::Errno(source)) => return Err(self.failed(range, source.into()).into()),
                Err(Failed::CuFile(code)) => return Err(cufile_error("cuFileRead", code, 0)),
            }
        }
        Ok(())
    }

    fn read_staged(
        &self,
        opened: &Opened,
        memory: &mut DeviceMemory,
        at: usize,
        range: &Range<u64>,
    ) -> Result<(), GdsError> {
        opened.with_staging(|staging| {
            let mut done = 0;
            while range.start + done < range.end {
                let offset = range.start + done;
                let part = (range.end - offset).min(STAGING_BYTES as u64) as usize; // fits: at most STAGING_BYTES
                let bytes = &mut staging.buffer[..part];
                opened.backend.read_exact_at(&self.file, offset, bytes)?;
                // SAFETY: as in `read_directly`.
                let copied = unsafe {
                    opened.cuda.copy_to_device(memory.address() + at as u64 + done, bytes)
                };
                copied.map_err(|code| GdsError::Cuda { function: "cuMemcpyHtoD", code })?;
                done += part as u64;
            }
            Ok(())
        })
    }

    /// Returns an error if the file has changed since it was opened. `range` is what was read.
    fn check_unchanged(&self, range: &Range<u64>) -> Result<(), GdsError> {
        let change = match version_of(&self.gds, self.registered.as_ref(), &self.file) {
            Err(error) if error.file_change() == Some(FileChange::Replaced) => {
                Some(FileChange::Replaced)
            }
            found => found?.change_since(&self.version),
        };
        match change {
            None => Ok(()),
            Some(FileChange::Replaced) => {
                let (backend, path) = (BackendKind::Direct, self.file.path().to_owned());
                Err(Error::Replaced { backend, path, offset: range.start }.into())
            }
            Some(change) => {
                let kind = io::ErrorKind::StaleNetworkFileHandle;
                Err(self.failed(range, io::Error::new(kind, ChangedFile(change)).into()).into())
            }
        }
    }

    fn failed(&self, range: &Range<u64>, shortfall: Shortfall) -> Error {
        let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        shortfall.into_error(BackendKind::Direct, self.file.path(), range.start, len, 0)
    }
}

/// Returns the version of the file that is read: the one that cuFile has open, or else the one that the backend has
/// opened.
fn version_of(
    gds: &Gds,
    registered: Option<&Registered>,
    file: &FileHandle,
) -> Result<FileVersion, Error> {
    let Some(registered) = registered else { return gds.opened.backend.version(file) };
    FileVersion::of(&registered.direct).map_err(|source| {
        let (backend, path) = (BackendKind::Direct, file.path().to_owned());
        Error::Open { backend, path, source }
    })
}

impl Registered {
    fn open(gds: &Gds, path: &Path) -> Result<Self, GdsError> {
        let opened = sys::open_direct(path);
        let direct = opened.map_err(|source| {
            let (backend, path) = (BackendKind::Direct, path.to_owned());
            GdsError::File(Error::Open { backend, path, source })
        })?;
        let (status, handle) = gds.opened.cufile.register(&direct);
        check("cuFileHandleRegister", status)?;
        Ok(Self { gds: gds.clone(), handle, direct })
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.gds.opened.check_process().is_ok() {
            self.gds.opened.cufile.deregister(self.handle);
        }
    }
}
