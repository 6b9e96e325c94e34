//! A batch of rows, in one buffer of the engine's pool.
//!
//! The buffer holds the row ids, then the rows. A batch that is to be converted has the values of
//! the file behind the place where the rows will stand, far enough that the conversion does not
//! overtake itself:
//!
//! ```text
//! f32   | ids | rows as the file has them |
//! f64   | ids | rows, from the values at the end | values of the file |
//! ```
//!
//! Rows as the file has them are placed so that address and offset agree modulo the alignment of
//! the device, and the device writes straight to where they are delivered.

use std::fmt;
use std::ops::Range;

use ringmain_backends::{Buffer, BufferPool};

use super::convert::{to_native, widen_in_place};
use super::header::VALUE_BYTES;

/// The type in which values are delivered. They are stored as `f32`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Delivered {
    /// Converted to `f64`, which loses nothing.
    #[default]
    F64,
    /// As they are: no conversion and no copy.
    F32,
}

impl Delivered {
    /// The bytes of a value.
    #[must_use]
    pub fn value_bytes(self) -> usize {
        match self {
            Self::F64 => size_of::<f64>(),
            Self::F32 => size_of::<f32>(),
        }
    }
}

/// Rows begin at a multiple of this, where nothing else is asked: the line of a cache.
const ROWS_ALIGN: usize = 64;
/// The bytes of a row id.
const ID_BYTES: usize = 8;

/// Some rows and their ids. The memory goes back to the engine's pool when the batch is dropped.
///
/// ```
/// use ringmain::Engine;
/// use ringmain::shards::{Delivered, ShardOptions, encode_shard_bytes};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("a.shard");
/// std::fs::write(&path, encode_shard_bytes(&[1.0f32, 2.0, 3.0, 4.0], 2)?)?;
///
/// let engine = Engine::new()?;
/// let mut source = ShardOptions::new().delivered(Delivered::F32).open(&engine, [&path])?;
/// let batch = source.next_batch()?.expect("two rows");
/// assert_eq!(batch.row_ids(), [0, 1]);
/// assert_eq!(batch.rows_f32(), Some(&[1.0, 2.0, 3.0, 4.0][..]));
/// assert_eq!(batch.rows_f64(), None); // they were asked for as f32
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RowBatch {
    buffer: Buffer,
    len: usize,
    width: usize,
    delivered: Delivered,
    rows_at: usize,
    raw: Option<Raw>,
}

/// Where the values of the file are to be read to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raw {
    /// The first value.
    at: usize,
    /// So many bytes before it can be read with it.
    lead: usize,
}

/// How a batch is to be laid out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) len: usize,
    pub(super) width: usize,
    pub(super) delivered: Delivered,
    /// Whether the values of the file are read into the batch, and not converted on the way.
    pub(super) holds_raw: bool,
    /// What the device wants addresses and offsets to be multiples of.
    pub(super) align: usize,
}

impl Shape {
    fn values(&self) -> usize {
        self.len.saturating_mul(self.width)
    }

    /// The memory of a batch.
    pub(super) fn bytes(&self) -> usize {
        let (_, _, end) = self.places(self.align - 1);
        end
    }

    /// Where the rows, the read and the end of memory are, for values whose offset in the file is
    /// `lead` more than a multiple of the alignment.
    fn places(&self, lead: usize) -> (usize, usize, usize) {
        let raw_bytes = self.values().saturating_mul(VALUE_BYTES);
        let up = |bytes: usize, align: usize| {
            bytes.checked_next_multiple_of(align.max(ROWS_ALIGN)).unwrap_or(usize::MAX)
        };
        let first = up(self.len.saturating_mul(ID_BYTES), self.align);
        // The device may write whole blocks, a little more than is wanted.
        let read_bytes = up(raw_bytes.saturating_add(lead), self.align);
        match (self.delivered, self.holds_raw) {
            (Delivered::F32, _) => (first + lead, first, first.saturating_add(read_bytes)),
            (Delivered::F64, true) => {
                let read_at = up(first.saturating_add(raw_bytes), self.align);
                (first, read_at, read_at.saturating_add(read_bytes))
            }
            (Delivered::F64, false) => {
                (first, first, first.saturating_add(raw_bytes.saturating_mul(2)))
            }
        }
    }
}

