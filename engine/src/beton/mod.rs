//! FFCV's `.beton` datasets, version 2: read through any backend, and written by many threads.
//!
//! A dataset is a list of samples, each with one value for every field. [`BetonReader`] reads
//! samples by id; [`SampleSource`] delivers batches of them, epoch after epoch, while a thread
//! reads ahead; [`BetonWriter`] writes datasets.
//!
//! ```
//! use ringmain::beton::{
//!     ArraySpec, BetonReader, BetonWriter, Field, FieldKind, Order, SampleOptions, Value,
//! };
//! use ringmain::{Engine, Kind};
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("train.beton");
//! let pixels = ArraySpec::new(Kind::U8.into(), &[2, 3])?;
//! let fields =
//!     [Field::new("label", FieldKind::Int)?, Field::new("pixels", FieldKind::NdArray(pixels))?];
//! BetonWriter::new(fields).write_indexed(&path, 100, |id, sample| {
//!     sample.int(id as i64 % 10)?.array(&[id as u8; 6])?;
//!     Ok(())
//! })?;
//!
//! let reader = BetonReader::open(&Engine::new()?, &path)?;
//! assert_eq!(reader.read_sample(42)?.get("label")?, Value::Int(2));
//!
//! let options = SampleOptions::new().batch_size(32);
//! let mut source = options.order(Order::Shuffled { seed: 1 }).open(&reader)?;
//! while let Some(batch) = source.next_batch()? {
//!     // Fields of one size are one array over the batch; others have offsets.
//!     let labels = batch.ints(0).expect("a field of ints");
//!     let pixels = batch.arrays(1).expect("a field of arrays");
//!     assert_eq!(pixels.bytes.len(), labels.len() * 6);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The file
//! The parts of a file, in order: a [`Header`], a descriptor of each [`Field`], one row of metadata
//! for each sample ([`RowLayout`]), pages with the data that does not fit in a row, and a table of
//! all regions of the pages ([`Allocation`]). `docs/formats.md` has the byte layout.
//!
//! # Memory
//! A reader holds the metadata and the allocation table. A batch is a buffer of the engine's pool,
//! and dropping the batch returns it: a steady loop allocates nothing. [`MemoryManager`] chooses the
//! memory for data on its way to a batch.
//!
//! # Damage
//! Opening a file fails if the file as a whole is damaged. Reading a damaged sample fails with
//! [`Error::Format`] and the sample's [`Item`](crate::Item); the other samples stay readable.

// | file | content |
// |---|---|
// | `header.rs`, `field.rs`, `array.rs`, `row.rs`, `alloc.rs` | the bytes of the format, both ways |
// | `handler.rs` | fields that only the caller knows |
// | `dataset.rs`, `table.rs`, `options.rs` | an opened file, and the regions by their pointers |
// | `beton_reader.rs`, `sample.rs`, `value.rs` | samples by their ids |
// | `images/`, `frame.rs` | the images of a batch; the frame header of a JPEG |
// | `batch.rs`, `fill.rs` | a batch in its buffer; from ids to reads |
// | `source.rs` | the source and its options |
// | `sample_set.rs`, `sample_batch_reader.rs` | samples as epochs see them |
// | `memory.rs`, `os_cache.rs`, `page_schedule.rs`, `pager.rs` | memory managers |

mod alloc;
mod array;
mod batch;
mod beton_reader;
mod damage;
mod dataset;
mod field;
mod fill;
mod frame;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod handler;
mod header;
#[cfg(feature = "jpeg")]
mod images;
mod memory;
mod options;
mod os_cache;
mod page_schedule;
mod pager;
mod row;
mod sample;
mod sample_batch_reader;
mod sample_set;
mod source;
mod table;
mod value;
mod writer;

pub use alloc::{ALLOCATION_LEN, Allocation};
pub use array::ArraySpec;
pub use batch::{Arrays, Batch, Blobs};
pub use beton_reader::BetonReader;
pub use damage::BetonDamage;
pub use field::{FIELD_LEN, Field, FieldKind};
pub use fill::Damaged;
pub use handler::{FieldHandler, Handlers, MemberRegion};
pub use header::{HEADER_LEN, Header, PAGE_BYTES_DEFAULT, VERSION};
#[cfg(feature = "jpeg")]
pub use images::{Crop, ImageDecoder, ImageForm, PixelLayout, PixelType};
pub use memory::MemoryManager;
pub use options::ReaderOptions;
pub use row::{ImageMode, Member, RowLayout};
pub use sample::{MappedSamples, Sample};
pub use source::{SampleOptions, SampleSource};
pub use value::{Array, Image, Value};

use crate::Error;
pub use crate::epochs::{EpochState, Order};
pub use writer::{
    BetonWriter, CustomRegion, RegionAlignment, SampleBuilder, SampleError, WriteProgress,
    WriteReport,
};
