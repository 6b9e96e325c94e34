//! A batch of rows in a buffer of the engine's pool.
//!
//! The buffer begins with the rows. If the values must be converted, the values of the file lie in the
//! first half of the rows' memory, and the conversion begins at their end:
//!
//! ```text
//! f32   | lead | rows as the file has them | ids |
//! f64   | lead | values of the file |            |    before
//!       | rows                            | ids |    after
//! ```
//!
//! Values are placed so that address and offset agree modulo the alignment of the device, which
//! then writes straight to their final place. All batches of a source take equal memory, so each buffer
//! fits the next batch. Only a batch of less than half that size, such as one of a small shard, takes less.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use ringmain_backends::{Alignment, Buffer};

use super::Error;
use super::convert::{to_native, widen_in_place};
use super::header::VALUE_BYTES;
use super::writer::{RowValue, whole_rows};
use crate::memory::{ClaimedBuffer, Need, Share};

/// The type of the delivered values. The file stores `f32`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum RowType {
    /// Values are converted to `f64`, which is exact.
    #[default]
    F64,
    /// Values are delivered as stored, without conversion or copy.
    F32,
}

impl RowType {
    /// Returns the size of a value in bytes.
    fn value_bytes(self) -> usize {
        match self {
            Self::F64 => size_of::<f64>(),
            Self::F32 => size_of::<f32>(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
        }
    }
}

/// Rows begin at least at multiples of a cache line.
const ROWS_ALIGN: usize = 64;
/// The size of a row id in bytes.
const ID_BYTES: usize = 8;

/// Rows and their ids. Dropping the batch returns its memory to the engine's pool.
///
/// ```
/// use ringmain::Engine;
/// use ringmain::shards::{RowType, ShardOptions, encode_shard_bytes};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("a.shard");
/// std::fs::write(&path, encode_shard_bytes(&[1.0f32, 2.0, 3.0, 4.0], 2)?)?;
///
/// let engine = Engine::new()?;
/// let mut source = ShardOptions::new().row_type(RowType::F32).open(&engine, [&path])?;
/// let batch = source.next_batch()?.expect("two rows");
/// assert_eq!(batch.row_ids(), [0, 1]);
/// assert_eq!(batch.rows_f32(), Some(&[1.0, 2.0, 3.0, 4.0][..]));
/// assert_eq!(batch.rows_f64(), None); // the type is f32
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RowBatch {
    buffer: ClaimedBuffer,
    /// The offset of the row ids in the buffer.
    ids_at: usize,
    len: usize,
    width: usize,
    row_type: RowType,
    rows_at: usize,
    /// The end of the part of the buffer that the rows, and reading them, need.
    rows_end: usize,
    /// The number of extra bytes read before the values; `None` once the values are converted.
    raw_lead: Option<usize>,
}

/// The layout of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchShape {
    pub(super) len: usize,
    pub(super) width: usize,
    pub(super) row_type: RowType,
    /// Whether the values of the file are read into the batch, rather than converted on the way.
    pub(super) holds_raw: bool,
    /// The alignment that the device needs for addresses and offsets.
    pub(super) alignment: Alignment,
}

impl BatchShape {
    fn values(&self) -> usize {
        self.len.saturating_mul(self.width)
    }

    /// Returns the size of a batch in bytes, wherever its values begin in the file.
    pub(super) fn bytes_max(&self) -> usize {
        self.bytes(self.rows_end(self.alignment.lead_bytes_max()))
    }

    /// Returns the bytes that the rows, and reading them, need, if the offset of the values is
    /// `lead` bytes past a multiple of the alignment.
    fn rows_end(&self, lead: usize) -> usize {
        let raw_bytes = self.values().saturating_mul(VALUE_BYTES);
        let up = |bytes: usize| {
            bytes
                .checked_next_multiple_of(self.alignment.block().max(ROWS_ALIGN))
                .unwrap_or(usize::MAX)
        };
        let widened = self.values().saturating_mul(size_of::<f64>());
        // The device may write whole blocks, a little more than the values.
        match (self.row_type, self.holds_raw) {
            (RowType::F32, _) => up(raw_bytes.saturating_add(lead)),
            (RowType::F64, true) => widened.max(up(raw_bytes.saturating_add(lead))),
            (RowType::F64, false) => widened,
        }
    }

    /// Returns the bytes that rows and ids need together.
    fn bytes(&self, rows_end: usize) -> usize {
        ids_at(rows_end).saturating_add(self.len.saturating_mul(ID_BYTES))
    }
}

