//! io_uring through a tokio-uring runtime.

mod async_file;
mod backend;
mod batch;
mod operation;
mod queue;
mod runtime;
#[cfg(test)]
mod tests;

pub use async_file::AsyncFile;
pub(crate) use backend::open;