impl RowBatch {
    /// A batch with unspecified contents, for values that begin at `offset` in the file.
    pub(super) fn take(
        pool: &BufferPool,
        shape: Shape,
        offset: u64,
    ) -> Result<Self, ringmain_backends::Error> {
        // An alignment is a small power of two, or 1.
        let lead = if shape.holds_raw { (offset % shape.align as u64) as usize } else { 0 };
        let (rows_at, read_at, end) = shape.places(lead);
        let raw = shape.holds_raw.then_some(Raw { at: read_at + lead, lead });
        let Shape { len, width, delivered, .. } = shape;
        let buffer = pool.try_take(end)?;
        Ok(Self { buffer, len, width, delivered, rows_at, raw })
    }

    /// How many rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True for no rows, which is never delivered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The columns of a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// The type of the values.
    #[must_use]
    pub fn delivered(&self) -> Delivered {
        self.delivered
    }

    /// The id of each row: its place in the concatenation of all shards.
    #[must_use]
    pub fn row_ids(&self) -> &[u64] {
        bytemuck::cast_slice(&self.buffer[..self.len * ID_BYTES])
    }

    /// The values row by row, if they were asked for as `f32`.
    #[must_use]
    pub fn rows_f32(&self) -> Option<&[f32]> {
        (self.delivered == Delivered::F32).then(|| bytemuck::cast_slice(self.row_bytes()))
    }

    /// The values row by row, if they were asked for as `f64`.
    #[must_use]
    pub fn rows_f64(&self) -> Option<&[f64]> {
        (self.delivered == Delivered::F64).then(|| bytemuck::cast_slice(self.row_bytes()))
    }

    /// The values as an array of rows and columns, if they were asked for as `f32`.
    #[cfg(feature = "ndarray")]
    #[must_use]
    pub fn view_f32(&self) -> Option<ndarray::ArrayView2<'_, f32>> {
        ndarray::ArrayView2::from_shape((self.len, self.width), self.rows_f32()?).ok()
    }

    /// The values as an array of rows and columns, if they were asked for as `f64`.
    ///
    /// ```
    /// use ringmain::{Engine, shards::{ShardSource, encode_shard_bytes}};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a.shard");
    /// std::fs::write(&path, encode_shard_bytes(&[1.0f32, 2.0, 3.0, 4.0], 2)?)?;
    /// let mut source = ShardSource::open(&Engine::new()?, [&path])?;
    /// let batch = source.next_batch()?.expect("two rows");
    /// let rows = batch.view_f64().expect("f64 unless asked otherwise");
    /// assert_eq!(rows.column(1).sum(), 6.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "ndarray")]
    #[must_use]
    pub fn view_f64(&self) -> Option<ndarray::ArrayView2<'_, f64>> {
        ndarray::ArrayView2::from_shape((self.len, self.width), self.rows_f64()?).ok()
    }

    /// The values row by row, as the bytes that they are in memory.
    #[must_use]
    pub fn row_bytes(&self) -> &[u8] {
        let bytes = self.len * self.width * self.delivered.value_bytes();
        &self.buffer[self.rows_at..][..bytes]
    }

    pub(super) fn row_ids_mut(&mut self) -> &mut [u64] {
        bytemuck::cast_slice_mut(&mut self.buffer[..self.len * ID_BYTES])
    }

    /// The memory to read the file's values to, with `lead` bytes before the first value and all
    /// there is after the last; nothing if they are converted on the way.
    pub(super) fn raw_mut(&mut self) -> (usize, &mut [u8]) {
        match self.raw {
            Some(Raw { at, lead }) => (lead, &mut self.buffer[at - lead..]),
            None => (0, &mut []),
        }
    }

    /// The memory of the rows as they are delivered, for values that are converted on the way.
    pub(super) fn rows_f64_mut(&mut self) -> &mut [f64] {
        let range = self.rows_at..self.rows_at + self.len * self.width * size_of::<f64>();
        bytemuck::cast_slice_mut(&mut self.buffer[range])
    }

    /// Makes the values of the file the values to be delivered.
    pub(super) fn convert(&mut self) {
        let Some(raw) = self.raw.take() else { return };
        let values = self.len * self.width;
        match self.delivered {
            Delivered::F64 => widen_in_place(&mut self.buffer, raw.at, self.rows_at, values),
            Delivered::F32 => {
                let range: Range<usize> = raw.at..raw.at + values * VALUE_BYTES;
                to_native(&mut self.buffer[range]);
            }
        }
    }
}

impl fmt::Debug for RowBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowBatch")
            .field("len", &self.len)
            .field("width", &self.width)
            .field("delivered", &self.delivered)
            .finish_non_exhaustive()
    }
}
