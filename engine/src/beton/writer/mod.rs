//! Writes datasets.
//!
//! | file | content |
//! |---|---|
//! | `builder.rs` | the writer and its options |
//! | `sample.rs` | a sample while it is made |
//! | `page.rs`, `allocator.rs` | a page while it is filled; the assignment of pages to workers |
//! | `packer.rs`, `ordered_page.rs` | packs a worker's samples; keeps them in order |
//! | `feed.rs`, `sample_writers.rs` | divides the samples into chunks; the worker threads |
//! | `dataset_file.rs` | the file |
//!
//! **Pages.** Every worker fills its own page, which it claims with one atomic addition when its
//! first sample is complete. Values are written straight to the page. When a value does not fit,
//! the page ends with its last complete sample, and the values of the unfinished sample move to the
//! front of the next page. So the function that makes the sample is not called again, and all
//! regions of a sample are in one page. A sample that is larger than a page is refused, with its
//! full size. Parts of 1 MiB are written as soon as they are full, while they are in the
//! processor's cache, and the device is asked to begin (`sync_file_range`).
//!
//! **In order.** With `deterministic`, a worker's page only holds its samples until their turn.
//! Chunks of samples are numbered. In turn, each chunk copies its samples to the one page of the
//! file that is being filled. Workers make samples before their turn and write full pages after it,
//! in parallel. A worker whose page is full before its chunk ends takes its turn early and keeps
//! it. Chunks are half a page by the mean size of the samples so far, so this is rare; the division
//! into chunks does not change the file. Unordered writing needs one page per worker; ordered
//! writing needs two per worker plus one.
//!
//! **The number of samples** must be known in advance, because rows stand before the pages. An
//! iterator that yields more or fewer is an error. (FFCV reads a stream twice to count it first.)
//!
//! **Rows and table.** Rows are written to their places by chunk. The table belongs behind the last
//! page, which is known only at the end, so it waits in a second temporary file, and memory does
//! not grow with the samples. The table is sorted by sample with `deterministic`, and by chunk
//! without.
//!
//! **Compatibility with FFCV.** FFCV finds the size of a region by a binary search for its offset.
//! Its own writer gives an empty region the offset of the next one, so its reader may take the
//! wrong size for either. Ringmain gives an empty region one byte, so no two regions begin at the
//! same offset. It refuses arrays without axes, on which FFCV's reader fails, and duplicate names.
//! It reads the width and height of a JPEG from the JPEG, since FFCV decodes into a buffer of the
//! size in the row. The last page is as long as the others (its end is a hole), and the table
//! begins behind it; without regions the table begins behind the rows. `scripts/check-ffcv.sh`
//! reads files of Ringmain with FFCV's Reader and Loader, and rewrites files of FFCV.
//!
//! **No incomplete files.** `OutputFile` of the backends writes under a temporary name, syncs the
//! file, renames it and syncs the directory. The header is written last. An error or a panic of one
//! worker stops the others at their next sample or turn, and the caller gets that error. With
//! `direct` pages go past the page cache, their ends padded with zeros to the device's unit;
//! header, rows and table do not share a block with them.

mod allocator;
mod builder;

mod dataset_file;
mod feed;
mod ordered_page;
mod packer;
mod page;
mod sample;
mod sample_writers;

pub use builder::{BetonWriter, RegionAlignment, WriteProgress, WriteReport};
pub use sample::{CustomRegion, SampleBuilder, SampleError};
