//! Writes shards.

use std::path::{Path, PathBuf};

use ringmain_backends::OutputFile;

use super::Error;
use super::batch::RowType;
use super::header::{HEADER_LEN, ShardHeader, VALUE_BYTES};

/// Values are collected up to this size before they are written.
const BUFFER_BYTES: usize = 1 << 20;

mod sealed {
    use super::RowType;

    /// A value in the form that a shard stores.
    pub trait Stored: bytemuck::Pod {
        /// The type of a batch of such values.
        const ROW_TYPE: RowType;

        fn stored(self) -> f32;
    }
}

/// A value of a row: `f32`, or `f64`, which is rounded to the nearest `f32` when it is written to a shard.
pub trait RowValue: sealed::Stored {}

impl sealed::Stored for f32 {
    const ROW_TYPE: RowType = RowType::F32;

    fn stored(self) -> f32 {
        self
    }
}

impl sealed::Stored for f64 {
    const ROW_TYPE: RowType = RowType::F64;

    fn stored(self) -> f32 {
        self as f32
    }
}

impl RowValue for f32 {}
impl RowValue for f64 {}

/// Returns a whole shard as bytes, given rows of `width` values, one after the other.
///
/// ```
/// let bytes = ringmain::shards::encode_shard_bytes(&[1.0f64, 2.0], 1)?;
/// assert_eq!(bytes.len(), 32 + 2 * 4);
/// # Ok::<(), ringmain::Error>(())
/// ```
pub fn encode_shard_bytes<T: RowValue>(values: &[T], width: usize) -> Result<Vec<u8>, Error> {
    let path = PathBuf::from("(in memory)");
    let invalid = |reason| Error::InvalidItem { path, item: None, reason };
    let rows = whole_rows(values.len() as u64, width).map_err(invalid)?;
    let header = ShardHeader { rows, width: width as u64 };
    let mut bytes = Vec::with_capacity(HEADER_LEN + values.len() * VALUE_BYTES);
    bytes.extend_from_slice(&header.to_bytes());
    push_values(values, &mut bytes);
    Ok(bytes)
}

/// Returns a whole shard as bytes, given the rows of an array.
///
/// ```
/// use ndarray::array;
/// use ringmain::shards::{encode_shard_array, encode_shard_bytes};
/// let turned = array![[1.0f64, 3.0], [2.0, 4.0]].reversed_axes();
/// assert_eq!(encode_shard_array(turned.view())?, encode_shard_bytes(&[1.0f32, 2.0, 3.0, 4.0], 2)?);
/// # Ok::<(), ringmain::Error>(())
/// ```
#[cfg(feature = "ndarray")]
pub fn encode_shard_array<T: RowValue>(rows: ndarray::ArrayView2<'_, T>) -> Result<Vec<u8>, Error> {
    let values: Vec<T> = rows.iter().copied().collect();
    encode_shard_bytes(&values, rows.ncols())
}

/// Returns the number of rows, or a message that says what is wrong.
pub(super) fn whole_rows(values: u64, width: usize) -> Result<u64, String> {
    if width == 0 {
        return Err("rows must have at least one column".into());
    }
    if values % width as u64 != 0 {
        return Err(format!("{values} values are not a whole number of rows of {width}"));
    }
    Ok(values / width as u64)
}

fn push_values<T: RowValue>(values: &[T], bytes: &mut Vec<u8>) {
    let start = bytes.len();
    bytes.resize(start + values.len() * VALUE_BYTES, 0);
    for (place, value) in bytes[start..].chunks_exact_mut(VALUE_BYTES).zip(values) {
        place.copy_from_slice(&value.stored().to_le_bytes());
    }
}

/// Writes a shard piece by piece.
///
/// Until [`finish`](Self::finish) the file has a temporary name in the same directory, which
/// `open_dir` ignores. `finish` completes the header, waits until all data is on the device, and
/// only then renames the file: after a crash there is the whole shard or none. Dropping an
/// unfinished writer removes its file.
///
/// ```
/// use ringmain::shards::ShardWriter;
/// # let dir = tempfile::tempdir()?;
/// let path = dir.path().join("part-000.shard");
/// let mut writer = ShardWriter::create(&path, 3)?;
/// writer.write(&[1.0f32, 2.0])?; // values come in any pieces
/// writer.write(&[3.0f64])?;
/// assert!(!path.exists());
/// assert_eq!(writer.finish()?, 1);
/// assert!(path.exists());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a shard has its name only after `finish`"]
pub struct ShardWriter {
    path: PathBuf,
    file: OutputFile,
    /// The offset in the file at which the buffer will be written.
    offset: u64,
    width: usize,
    values: u64,
    buffer: Vec<u8>,
    /// After a failed write, further values would be at the wrong offset.
    has_failed: bool,
}

impl ShardWriter {
    /// Begins a shard of rows of `width` values. An existing shard with this name is replaced when
    /// this one is finished.
    pub fn create(path: impl AsRef<Path>, width: usize) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        if let Err(reason) = whole_rows(0, width) {
            return Err(Error::InvalidItem { path, item: None, reason });
        }
        let file = OutputFile::create(&path)
            .map_err(|error| Error::io(&path, "creating the shard's temporary file", error))?;
        let mut buffer = Vec::with_capacity(BUFFER_BYTES + HEADER_LEN);
        buffer.resize(HEADER_LEN, 0); // no magic: an incomplete file is not a shard
        Ok(Self { path, file, offset: 0, width, values: 0, buffer, has_failed: false })
    }

    /// Adds values: whole rows, or any part of them.
    pub fn write<T: RowValue>(&mut self, values: &[T]) -> Result<(), Error> {
        let mut rest = values;
        while !rest.is_empty() {
            // Never exceed the capacity, so that the buffer does not grow.
            let room = self.buffer.capacity().saturating_sub(self.buffer.len()) / VALUE_BYTES;
            let (piece, after) = rest.split_at(room.min(rest.len()));
            push_values(piece, &mut self.buffer);
            self.values += piece.len() as u64;
            rest = after;
            if self.buffer.capacity() - self.buffer.len() < VALUE_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Returns the number of whole rows written so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.values / self.width as u64
    }

    /// Completes the shard and gives it its name. Returns the number of rows.
    pub fn finish(mut self) -> Result<u64, Error> {
        self.flush()?;
        let rows = whole_rows(self.values, self.width).map_err(|reason| self.invalid(reason))?;
        let header = ShardHeader { rows, width: self.width as u64 };
        let completed = self.file.write_all_at(&header.to_bytes(), 0);
        completed
            .and_then(|()| self.file.complete())
            .map_err(|error| Error::io(&self.path, "completing the shard", error))?;
        Ok(rows)
    }

    fn invalid(&self, reason: String) -> Error {
        Error::InvalidItem { path: self.path.clone(), item: None, reason }
    }

    fn flush(&mut self) -> Result<(), Error> {
        if self.has_failed {
            let reason = "an earlier write failed; write the shard again".to_owned();
            return Err(self.invalid(reason));
        }
        let outcome = self.file.write_all_at(&self.buffer, self.offset);
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        self.has_failed = outcome.is_err();
        outcome.map_err(|error| Error::io(&self.path, "writing the shard", error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_does_not_grow() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = ShardWriter::create(dir.path().join("a.shard"), 1).unwrap();
        let before = writer.buffer.capacity();
        for values in [1, 262_143, 262_144, 7, 600_000] {
            writer.write(&vec![1.0f32; values]).unwrap();
            assert_eq!(writer.buffer.capacity(), before);
        }
        assert_eq!(writer.finish().unwrap(), 1_124_295);
    }
}
