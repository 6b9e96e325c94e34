//! A batch of samples in one buffer of the engine's pool.
//!
//! The buffer holds everything, so making a batch allocates nothing: the ids of the samples, the
//! place of each field's column, then the columns.
//!
//! ```text
//! | ids | places | column | column | …
//! float, int   | values |
//! array        | arrays, one after the other |
//! bytes, JSON  | offsets, one more than samples | bytes |
//! image        | offsets | mode, width, height | bytes |
//! custom       | offsets | members of the rows | bytes |
//! ```
//!
//! Sizes are known before anything is read, so the buffer is taken once, numbers and offsets are
//! written, and all regions of all samples are one `read_batch` straight to their places.
//!
//! A column is contiguous, and regions lie at any offset, so on `direct` and `uring` most of them
//! cannot go straight: the planner reads whole blocks into a bounce buffer and copies. The device
//! writes to the column itself only if the dataset is aligned and the arrays are whole blocks;
//! columns of such arrays are placed for that. Placing each region where its address agrees with
//! its offset would leave gaps, so a field would no longer be one array over the batch.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::dataset::Dataset;
use super::{Array, BetonDamage, Error, Field, FieldKind, Image, ImageMode, Value};
use crate::DType;
use crate::memory::ClaimedBuffer;

/// The size of an id, an offset, a place or a number in bytes.
pub(super) const WORD: usize = 8;
/// Columns begin at multiples of a cache line.
const COLUMN_ALIGN: usize = 64;

/// The place of a column in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    /// The start of the column: its offsets, if it has some.
    pub(super) at: usize,
    /// The start of the part between offsets and data: the forms of images, or the members of
    /// custom fields.
    pub(super) extra_at: usize,
    pub(super) data_at: usize,
}

/// Returns the number of bytes before the columns.
pub(super) fn head_bytes(dataset: &Dataset, len: usize) -> usize {
    len.saturating_add(2 * dataset.fields.len()).saturating_mul(WORD)
}

impl Column {
    /// Places the column of a field after `start`, for `len` samples.
    pub(super) fn new(dataset: &Dataset, field: usize, start: usize, len: usize) -> Self {
        let up = |at: usize, align| at.checked_next_multiple_of(align).unwrap_or(usize::MAX);
        let kind = dataset.fields[field].kind();
        let align = match kind.array() {
            Some(spec) => array_align(dataset, spec.nbytes()),
            None => COLUMN_ALIGN,
        };
        let at = up(start, align);
        let offsets =
            if has_offsets(kind) { len.saturating_add(1).saturating_mul(WORD) } else { 0 };
        let extra = match kind {
            FieldKind::RgbImage => WORD,
            FieldKind::Custom { .. } => dataset.layout.member_bytes(field),
            _ => 0,
        };
        let extra_at = at.saturating_add(offsets);
        let data_at = up(extra_at.saturating_add(len.saturating_mul(extra)), align);
        Self { at, extra_at, data_at }
    }
}

/// Returns the alignment of an array column. Arrays of whole device blocks are aligned to blocks,
/// so that the device can write them in place.
fn array_align(dataset: &Dataset, nbytes: usize) -> usize {
    let block = dataset.file.alignment().block();
    if nbytes % block == 0 { block.max(COLUMN_ALIGN) } else { COLUMN_ALIGN }
}

pub(super) fn has_offsets(kind: &FieldKind) -> bool {
    !matches!(
        kind,
        FieldKind::Float | FieldKind::Int | FieldKind::NdArray(_) | FieldKind::TorchTensor(_)
    )
}

/// A batch of samples. A field of fixed size is one array over the batch; other fields have
/// offsets. Dropping the batch returns its memory to the engine's pool.
pub struct Batch {
    pub(super) buffer: ClaimedBuffer,
    pub(super) dataset: Arc<Dataset>,
    pub(super) len: usize,
}

/// The arrays of a field as one array of shape `(batch, …)` in C order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrays<'a> {
    /// The type of the elements.
    pub dtype: DType,
    /// The shape of one sample's array.
    pub shape: &'a [usize],
    /// All elements, as the file stores them.
    pub bytes: &'a [u8],
}

/// The values of a field whose values differ in size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blobs<'a> {
    /// The start of each value in `bytes`, then the end of the last: one more entry than samples.
    pub offsets: &'a [u64],
    /// All values, one after the other.
    pub bytes: &'a [u8],
}

impl<'a> Blobs<'a> {
    /// Returns the bytes of one sample; `None` if there is no such sample.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<&'a [u8]> {
        let (start, end) = (*self.offsets.get(at)?, *self.offsets.get(at.checked_add(1)?)?);
        self.bytes.get(start as usize..end as usize)
    }
}

