//! The backend that chooses for every read.
//!
//! Data in the page cache is copied from there by `pread`. Other data is read from the device, past
//! the page cache, by `uring` or `direct`. A batch that needs both has both at once: the device
//! reads are submitted first, and the cached ranges are copied while these are in flight.

mod advised;
mod backend;
mod detour;
mod mixed;
mod reading;
mod report;
mod residency;
mod route;
mod warmth;

pub(crate) use backend::AutoBackend;
pub use report::{AdviceReport, AutoReport};
pub(crate) use route::FileRoute;
