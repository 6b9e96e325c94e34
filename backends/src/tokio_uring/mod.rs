//! io_uring through a tokio-uring runtime.

#[cfg(linux_tokio_uring)]
mod async_file;
#[cfg(linux_tokio_uring)]
mod batch;
#[cfg(not(linux_tokio_uring))]
mod disabled;
#[cfg(linux_tokio_uring)]
mod enabled;
#[cfg(linux_tokio_uring)]
mod operation;
#[cfg(linux_tokio_uring)]
mod queue;
#[cfg(linux_tokio_uring)]
mod runtime;
#[cfg(linux_tokio_uring)]
#[cfg(test)]
mod tests;

#[cfg(linux_tokio_uring)]
pub use async_file::AsyncFile;
#[cfg(not(linux_tokio_uring))]
pub(crate) use disabled::open;
#[cfg(linux_tokio_uring)]
pub use enabled::TokioUringBackend;
#[cfg(linux_tokio_uring)]
pub(crate) use enabled::open;