impl Batch {
    /// Returns the number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the batch has no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the ids of the samples, in the order of the batch.
    #[must_use]
    pub fn ids(&self) -> &[u64] {
        self.words(0, self.len)
    }

    /// Returns the fields, in the order of the file.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.dataset.fields
    }

    /// Returns the number of the field with this name.
    pub fn field_index(&self, name: &str) -> Result<usize, Error> {
        self.dataset.field_index(name)
    }

    /// Returns the size of the batch in memory, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    /// Returns the values of a float field; `None` for other fields.
    #[must_use]
    pub fn floats(&self, field: usize) -> Option<&[f64]> {
        let is_float = *self.kind(field)? == FieldKind::Float;
        is_float.then(|| {
            bytemuck::cast_slice(&self.buffer[self.column(field).data_at..][..self.len * WORD])
        })
    }

    /// Returns the values of an int field; `None` for other fields.
    #[must_use]
    pub fn ints(&self, field: usize) -> Option<&[i64]> {
        let is_int = *self.kind(field)? == FieldKind::Int;
        is_int.then(|| {
            bytemuck::cast_slice(&self.buffer[self.column(field).data_at..][..self.len * WORD])
        })
    }

    /// Returns the arrays of an array field as one; `None` for other fields.
    #[must_use]
    pub fn arrays(&self, field: usize) -> Option<Arrays<'_>> {
        let spec = self.kind(field)?.array()?;
        let bytes = &self.buffer[self.column(field).data_at..][..self.len * spec.nbytes()];
        Some(Arrays { dtype: spec.dtype(), shape: spec.shape(), bytes })
    }

    /// Returns the values of a field whose values differ in size: bytes, JSON with its final NUL,
    /// images, custom fields. `None` for other fields.
    #[must_use]
    pub fn blobs(&self, field: usize) -> Option<Blobs<'_>> {
        if !has_offsets(self.kind(field)?) {
            return None;
        }
        let column = self.column(field);
        let offsets = self.words(column.at, self.len + 1);
        let bytes = offsets.last().map_or(0, |end| *end as usize);
        Some(Blobs { offsets, bytes: &self.buffer[column.data_at..][..bytes] })
    }

    /// Returns the ids of the samples and the values of each field, to change them in place:
    /// numbers, arrays one after the other, or the bytes of [`blobs`](Self::blobs).
    ///
    /// ```
    /// use ringmain::Engine;
    /// use ringmain::beton::{BetonReader, BetonWriter, Field, FieldKind};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a.beton");
    /// let fields = [Field::new("n", FieldKind::Int)?, Field::new("text", FieldKind::Bytes)?];
    /// BetonWriter::new(fields).write_indexed(&path, 2, |id, sample| {
    ///     sample.int(id as i64)?.bytes(&b"abc"[id as usize..])?;
    ///     Ok(())
    /// })?;
    /// let mut batch = BetonReader::open(&Engine::new()?, &path)?.read_batch(&[0, 1])?;
    /// let (ids, mut fields) = batch.parts_mut();
    /// fields[0][8..].fill(0);
    /// fields[1].make_ascii_uppercase();
    /// ids[1] = 5;
    /// assert_eq!((batch.ids(), batch.ints(0)), (&[0, 5][..], Some(&[0, 0][..])));
    /// assert_eq!(batch.blobs(1).expect("bytes").bytes, b"ABCBC");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn parts_mut(&mut self) -> (&mut [u64], Vec<&mut [u8]>) {
        let count = self.dataset.fields.len();
        let places: Vec<_> = (0..count).map(|field| self.data_range(field)).collect();
        let (ids, mut rest) = self.buffer.split_at_mut(self.len * WORD);
        let mut passed = ids.len();
        let mut fields = Vec::with_capacity(count);
        for place in places {
            // The places are in ascending order.
            let (_, tail) = rest.split_at_mut(place.start - passed);
            let (data, tail) = tail.split_at_mut(place.len());
            fields.push(data);
            (rest, passed) = (tail, place.end);
        }
        (bytemuck::cast_slice_mut(ids), fields)
    }

    /// Returns the range of the buffer that holds the values of a field.
    fn data_range(&self, field: usize) -> Range<usize> {
        let bytes = match self.dataset.fields[field].kind() {
            FieldKind::Float | FieldKind::Int => self.len * WORD,
            kind => match kind.array() {
                Some(spec) => self.len * spec.nbytes(),
                None => self.blobs(field).map_or(0, |blobs| blobs.bytes.len()),
            },
        };
        let start = self.column(field).data_at;
        start..start + bytes
    }

    /// Returns the value of a field of the sample at place `at` of the batch. Fails if it is JSON that
    /// is not UTF-8.
    ///
    /// # Panics
    /// If there is no such sample in the batch, or no such field.
    pub fn value(&self, at: usize, field: usize) -> Result<Value<'_>, Error> {
        assert!(at < self.len, "there is no sample {at} in a batch of {}", self.len);
        let column = self.column(field);
        let kind = self.dataset.fields[field].kind();
        let blob = || self.blobs(field).and_then(|blobs| blobs.get(at)).unwrap_or_default();
        let word = |start: usize| self.words(start + at * WORD, 1)[0];
        Ok(match kind {
            FieldKind::Float => Value::Float(f64::from_bits(word(column.data_at))),
            FieldKind::Int => Value::Int(word(column.data_at) as i64),
            FieldKind::Bytes => Value::Bytes(blob()),
            FieldKind::NdArray(spec) | FieldKind::TorchTensor(spec) => {
                let bytes = &self.buffer[column.data_at + at * spec.nbytes()..][..spec.nbytes()];
                Value::Array(Array { dtype: spec.dtype(), shape: spec.shape(), bytes })
            }
            FieldKind::Json => Value::Json(
                json_text(blob())
                    .map_err(|damage| self.dataset.damaged(self.ids()[at], field, damage))?,
            ),
            FieldKind::RgbImage => {
                let (mode, width, height) = image_form(word(column.extra_at));
                Value::Image(Image { mode, width, height, bytes: blob() })
            }
            FieldKind::Custom { .. } => {
                let bytes = self.dataset.layout.member_bytes(field);
                let member = &self.buffer[column.extra_at + at * bytes..][..bytes];
                Value::Custom { member, bytes: blob() }
            }
        })
    }

    fn kind(&self, field: usize) -> Option<&FieldKind> {
        self.dataset.fields.get(field).map(Field::kind)
    }

    /// Returns the place of a field's column, from the start and data offsets in the buffer's head.
    fn column(&self, field: usize) -> Column {
        let place = self.words((self.len + 2 * field) * WORD, 2);
        let (at, data_at) = (place[0] as usize, place[1] as usize);
        let offsets = if has_offsets(self.dataset.fields[field].kind()) { self.len + 1 } else { 0 };
        Column { at, extra_at: at + offsets * WORD, data_at }
    }

    fn words(&self, at: usize, count: usize) -> &[u64] {
        bytemuck::cast_slice(&self.buffer[at..at + count * WORD])
    }

    pub(super) fn words_mut(&mut self, at: usize, count: usize) -> &mut [u64] {
        bytemuck::cast_slice_mut(&mut self.buffer[at..at + count * WORD])
    }

    pub(super) fn set_place(&mut self, field: usize, column: Column) {
        let at = (self.len + 2 * field) * WORD;
        self.words_mut(at, 2).copy_from_slice(&[column.at as u64, column.data_at as u64]);
    }
}

