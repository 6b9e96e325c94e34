//! Writes datasets.
//!
//! | file | content |
//! |---|---|
//! | `builder.rs` | the writer and its options |
//! | `sample.rs`, `jpeg.rs` | a sample while it is made |
//! | `page.rs`, `allocator.rs` | a page while it is filled; the assignment of pages to workers |
//! | `packer.rs`, `ordered_page.rs` | packs a worker's samples; keeps them in order |
//! | `feed.rs`, `crew.rs` | divides the samples into chunks; the worker threads |
//! | `dataset_file.rs` | the file |

mod allocator;
mod builder;
mod crew;
mod dataset_file;
mod feed;
mod jpeg;
mod ordered_page;
mod packer;
mod page;
mod sample;

pub use builder::{BetonWriter, RegionAlignment, WriteProgress, WriteReport};
pub use sample::{CustomRegion, SampleBuilder, SampleError};
