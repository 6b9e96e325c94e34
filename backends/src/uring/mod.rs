//! Batched io_uring reads.
//!
//! A thread has its own ring for every backend it reads with, in thread-local storage, marked with
//! the process generation (a count of forks). `SINGLE_ISSUER`, `DEFER_TASKRUN` and `NO_SQARRAY` are
//! tried first and left out one by one where the kernel does not know them. A thread that gets no
//! ring, because `rings_max` is reached or the kernel refuses one, reads the same files with
//! positional calls.
//!
//! Bounced reads go into an arena, which a batch borrows from the pool and gives back when it ends,
//! so that idle threads hold none. All arenas of a pool together are at most half of it, whatever
//! the number of threads and backends. A batch takes as much as its bounced reads can use (4 MiB at
//! most), but no more than half of what is left, so that the next one finds some too. A batch that
//! cannot borrow any reads its bounced requests one by one through buffers of the pool, and tries
//! to borrow an arena again before each.
//!
//! Neither files nor arenas are registered with a ring: `ring.rs` says why.

mod backend;
mod batch;
mod cells;
mod ring;
mod thread_rings;

pub(crate) use backend::{open, probe_ring};
