//! Blocks of objects in a bounded folder of the local disk.
//!
//! [`CachedBackend`] wraps a slow backend of any kind, and keeps what was read in a folder. Ringmain's `auto` reads
//! what is in the folder, at the speed of the local device. All processes of a machine can share a folder, it stays
//! within its limit, and it is still warm after a restart.
//!
//! # How it works
//!
//! An object is cut into blocks, and each block is a file with a name that follows from the key of the object (its name
//! and version) and the number of the block. There is no index and no daemon, and reads need no lock:
//!
//! - **A block is there as a whole or not at all.** It is written under a temporary name and then renamed. A process
//!   that is killed leaves a temporary file. The next writer recognises it, because it is not locked any more, and
//!   removes it.
//! - **Checksums** show whether a block was damaged later. A damaged block is removed, counted, and fetched again.
//! - **A block may be removed at any time**, also while another process reads it: an open file stays readable, and a
//!   file that is gone is a miss.
//! - **The limit** is divided among parts of the folder, at most 64. To store a block, a process lists one part, twice,
//!   and removes files until the block fits. Writers do so in turn, by a lock on the first folder of the part (`flock`),
//!   because two that list it at once would use the same room. Then the block is written and gets its name without the
//!   lock. A list that is made meanwhile may miss it, and not every filesystem has locks: so writers may exceed the limit
//!   by a block each, until the next one makes room. If a lock stays held for a second, the block is not stored, and
//!   [`DiskCacheStats::degraded`] says so. A part has a few hundred files, or more if there are more than 16,000 blocks:
//!   2000 with 500 GiB in blocks of 4 MiB, which take 1 ms to list; 125,000 with 500 GiB in blocks of 64 KiB, which take
//!   0.1 s. Opening the cache reads nothing. A process lists each part once when it first reads from it, as the limit may
//!   be lower than before.
//! - **The time of the last use** is the time of modification of the file.
//!
//! Cached parts are read by `auto`, the rest from the inner backend, at the same time. Missing data is fetched in whole
//! blocks, unless the cache is full of blocks that are in use; then exactly the wanted ranges are read. See
//! `eviction.rs` for what stays.
//!
//! **No failure of the cache fails a read.** If the disk is full, the folder read-only or out of reach, or descriptors
//! have run out, reads go to the inner backend, and [`DiskCache::stats`], `explain` and `capabilities` say why.
//!
//! # Why not `foyer`
//!
//! foyer (0.22) is the best-known hybrid cache in Rust. Three of its properties do not fit here:
//!
//! - It keeps its index in memory, and overwrites its files of a fixed size in place. It takes no lock on the folder:
//!   two processes that open the same folder overwrite each other's blocks. Workers of a loader are processes.
//! - It reads whole entries with its own I/O engines into its own memory, and copies them. Here `auto` reads into the
//!   memory of the caller, several blocks as one batch, and only the wanted parts of blocks.
//! - Recovery after a restart scans the index of every block before the first read, and the whole interface is async:
//!   it would bring a runtime into programs that have none, and about 100 crates.
//!
//! | file | content |
//! |---|---|
//! | `backend.rs` | the backend: divides reads into pieces of blocks |
//! | `warm.rs`, `cold.rs` | pieces of blocks that are in the folder; pieces that come from the store |
//! | `cache.rs`, `eviction.rs` | finds and stores blocks, makes room; which blocks stay |
//! | `folder.rs`, `writer.rs` | the files of the folder; writes one |
//! | `block.rs`, `key.rs` | the bytes of a block, specified in `docs/formats.md`; names |
//! | `local.rs` | the blocks that this process has opened and verified |
//! | `health.rs`, `stats.rs`, `options.rs` | what does not work and why; counters; bounds |

mod backend;
mod block;
mod cache;
mod cold;
mod eviction;
mod folder;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod health;
mod key;
mod local;
#[cfg(test)]
#[cfg(all(unix, feature = "local-store", feature = "remote"))]
pub(crate) mod messages;
mod options;
mod stats;
mod warm;
mod writer;

pub use backend::CachedBackend;
pub use cache::DiskCache;
pub use folder::{CacheFolder, CacheSummary};
pub use key::CacheKey;
pub use options::DiskCacheOptions;
pub use stats::DiskCacheStats;
