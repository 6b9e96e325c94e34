//! io_uring through a tokio-uring runtime.

#[cfg(not(linux_tokio_uring))]
mod disabled;
#[cfg(linux_tokio_uring)]
mod enabled;

#[cfg(not(linux_tokio_uring))]
pub(crate) use disabled::open;
#[cfg(linux_tokio_uring)]
pub(crate) use enabled::open;
#[cfg(linux_tokio_uring)]
pub use enabled::{AsyncFile, TokioUringBackend};
