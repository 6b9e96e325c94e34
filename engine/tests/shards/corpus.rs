//! Corpora to read.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ringmain::shards::{RowBatch, ShardSource, encode_shard_bytes};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::support::temp_dir;

/// Shards of known rows in a directory of their own.
pub(crate) struct Corpus {
    pub(crate) dir: TempDir,
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) rows: u64,
}

impl Corpus {
    pub(crate) fn new(rows_of_shards: &[u64], width: usize) -> Self {
        let dir = temp_dir();
        let (mut paths, mut first_row) = (Vec::new(), 0);
        for (at, rows) in rows_of_shards.iter().enumerate() {
            let path = dir.path().join(format!("part-{at:03}.shard"));
            write_shard(&path, first_row..first_row + rows, width);
            first_row += rows;
            paths.push(path);
        }
        Self { dir, paths, rows: first_row }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Returns a value that identifies its place: no two values of a corpus are equal.
pub(crate) fn value(row: u64, column: usize, width: usize) -> f32 {
    (row * width as u64 + column as u64) as f32 - 0.5
}

pub(crate) fn write_shard(path: &Path, rows: Range<u64>, width: usize) {
    let row = |row: u64| (0..width).map(move |column| value(row, column, width));
    let values: Vec<f32> = rows.flat_map(row).collect();
    // Not with a `ShardWriter`, which waits for the device.
    std::fs::write(path, encode_shard_bytes(&values, width).unwrap()).unwrap();
    // An old modification time, so that any later write changes it.
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
}

/// Checks that the batch has the rows that its ids name.
pub(crate) fn check_rows(batch: &RowBatch) {
    let width = batch.width();
    assert!(!batch.is_empty());
    for (at, row) in batch.row_ids().iter().enumerate() {
        for column in [0, width / 2, width - 1] {
            let found = match (batch.rows_f64(), batch.rows_f32()) {
                (Some(rows), None) => rows[at * width + column],
                (None, Some(rows)) => f64::from(rows[at * width + column]),
                both => panic!("{both:?}"),
            };
            assert_eq!(found, f64::from(value(*row, column, width)), "row {row}");
        }
    }
}

/// Returns the ids of all remaining rows, after checking every row.
pub(crate) fn drain(source: &mut ShardSource) -> Vec<u64> {
    let mut row_ids = Vec::new();
    while let Some(batch) = source.next_batch().unwrap() {
        check_rows(&batch);
        row_ids.extend_from_slice(batch.row_ids());
    }
    row_ids
}

/// Returns all remaining rows, each followed by its id: the bits of its values as `f64`. The result
/// does not depend on the division into batches.
pub(crate) fn stream(source: &mut ShardSource) -> Vec<u64> {
    let mut stream = Vec::new();
    while let Some(batch) = source.next_batch().unwrap() {
        let width = batch.width();
        for (at, id) in batch.row_ids().iter().enumerate() {
            let row = at * width..(at + 1) * width;
            match (batch.rows_f64(), batch.rows_f32()) {
                (Some(rows), _) => stream.extend(rows[row].iter().map(|value| value.to_bits())),
                (_, Some(rows)) => {
                    stream.extend(rows[row].iter().map(|value| f64::from(*value).to_bits()));
                }
                (None, None) => panic!("neither f64 nor f32"),
            }
            stream.push(*id);
        }
    }
    stream
}

pub(crate) fn digest(stream: &[u64]) -> String {
    let mut hash = Sha256::new();
    stream.iter().for_each(|word| hash.update(word.to_le_bytes()));
    hex(&hash.finalize())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
