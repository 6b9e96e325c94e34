//! Batched io_uring reads.

#[cfg(linux_uring)]
mod batch;
#[cfg(linux_uring)]
mod cells;
#[cfg(not(linux_uring))]
mod disabled;
#[cfg(linux_uring)]
mod enabled;
#[cfg(linux_uring)]
mod ring;
#[cfg(linux_uring)]
mod rings;

#[cfg(not(linux_uring))]
pub(crate) use disabled::{open, probe_ring};
#[cfg(linux_uring)]
pub use enabled::UringBackend;
#[cfg(linux_uring)]
pub(crate) use enabled::{open, probe_ring};
