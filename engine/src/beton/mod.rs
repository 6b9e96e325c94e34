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
mod error;
mod field;
mod fill;
mod handler;
mod header;
mod options;
mod reader;
mod row;
mod sample;
mod table;
mod value;

pub use alloc::{ALLOCATION_LEN, Allocation};
pub use array::ArraySpec;
pub use batch::{Arrays, Batch, Blobs};
pub use error::{BetonError, Damage};
pub use field::{ARGUMENTS_LEN, FIELD_LEN, Field, FieldKind, NAME_LEN};
pub use handler::{FieldHandler, Handlers, MemberRegion};
pub use header::{HEADER_LEN, Header, PAGE_BYTES_DEFAULT, PAGE_BYTES_MIN, VERSION};
pub use options::ReaderOptions;
pub use reader::BetonReader;
pub use row::{ImageMode, Member, RowLayout};
pub use sample::{MappedSample, Sample};
pub use value::{Array, Image, Value};
