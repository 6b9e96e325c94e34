//! Batched io_uring reads.

mod backend;
mod batch;
mod cells;
mod ring;
mod rings;

pub(crate) use backend::{open, probe_ring};
