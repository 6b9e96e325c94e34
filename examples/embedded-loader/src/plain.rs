//! The loader without Ringmain: it reads with std, one batch after the other.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use crate::Result;

const HEADER_LEN: usize = 32;

/// Delivers the rows of all shards of a directory, in the order of their names.
#[derive(Debug)]
pub struct Loader {
    shards: std::vec::IntoIter<Shard>,
    now: Option<(BufReader<File>, u64)>,
    width: usize,
    batch_rows: usize,
    next_row: u64,
}

#[derive(Debug)]
struct Shard {
    path: PathBuf,
    rows: u64,
}

/// Rows and their ids.
#[derive(Debug)]
pub struct Batch {
    row_ids: Vec<u64>,
    rows: Vec<f32>,
}

impl Loader {
    /// Opens the `*.shard` files of a directory.
    pub fn open(dir: &Path, batch_rows: usize) -> Result<Self> {
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "shard") {
                paths.push(path);
            }
        }
        paths.sort();
        let (mut shards, mut width) = (Vec::new(), None);
        for path in paths {
            let (rows, columns) = read_header(&path)?;
            if *width.get_or_insert(columns) != columns {
                return Err(format!("{} has rows of another width", path.display()).into());
            }
            shards.push(Shard { path, rows });
        }
        let width = width.ok_or_else(|| format!("{} has no shards", dir.display()))?;
        if batch_rows == 0 || shards.iter().all(|shard| shard.rows == 0) {
            return Err("the shards have no rows".into());
        }
        Ok(Self { shards: shards.into_iter(), now: None, width, batch_rows, next_row: 0 })
    }

    /// Returns the number of columns of a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the next batch; `None` after the last. A batch does not cross the end of its shard.
    pub fn next_batch(&mut self) -> Result<Option<Batch>> {
        loop {
            match &mut self.now {
                Some((file, left)) if *left > 0 => {
                    let rows = usize::try_from(*left).unwrap_or(usize::MAX).min(self.batch_rows);
                    let mut bytes = vec![0; rows * self.width * 4];
                    file.read_exact(&mut bytes)?;
                    *left -= rows as u64;
                    let row_ids = (self.next_row..).take(rows).collect();
                    self.next_row += rows as u64;
                    let values = bytes.chunks_exact(4);
                    let rows =
                        values.map(|v| f32::from_le_bytes([v[0], v[1], v[2], v[3]])).collect();
                    return Ok(Some(Batch { row_ids, rows }));
                }
                _ => {
                    let Some(shard) = self.shards.next() else { return Ok(None) };
                    let mut file = BufReader::new(File::open(&shard.path)?);
                    file.read_exact(&mut [0; HEADER_LEN])?;
                    self.now = Some((file, shard.rows));
                }
            }
        }
    }
}

impl Batch {
    /// Returns the id of each row.
    #[must_use]
    pub fn row_ids(&self) -> &[u64] {
        &self.row_ids
    }

    /// Returns the values, row by row.
    #[must_use]
    pub fn rows(&self) -> &[f32] {
        &self.rows
    }
}

/// Returns the rows and columns of a shard, after checking the length of its file.
fn read_header(path: &Path) -> Result<(u64, usize)> {
    let mut file = File::open(path)?;
    let mut header = [0; HEADER_LEN];
    file.read_exact(&mut header)?;
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| header[at + byte]));
    let (rows, width) = (number(8), number(16));
    let bytes = rows.checked_mul(width).and_then(|values| values.checked_mul(4));
    let len = bytes.and_then(|bytes| bytes.checked_add(HEADER_LEN as u64));
    let is_whole = len.is_some_and(|len| file.metadata().is_ok_and(|found| found.len() >= len));
    if !header.starts_with(b"GAMSAE01") || header[24..28] != [0; 4] || !is_whole {
        return Err(format!("{} is not a complete shard", path.display()).into());
    }
    Ok((rows, usize::try_from(width)?))
}
