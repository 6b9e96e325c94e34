//! Batched io_uring reads.

#[cfg(not(linux_uring))]
mod disabled;
#[cfg(linux_uring)]
mod enabled;
#[cfg(linux_uring)]
mod ring;

#[cfg(not(linux_uring))]
pub(crate) use disabled::{open, probe_ring};
#[cfg(linux_uring)]
pub use enabled::UringBackend;
#[cfg(linux_uring)]
pub(crate) use enabled::{open, probe_ring};
