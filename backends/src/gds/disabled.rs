//! The answers of a build without GPUDirect Storage.

use std::convert::Infallible;
use std::ops::Range;
use std::path::Path;

use super::{DeviceMemory, GdsError, GdsRoute};

/// cuFile and CUDA. This build has no value of it.
#[derive(Clone, Debug)]
pub struct Gds(Infallible);

impl Gds {
    /// Returns [`GdsError::Disabled`].
    pub fn open() -> Result<Self, GdsError> {
        Err(GdsError::Disabled)
    }

    /// Returns [`GdsError::Disabled`].
    ///
    /// # Safety
    /// None: this build loads nothing.
    pub unsafe fn open_libraries(_cufile: &Path, _cuda: &Path) -> Result<Self, GdsError> {
        Err(GdsError::Disabled)
    }

    /// There is no value to call this with.
    pub fn file(&self, _path: impl AsRef<Path>) -> Result<GdsFile, GdsError> {
        match self.0 {}
    }
}

/// A file that is read into memory of a GPU. This build has no value of it.
#[derive(Debug)]
pub struct GdsFile(Infallible);

impl GdsFile {
    /// There is no value to call this with.
    #[must_use]
    pub fn route(&self) -> &GdsRoute {
        match self.0 {}
    }

    /// There is no value to call this with.
    pub fn read(
        &self,
        _memory: &mut DeviceMemory,
        _at: usize,
        _range: Range<u64>,
    ) -> Result<(), GdsError> {
        match self.0 {}
    }
}
