//! Local files as an `ObjectStore` whose reads are those of `auto`.
//!
//! [`RingmainStore`] takes the place of [`object_store::local::LocalFileSystem`] under engines that read through the
//! crate `object_store`, such as DataFusion. It wraps such a store, which still does everything but reads: writing,
//! listing, copying, renaming, deleting, conditions and metadata.
//!
//! ```
//! use object_store::{ObjectStore, ObjectStoreExt, local::LocalFileSystem, path::Path};
//! use ringmain_object_store::local_store::RingmainStore;
//! # let dir = tempfile::tempdir()?;
//! # futures::executor::block_on(async {
//!
//! let store = RingmainStore::new(LocalFileSystem::new_with_prefix(dir.path())?)?;
//! let path = Path::from("part-0.bin");
//! store.put(&path, "0123456789".into()).await?;
//! let found = store.get_ranges(&path, &[7..9, 0..2]).await?;
//! assert_eq!((&found[0][..], &found[1][..]), (&b"78"[..], &b"01"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it reads
//!
//! | request | reads |
//! |---|---|
//! | `get_ranges` | All ranges are one batch. Ranges that touch or overlap are read once and share memory, as in `LocalFileSystem`. |
//! | `get_range`, `get_opts` with a bounded range of up to 8 MiB | One read, made with the request. |
//! | `get`, other ranges | A stream of chunks of 8 MiB. While the consumer has a chunk, the next is read. |
//! | `head` | None. |
//!
//! - **Threads.** Reads happen on a bounded number of [reader threads](ringmain_backends::ReaderThreads), not on those of
//!   the runtime. So they work in a runtime of one thread, and without a runtime. More requests wait in a queue.
//! - **Cancellation.** A dropped future cancels a read that has not begun. A read that has begun runs to its end in memory
//!   that the reader thread owns.
//! - **Memory.** A result is the memory that the kernel wrote to, without a copy. It returns to a pool when the last
//!   `Bytes` of it is dropped. The pool keeps at most [`recycled_bytes_max`](RingmainStoreBuilder::recycled_bytes_max). A
//!   query that holds more gets other memory, as with `LocalFileSystem`: no read waits for memory.
//! - **Reading ahead.** If a `get_ranges` of 1 MiB or more begins where the last one of its file ended, and data came from
//!   the device meanwhile (for any request of the backend), a part after it is read while the caller works. The part has a
//!   sixteenth more bytes than the request, but at most 16 MiB, and serves only ranges that it has as a whole. A scan is not
//!   read ahead of after a range over 16 MiB, after a part of which it used less than half, and in the first seconds after
//!   the file was written to. The parts of all scans have at most
//!   [`read_ahead_bytes_max`](RingmainStoreBuilder::read_ahead_bytes_max). The part of a scan that was given up is dropped
//!   after 64 further requests.
//! - **Replaced files.** Each request reads one file, even if another takes its path meanwhile. The bytes of
//!   `get_opts` are those of the file whose metadata and `e_tag` it returned.
//! - **Errors** are of the same kinds as those of `LocalFileSystem`. Two cases are errors here that are none there:
//!   a range that ends before it begins, for which `LocalFileSystem` panics, and a file that is cut while it is
//!   streamed, for which its stream never ends.

mod builder;
mod error;
#[cfg(test)]
#[cfg(all(unix, feature = "remote"))]
pub(crate) mod messages;
mod open_object;
mod opened_files;
mod ranges;
mod read_ahead;
mod reads;
mod store;

pub use builder::RingmainStoreBuilder;
pub use store::RingmainStore;
