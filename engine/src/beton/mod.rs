//! FFCV's `.beton` datasets, version 2.
//!
//! A dataset is a number of samples, each with one value for every field. The file has, one after
//! the other: a [`Header`], a descriptor of each [`Field`], one row of metadata for each sample
//! ([`RowLayout`]), pages with what does not fit in a row, and a table of all regions of the pages
//! ([`Allocation`]). `docs/formats.md` has the bytes.

mod alloc;
mod array;
mod batch;
mod dataset;
mod epoch_options;
mod error;
mod field;
mod fill;
mod handler;
mod header;
#[cfg(feature = "jpeg")]
mod jpeg;
mod memory;
mod options;
mod os_cache;
mod page_schedule;
mod pager;
mod reader;
mod row;
mod sample;
mod schedule;
mod source;
mod state;
mod table;
mod traversal;
mod value;
mod writer;

pub use alloc::{ALLOCATION_LEN, Allocation};
pub use array::ArraySpec;
pub use batch::{Arrays, Batch, Blobs};
pub use epoch_options::SampleOptions;
pub use error::{BetonError, Damage};
pub use field::{ARGUMENTS_LEN, FIELD_LEN, Field, FieldKind, NAME_LEN};
pub use fill::Damaged;
pub use handler::{FieldHandler, Handlers, MemberRegion};
pub use header::{HEADER_LEN, Header, PAGE_BYTES_DEFAULT, PAGE_BYTES_MIN, VERSION};
pub use memory::MemoryManager;
pub use options::ReaderOptions;
pub use reader::BetonReader;
pub use row::{ImageMode, Member, RowLayout};
pub use sample::{MappedSample, Sample};
pub use source::SampleSource;
pub use state::SampleState;
pub use traversal::Traversal;
pub use value::{Array, Image, Value};

pub use crate::partition::Partition;
pub use writer::{
    BetonWriter, CustomRegion, RegionAlignment, SampleBuilder, SampleError, WriteProgress,
    WriteReport,
};
