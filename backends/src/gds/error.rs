//! Errors of reads into the memory of a GPU.

use std::fmt;

/// An error of GPUDirect Storage.
#[derive(Debug)]
#[non_exhaustive]
pub enum GdsError {
    /// This build has no GPUDirect Storage: the feature `gds` is off, or the system is not Linux.
    Disabled,
    /// A library cannot be loaded, or lacks a function.
    Library {
        /// The library.
        library: String,
        /// The loader's error.
        reason: String,
    },
    /// There is no GPU.
    NoDevice {
        /// Where the driver lists none, or that there is no driver.
        reason: String,
    },
    /// A function of cuFile failed.
    CuFile {
        /// The function.
        function: &'static str,
        /// cuFile's number for the error.
        code: i32,
        /// The meaning of the number.
        meaning: &'static str,
        /// CUDA's number, if the error is one of CUDA's.
        cuda: Option<i32>,
    },
    /// A function of CUDA failed.
    Cuda {
        /// The function.
        function: &'static str,
        /// CUDA's number for the error.
        code: i32,
    },
    /// The range does not fit in the device's memory.
    OutsideMemory {
        /// The first byte of the memory to fill.
        at: usize,
        /// The length of the range.
        len: u64,
        /// The size of the memory.
        memory_bytes: usize,
    },
    /// CUDA was opened by the parent of this process, and does not work after a fork.
    Forked,
    /// The file could not be opened or read, or it [changed](crate::Error::file_change) after it was opened.
    File(crate::Error),
}

impl fmt::Display for GdsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str(
                "this build has no GPUDirect Storage; it needs Linux and the feature `gds`",
            ),
            Self::Library { library, reason } => {
                write!(f, "{library} could not be loaded: {reason}")
            }
            Self::NoDevice { reason } => write!(f, "there is no GPU: {reason}"),
            Self::CuFile { function, code, meaning, cuda } => {
                write!(f, "{function} failed: {meaning} (cuFile's error {code}")?;
                cuda.map_or(Ok(()), |code| write!(f, ", CUDA's error {code}"))?;
                f.write_str(")")
            }
            Self::Cuda { function, code } => {
                write!(f, "{function} failed with CUDA's error {code}; the calling thread needs the CUDA context of the memory")
            }
            Self::OutsideMemory { at, len, memory_bytes } => {
                write!(f, "{len} bytes from byte {at} on do not fit in device memory of {memory_bytes} bytes")
            }
            Self::Forked => f.write_str(
                "CUDA was opened by the parent of this process and does not work after a fork; open it in the \
                 child, or spawn the process",
            ),
            Self::File(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for GdsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File(error) => std::error::Error::source(error),
            _ => None,
        }
    }
}

impl From<crate::Error> for GdsError {
    fn from(error: crate::Error) -> Self {
        Self::File(error)
    }
}