/// Packs the mode and size of an image into one word.
pub(super) fn image_word(mode: u8, width: u16, height: u16) -> u64 {
    u64::from(mode) | u64::from(width) << 16 | u64::from(height) << 32
}

fn image_form(word: u64) -> (ImageMode, u16, u16) {
    // Images of other modes are refused before they are read.
    let mode = ImageMode::from_id(word as u8).unwrap_or(ImageMode::Raw);
    (mode, (word >> 16) as u16, (word >> 32) as u16)
}

/// Returns the text without the one NUL that FFCV appends.
fn json_text(bytes: &[u8]) -> Result<&str, BetonDamage> {
    let text = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    std::str::from_utf8(text).map_err(|_| BetonDamage::NotUtf8)
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("len", &self.len)
            .field("fields", &self.dataset.fields.len())
            .field("memory_bytes", &self.memory_bytes())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_mode_and_size_survive_packing() {
        for (mode, width, height) in [(0, 0, 0), (1, u16::MAX, 1), (0, 1, u16::MAX)] {
            let (found, w, h) = image_form(image_word(mode, width, height));
            assert_eq!((found.id(), w, h), (mode, width, height));
        }
    }

    #[test]
    fn json_text_loses_one_final_nul() {
        assert_eq!(json_text(b"{}\0"), Ok("{}"));
        assert_eq!(json_text(b"{}"), Ok("{}"));
        assert_eq!(json_text(b"{}\0\0"), Ok("{}\0"));
        assert_eq!(json_text(b""), Ok(""));
        assert_eq!(json_text(b"\xff\0"), Err(BetonDamage::NotUtf8));
    }
}
