//! The backend that chooses for every read.
//!
//! | file | content |
//! |---|---|
//! | `backend.rs` | the backend, its files and the trait |
//! | `reading.rs` | the way of each read |
//! | `one_way.rs`, `mixed.rs` | reads that go one way; batches that need several |
//! | `route.rs`, `residency.rs` | what is known about a file; which regions are believed to be cached |
//! | `detour.rs` | what to do if a way fails |
//! | `warmth.rs`, `trial.rs` | which data may stay in the page cache; whether bringing it in pays |
//! | `advised.rs`, `report.rs` | the backend that the options advise; the choice and its reason |
//!
//! `auto` has two backends behind it, which share its handles: `pread` for what the page cache has,
//! and `uring` (or `direct`, where io_uring is refused) for the rest. Each is slow at the other's part: direct reads
//! of warm 4 KiB blocks get 50 MB/s, and `pread` of cold blocks gets a tenth of the speed of `uring` with many
//! requests in flight.
//!
//! **Where is it?** `cachestat(2)` says what is cached, but takes 0.4 µs: a sixth of a warm read of 4 KiB. So the
//! answers are remembered for each region of a file (`residency.rs`). The belief "cached" is checked by the reads
//! themselves: a read that must not wait (`RWF_NOWAIT`) fails if the data is not cached. (Only one single read in
//! eight is made this way, since a call that may wait is a little faster.) The belief "not cached" is checked with
//! one read in 64, picked at random so that no access pattern escapes the check. A wrong belief costs time, but both
//! ways return the right bytes.
//!
//! Users who neither own a file nor may write it get `EPERM` from `cachestat`. Then a read that would ask the kernel
//! tries the page cache instead, and if its data is not there, it is read through the page cache.
//!
//! **Both at once.** A batch is split by way. The device's requests are submitted first. Then the cached ranges are
//! copied, and after every 256 KiB the completions of the device's requests are handled. Then the batch waits for
//! the ring. If a range was believed to be cached and is not, the attempt to copy it has started the kernel's read,
//! and the batch waits for it last. Nearly all batches need only one way, and are passed on unchanged.
//!
//! **Streams.** From the third of several small single reads that follow one another (at the front of a file from
//! the second), reads go through the page cache with the kernel's readahead. That is 20 times as fast as the device
//! with one read at a time. For reads of 128 KiB or more, the device is faster.
//!
//! **What becomes warm.** Cold reads leave the page cache as it was, unless the data is kept
//! (`Warmth`). `Auto` keeps data that its reader says will come again (`ReadBackend::expect`;
//! shuffled epochs do, and sequential ones from the second on) and that fits into three quarters of
//! what `MemAvailable` and the process's control groups leave. If a reader says nothing, its files are observed:
//! once more bytes of a file were read from the device than the file has, the file counts as read again. Its data is
//! kept if the data of all such files fits. All handles of a file share what is known about it (`KnownFile`),
//! because a cache of arrays opens the file once for each array. A cold read of kept data brings in the mebibyte
//! around it, so that reads in random order also fill the page cache at the device's full speed. Data is brought in
//! only where that pays. The first 16 batches of each size of reads are timed from the device, and the next four
//! while they bring data in. Then data is brought in if two later epochs gain what the first one loses, and never if
//! the device reads it at 2 GB/s or more. Both ways are timed because processes that share a device each see a part
//! of its speed: two workers on blocks of 256 KiB once took a device of 4 GB/s for a slow one, and read at a third
//! of its speed. A batch brings in twice its own bytes at most, and its other cold reads go to the device: otherwise
//! the first batch of a shuffled epoch would wait for all of the data. (Factors of one and eight were slower over a
//! whole epoch.) Single reads of 128 KiB or more are tried in the same way as batches. Smaller ones bring their data
//! in without a trial: one at a time, every device is slow at them.
//!
//! A descriptor for the device cannot read through the cache, so a file may be open twice; each of
//! the two handle caches has half of `open_files_max`.

mod advised;
mod backend;
mod detour;
mod known_file;
mod mixed;
mod one_way;
mod reading;
mod report;
mod residency;
mod route;
mod trial;
mod warmth;

pub(crate) use backend::AutoBackend;
pub use report::{AdviceReport, AutoReport};
