//! The memory that the engine uses on the way to the caller.
//!
//! An engine has two pools: one for callers and for the engine itself, and one for the backend, so that
//! a caller that holds all buffers cannot make the backend wait. Each of these pieces has one reason to
//! exist:
//!
//! | piece | reason |
//! |---|---|
//! | [`Reserve`], [`Share`], [`ClaimedBuffer`] (`reserve/`) | a source that reads ahead must leave memory for the next batch of every other source |
//! | [`BufferSizes`] (`reserve/`) | buffers of one size need not be rounded up to be used again; others must be |
//! | `Scratch` (`scratch.rs`) | bytes that only pass through need memory too, and a call must succeed although its caller holds the whole pool |
//! | [`zeroed`], [`recycled`] (`vectors.rs`) | memory for results that the caller keeps; lists that every batch uses again |
//! | arenas (`Loan` in `pool/` of the backends) | the bounce buffers of all requests of a batch, borrowed at once and returned at its end |

mod reserve;
mod scratch;
mod vectors;

pub(crate) use reserve::{BufferSizes, ClaimedBuffer, Need, Reserve, Share};
pub(crate) use vectors::{recycled, zeroed};
