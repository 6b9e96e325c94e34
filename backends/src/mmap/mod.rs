//! Reads out of a read-only mapping.
//!
//! A file may be truncated under its mapping, or its device may fail, at any moment. A load then
//! raises `SIGBUS`. Mappings that are copied from have a `sys::MapGuard`, which turns that into
//! zeros and a mark on the mapping; every copying read looks at the mark after the copy, and if it
//! is set reads again with `pread`, which returns the error. Slices come from other mappings,
//! without a guard: zeros in the place of a lost page must never look like bytes of the file.
//!
//! Truncation inside a page raises no signal, but zeroes the rest of the page: where a page that was
//! copied ends with a 0, the file is asked whether it still reaches to the end of the read.

mod backend;
mod file_map;
mod guarded;
mod mapping;
mod range;

pub(crate) use backend::MmapBackend;

/// The backend that errors name.
const KIND: crate::BackendKind = crate::BackendKind::Mmap;
pub use file_map::{FileMap, MapAdvice, Unchanging};
pub use range::MappedRange;
