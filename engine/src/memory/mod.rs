//! The memory that the engine uses on the way to the caller.
//!
//! | file | content |
//! |---|---|
//! | `reserve.rs` | shares of the pool that sources leave free for each other |
//! | `scratch.rs` | memory that bytes pass through |
//! | `fresh.rs` | memory outside the pool, and reusable lists of reads |

mod fresh;
mod reserve;
mod scratch;

pub(crate) use fresh::{recycled, vec_of};
pub(crate) use reserve::{Claim, Need, Reserve, Share};
