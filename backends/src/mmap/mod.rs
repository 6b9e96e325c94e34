//! Reads out of a read-only mapping.
//!
//! A file may be truncated under its mapping, or its device may fail, at any moment. A load then
//! raises `SIGBUS`. Mappings that are copied from have a `sys::MapGuard`, which turns that into
//! zeros and a mark on the mapping. Every copying read checks the mark after the copy. If it is
//! set, the range is read again with `pread`, whose answer counts: the bytes, the end of the file,
//! or `EIO`.
//!
//! The kernel raises no signal inside the page that contains the new end of the file; it zeroes the
//! rest of that page (XFS does so before it shortens the file). So bytes can be lost without a
//! signal only if the copied page ends with a 0. In that case a `pread` of the read's last byte
//! shows whether the file still has it. Doing this after every read would cost a fifth of a warm 64
//! KiB read (a system call takes 0.3 µs on the test machine, a small `pread` 0.7 µs).
//!
//! Copying by a system call that reports `EFAULT` (`process_vm_readv` on oneself) would need no
//! handler, but pins every page and so loses what a mapping is for. If the program replaces the
//! handler, that is noticed within one tick of the kernel's coarse clock (1 to 10 ms; reading it
//! costs 6 ns, asking for the handler 220), and copying reads use `pread` until it is back.
//!
//! Slices come from a second mapping of the file, without a guard, made when the first range is
//! asked for. There a lost page raises the signal in the program. To put zeros in its place would
//! be worse: zeros look like bytes of the file, and a user of the slice may forget to check the
//! mark on the mapping.

mod backend;
#[cfg(all(test, target_os = "linux"))]
mod cold;
mod file_map;
mod guarded;
mod mapping;
mod range;

pub(crate) use backend::MmapBackend;

/// The backend that errors name.
const KIND: crate::BackendKind = crate::BackendKind::Mmap;
pub use file_map::{FileMap, Unchanging};
pub use range::MappedRange;