fn ids_at(rows_end: usize) -> usize {
    rows_end.checked_next_multiple_of(ID_BYTES).unwrap_or(usize::MAX)
}

impl RowBatch {
    /// Makes a batch from rows and ids for sources that do not read shards. The values are copied to
    /// memory outside any engine, and keep their type.
    ///
    /// ```
    /// use ringmain::shards::{RowType, RowBatch};
    /// let batch = RowBatch::from_rows(&[7, 9], &[1.0f32, 2.0, 3.0, 4.0], 2)?;
    /// assert_eq!((batch.row_ids(), batch.len()), (&[7, 9][..], 2));
    /// assert_eq!(batch.row_type(), RowType::F32);
    /// # Ok::<(), ringmain::Error>(())
    /// ```
    pub fn from_rows<T: RowValue>(
        row_ids: &[u64],
        values: &[T],
        width: usize,
    ) -> Result<Self, Error> {
        let path = || PathBuf::from("(in memory)");
        let invalid = |reason| Error::InvalidItem { path: path(), item: None, reason };
        let rows = whole_rows(values.len() as u64, width).map_err(invalid)?;
        if rows != row_ids.len() as u64 {
            return Err(invalid(format!("there are {rows} rows, but {} ids", row_ids.len())));
        }
        let (row_type, bytes) = (T::ROW_TYPE, bytemuck::cast_slice::<T, u8>(values));
        let ids_at = ids_at(bytes.len());
        let mut buffer = Buffer::unpooled(ids_at.saturating_add(size_of_val(row_ids)))
            .map_err(|error| Error::backend(&path(), error))?;
        buffer[..bytes.len()].copy_from_slice(bytes);
        buffer[ids_at..].copy_from_slice(bytemuck::cast_slice(row_ids));
        Ok(Self {
            ids_at,
            len: row_ids.len(),
            width,
            row_type,
            rows_at: 0,
            rows_end: bytes.len(),
            raw_lead: None,
            buffer: buffer.into(),
        })
    }

    /// Takes memory for a batch whose values begin at `offset` in the file. Its contents are
    /// unspecified.
    pub(super) fn take(
        share: &Arc<Share>,
        need: Need,
        shape: BatchShape,
        offset: u64,
    ) -> Result<Self, ringmain_backends::Error> {
        let lead = if shape.holds_raw { shape.alignment.position(0, offset) } else { 0 };
        let rows_end = shape.rows_end(lead);
        let buffer = share.take(shape.bytes(rows_end), need)?;
        let BatchShape { len, width, row_type, .. } = shape;
        Ok(Self {
            buffer,
            ids_at: ids_at(rows_end),
            len,
            width,
            row_type,
            rows_at: if row_type == RowType::F32 { lead } else { 0 },
            rows_end,
            raw_lead: shape.holds_raw.then_some(lead),
        })
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are no rows. Sources never deliver such a batch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of columns of a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the type of the values.
    #[must_use]
    pub fn row_type(&self) -> RowType {
        self.row_type
    }

    /// Returns the id of each row: its place in the concatenation of all shards.
    #[must_use]
    pub fn row_ids(&self) -> &[u64] {
        bytemuck::cast_slice(&self.buffer[self.ids_at..][..self.len * ID_BYTES])
    }

    /// Returns the values row by row. They have the [`RowType`] of the source: `f64`, unless its options
    /// chose another. Fails with [`Error::ElementType`] if that type is not `T`.
    ///
    /// ```
    /// use ringmain::shards::RowBatch;
    /// let batch = RowBatch::from_rows(&[7], &[1.0f32, 2.0], 2)?;
    /// assert_eq!(batch.rows::<f32>()?, [1.0, 2.0]);
    /// let message = batch.rows::<f64>().unwrap_err().to_string();
    /// assert!(message.contains("`row_type(RowType::F64)`"), "{message}");
    /// # Ok::<(), ringmain::Error>(())
    /// ```
    pub fn rows<T: RowValue>(&self) -> Result<&[T], Error> {
        let wanted = T::ROW_TYPE;
        if self.row_type == wanted {
            return Ok(bytemuck::cast_slice(self.row_bytes()));
        }
        let (name, stored) = (wanted.name(), self.row_type.name().to_owned());
        let reason =
            format!("they are not {name}; open the source with `row_type(RowType::{wanted:?})`");
        Err(Error::ElementType { path: None, item: None, stored, reason })
    }

    /// Returns the values row by row, if their type is `f32`.
    #[must_use]
    pub fn rows_f32(&self) -> Option<&[f32]> {
        (self.row_type == RowType::F32).then(|| bytemuck::cast_slice(self.row_bytes()))
    }

    /// Returns the values row by row, if their type is `f64`.
    #[must_use]
    pub fn rows_f64(&self) -> Option<&[f64]> {
        (self.row_type == RowType::F64).then(|| bytemuck::cast_slice(self.row_bytes()))
    }

    /// Returns the values as a two-dimensional array, if their type is `f32`.
    #[cfg(feature = "ndarray")]
    #[must_use]
    pub fn view_f32(&self) -> Option<ndarray::ArrayView2<'_, f32>> {
        ndarray::ArrayView2::from_shape((self.len, self.width), self.rows_f32()?).ok()
    }

