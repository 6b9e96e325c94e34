//! cuFile and CUDA, opened.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::{GdsError, GdsFile, codes};
use crate::sys::{self, CuFile, CuFileStatus, Cuda};
use crate::{BackendKind, BackendOptions, Buffer, HomeProcess, ReadBackend, open_backend};

/// The memory of the host through which staged reads go. At this size, starting a copy to the GPU costs little
/// beside the copy.
pub(super) const STAGING_BYTES: usize = 8 << 20;

/// NVIDIA's cuFile and CUDA, opened for reads into the memory of a GPU. Clones share them.
///
/// The libraries are loaded at run time, so programs with the feature `gds` also run where they are missing. Nothing of
/// CUDA is called before [`open`](Self::open). After that, forked children cannot use CUDA, which is how CUDA works:
/// here they get [`GdsError::Forked`].
///
/// **What was tested.** The binding was tested with the `libcufile.so.0` that NVIDIA publishes, as far as it goes without
/// a driver; reads were tested with a library that stands in for cuFile and CUDA. Nothing of it has run on a GPU.
///
/// ```
/// use ringmain_backends::Gds;
///
/// match Gds::open() {
///     Ok(gds) => println!("{gds:?}"),
///     Err(error) => println!("no GPUDirect Storage: {error}"),
/// }
/// ```
#[derive(Clone)]
pub struct Gds {
    pub(super) opened: Arc<Opened>,
}

pub(super) struct Opened {
    pub(super) cufile: CuFile,
    pub(super) cuda: Cuda,
    /// Reads for files that cuFile does not read.
    pub(super) backend: Arc<dyn ReadBackend>,
    home: HomeProcess,
    /// Taken by one staged read at a time.
    staging: Mutex<Option<Staging>>,
}

/// Memory of the host, page-locked if CUDA agreed, so that the GPU can fetch from it.
pub(super) struct Staging {
    pub(super) buffer: Buffer,
    is_pinned: bool,
}

impl Gds {
    /// Opens `libcufile.so.0` and `libcuda.so.1`. Where the driver lists no GPU, it does not call them: cuFile 1.17 was
    /// seen to loop for ever in `cuFileDriverOpen` if there is no driver, while version 1.14 returns an error.
    pub fn open() -> Result<Self, GdsError> {
        check_devices(sys::count_gpus())?;
        // SAFETY: these are the names of NVIDIA's libraries.
        unsafe { Self::open_libraries(Path::new("libcufile.so.0"), Path::new("libcuda.so.1")) }
    }

    /// Opens the libraries of these names or paths, whether there is a GPU or not.
    ///
    /// # Safety
    /// They are NVIDIA's cuFile and CUDA, or behave like them.
    pub unsafe fn open_libraries(cufile: &Path, cuda: &Path) -> Result<Self, GdsError> {
        let missing = |library: &Path| {
            let library = library.display().to_string();
            |reason| GdsError::Library { library, reason }
        };
        // SAFETY: the caller promises what the libraries are.
        let (cuda, cufile) = unsafe {
            (
                Cuda::load(cuda).map_err(missing(cuda))?,
                CuFile::load(cufile).map_err(missing(cufile))?,
            )
        };
        check("cuFileDriverOpen", cufile.open_driver())?;
        let backend = open_backend(BackendKind::Auto, &BackendOptions::default())?;
        let (home, staging) = (HomeProcess::current(), Mutex::new(None));
        Ok(Self { opened: Arc::new(Opened { cufile, cuda, backend, home, staging }) })
    }

    /// Opens a file. If cuFile cannot read it, its bytes go through memory of the host; [`GdsFile::route`] says why.
    pub fn file(&self, path: impl AsRef<Path>) -> Result<GdsFile, GdsError> {
        self.opened.check_process()?;
        GdsFile::open(self, path.as_ref())
    }
}

impl Opened {
    pub(super) fn check_process(&self) -> Result<(), GdsError> {
        if self.home.is_current() { Ok(()) } else { Err(GdsError::Forked) }
    }

    /// Calls `work` with the staging memory, which it makes at the first call.
    pub(super) fn with_staging<T>(
        &self,
        work: impl FnOnce(&mut Staging) -> Result<T, GdsError>,
    ) -> Result<T, GdsError> {
        let mut held = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        let staging = match &mut *held {
            Some(staging) => staging,
            none => {
                let mut buffer = Buffer::unpooled(STAGING_BYTES)?;
                // If CUDA cannot lock its pages, CUDA copies through memory of its own.
                let is_pinned = self.cuda.pin(&mut buffer).is_ok();
                none.insert(Staging { buffer, is_pinned })
            }
        };
        work(staging)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // A forked child must not call CUDA. The driver stays open to the end of the process, as CUDA does.
        let staging = self.staging.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        match staging {
            Some(mut staging) if staging.is_pinned && self.home.is_current() => {
                let unpinned = self.cuda.unpin(&mut staging.buffer);
                debug_assert_eq!(unpinned, Ok(()));
            }
            _ => {}
        }
    }
}

impl fmt::Debug for Gds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gds(cuFile {})", self.opened.cufile.version().unwrap_or(0))
    }
}

/// Returns an error unless there is a GPU.
fn check_devices(count: Result<u32, String>) -> Result<(), GdsError> {
    match count {
        Ok(0) => Err(GdsError::NoDevice { reason: "the driver lists none".into() }),
        Ok(_) => Ok(()),
        Err(reason) => Err(GdsError::NoDevice { reason }),
    }
}

/// Turns the result of a function of cuFile into an error that says what its number means.
pub(super) fn check(function: &'static str, status: CuFileStatus) -> Result<(), GdsError> {
    match status.code {
        0 => Ok(()),
        code => Err(cufile_error(function, code, status.cuda)),
    }
}

pub(super) fn cufile_error(function: &'static str, code: i32, cuda: i32) -> GdsError {
    let cuda = (code == codes::CUDA_DRIVER_ERROR).then_some(cuda);
    GdsError::CuFile { function, code, meaning: codes::meaning(code), cuda }
}

#[cfg(test)]
mod tests;
