//! Reads through the page cache by positional calls: `pread` and `uncached`.
//!
//! # Batches
//!
//! A cold read through the page cache waits for the device. Random reads of 4 KiB, one at a time,
//! get 36 MB/s from a device that delivers ten times as much when many are in flight. So the reads
//! of a batch are in flight together:
//!
//! - `pread` and `uncached` go through a batch twice, at first without waiting (`RWF_NOWAIT`): see
//!   `positional.rs`.
//! - `mmap` has no such call. It measures how long the first copy of a batch takes. If that waited
//!   for the device, the kernel is asked for all other ranges of the batch (`MADV_WILLNEED`) before
//!   they are copied.
//! - Several threads copy a large batch together: see `copiers.rs`.
//! - At most 256 reads and 32 MiB are in flight together: with more, the kernel may evict pages
//!   before they are copied.
//!
//! A miss makes the kernel read ahead, 128 KiB on most machines and 8 MiB on some. For scattered
//! reads, that reads a hundred times their size for nothing. So the first batch of a file switches
//! readahead off (`POSIX_FADV_RANDOM`, `MADV_RANDOM`), and two single reads that follow one another
//! switch it on again. A caller that knows its pattern sets `Access` instead.

mod access_hint;
mod buffered_file;
mod copiers;
pub(crate) mod flight;
mod positional;

pub(crate) use access_hint::AccessHint;
pub(crate) use positional::PositionalBackend;
