//! GPUDirect Storage: what is there of it, and reads into the memory of a GPU.
//!
//! | file | contents |
//! |---|---|
//! | `probe.rs` | finds out whether cuFile and a GPU are there |
//! | `libraries.rs` | cuFile and CUDA, opened |
//! | `file.rs` | a file, read through cuFile or through memory of the host |
//! | `device_memory.rs` | memory of a GPU, which the caller answers for |
//! | `error.rs`, `codes.rs` | errors, and what cuFile's numbers mean |
//! | `disabled.rs` | the answers of a build without the feature |

#[cfg(linux_gds)]
mod codes;
mod device_memory;
mod error;
#[cfg(linux_gds)]
mod file;
#[cfg_attr(not(linux_gds), path = "disabled.rs")]
mod libraries;
mod probe;

pub use device_memory::DeviceMemory;
pub use error::GdsError;
#[cfg(linux_gds)]
pub use file::GdsFile;
pub use libraries::Gds;
#[cfg(not(linux_gds))]
pub use libraries::GdsFile;
pub use probe::{GdsProbe, probe_gds};

/// How the bytes of a [`GdsFile`] reach the GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GdsRoute {
    /// Through cuFile: the device writes them, unless cuFile's own compatibility mode copies them.
    CuFile,
    /// Through memory of the host, from which CUDA copies them.
    Staged {
        /// Why cuFile does not read this file.
        reason: String,
    },
}