    /// Returns the values as a two-dimensional array, if their type is `f64`.
    ///
    /// ```
    /// use ringmain::{Engine, shards::{ShardSource, encode_shard_bytes}};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a.shard");
    /// std::fs::write(&path, encode_shard_bytes(&[1.0f32, 2.0, 3.0, 4.0], 2)?)?;
    /// let mut source = ShardSource::open(&Engine::new()?, [&path])?;
    /// let batch = source.next_batch()?.expect("two rows");
    /// let rows = batch.view_f64().expect("f64 is the default");
    /// assert_eq!(rows.column(1).sum(), 6.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "ndarray")]
    #[must_use]
    pub fn view_f64(&self) -> Option<ndarray::ArrayView2<'_, f64>> {
        ndarray::ArrayView2::from_shape((self.len, self.width), self.rows_f64()?).ok()
    }

    /// Returns the values row by row, as bytes in memory order.
    #[must_use]
    pub fn row_bytes(&self) -> &[u8] {
        let bytes = self.len * self.width * self.row_type.value_bytes();
        &self.buffer[self.rows_at..][..bytes]
    }

    pub(super) fn row_ids_mut(&mut self) -> &mut [u64] {
        bytemuck::cast_slice_mut(&mut self.buffer[self.ids_at..][..self.len * ID_BYTES])
    }

    /// Returns the values and the ids, to change them in place, for example to normalise.
    ///
    /// ```
    /// use ringmain::shards::RowBatch;
    /// let mut batch = RowBatch::from_rows(&[7], &[1.0f32, 2.0], 2)?;
    /// let (rows, ids) = batch.parts_mut();
    /// rows[4..].fill(0);
    /// ids[0] = 9;
    /// assert_eq!((batch.row_ids(), batch.rows_f32()), (&[9][..], Some(&[1.0, 0.0][..])));
    /// # Ok::<(), ringmain::Error>(())
    /// ```
    #[must_use]
    pub fn parts_mut(&mut self) -> (&mut [u8], &mut [u64]) {
        let bytes = self.len * self.width * self.row_type.value_bytes();
        let (rows, ids) = self.buffer.split_at_mut(self.ids_at);
        let ids = bytemuck::cast_slice_mut(&mut ids[..self.len * ID_BYTES]);
        (&mut rows[self.rows_at..][..bytes], ids)
    }

    /// Returns the memory to read the file's values into, with `lead` bytes before the first value
    /// and all memory after the last. It is empty if the values are converted on the way.
    pub(super) fn raw_mut(&mut self) -> (usize, &mut [u8]) {
        match self.raw_lead {
            Some(lead) => (lead, &mut self.buffer[..self.rows_end]),
            None => (0, &mut []),
        }
    }

    /// Returns the memory of the rows, for values that are converted on the way.
    pub(super) fn rows_f64_mut(&mut self) -> &mut [f64] {
        let range = self.rows_at..self.rows_at + self.len * self.width * size_of::<f64>();
        bytemuck::cast_slice_mut(&mut self.buffer[range])
    }

    /// Converts the values of the file to the values to deliver.
    pub(super) fn convert(&mut self) {
        let Some(lead) = self.raw_lead.take() else { return };
        let values = self.len * self.width;
        match self.row_type {
            RowType::F64 => widen_in_place(&mut self.buffer[..self.rows_end], lead, values),
            RowType::F32 => to_native(&mut self.buffer[lead..][..values * VALUE_BYTES]),
        }
    }
}

impl fmt::Debug for RowBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowBatch")
            .field("len", &self.len)
            .field("width", &self.width)
            .field("row_type", &self.row_type)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::*;

    #[test]
    fn types_of_values_are_written_by_name() {
        for (row_type, json) in [(RowType::F32, "\"f32\""), (RowType::F64, "\"f64\"")] {
            assert_eq!(serde_json::to_string(&row_type).unwrap(), json);
            assert_eq!(serde_json::from_str::<RowType>(json).unwrap(), row_type);
        }
    }
}
