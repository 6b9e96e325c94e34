//! Writing datasets.
//!
//! | file | noun |
//! |---|---|
//! | `builder.rs` | the writer and its options |
//! | `sample.rs`, `jpeg.rs` | a sample while it is made |
//! | `page.rs`, `allocator.rs` | a page while it is filled; which page is whose |
//! | `desk.rs`, `order.rs` | where a worker packs its samples; how they stay in order |
//! | `feed.rs`, `crew.rs` | who makes which samples; the threads |
//! | `dataset.rs` | the file |

mod allocator;
mod builder;
mod crew;
mod dataset;
mod desk;
mod feed;
mod jpeg;
mod order;
mod page;
mod sample;

pub use builder::{BetonWriter, RegionAlignment, WriteProgress, WriteReport};
pub use sample::{CustomRegion, SampleBuilder, SampleError};
