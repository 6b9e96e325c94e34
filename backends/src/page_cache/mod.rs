//! Reads through the page cache by positional calls: `pread` and `uncached`.

mod access_hint;
mod buffered_file;
mod positional;
pub(crate) mod window;

pub(crate) use access_hint::AccessHint;
pub(crate) use positional::{PositionalBackend, file_len};
