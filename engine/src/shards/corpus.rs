//! The shards of a source: opened, checked, and where each row is in them.

use std::path::{Path, PathBuf};

use ringmain_backends::ReadBackendExt;

use super::header::{HEADER_LEN, ShardHeader, VALUE_BYTES};
use super::{Error, ShardDamage};
use crate::Engine;
use crate::epochs::mix;
use crate::steady::{Change, SteadyFile};

/// A shard with rows.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) file: SteadyFile,
    /// The id of its first row.
    pub(super) first_row: u64,
    pub(super) rows: u64,
    /// One past its last row's last byte.
    pub(super) payload_end: u64,
}

impl Shard {
    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(super) fn end_row(&self) -> u64 {
        self.first_row + self.rows
    }

    /// Whether the file is still the one that was opened: an error if not.
    pub(super) fn check_unchanged(&self) -> Result<(), Error> {
        self.file.check().map_err(|change| match change {
            Change::Cut { len } if len < self.payload_end => self.truncated(len),
            Change::Cut { .. } => Error::changed(self.path(), Change::Written),
            change => Error::changed(self.path(), change),
        })
    }

    pub(super) fn truncated(&self, actual: u64) -> Error {
        let (path, expected) = (self.path().to_owned(), self.payload_end);
        Error::Truncated { path, what: "rows", expected, actual }
    }
}

/// An ordered list of shards of one width.
#[derive(Debug)]
pub(super) struct Corpus {
    /// Those with rows.
    pub(super) shards: Vec<Shard>,
    pub(super) width: usize,
    pub(super) rows: u64,
    /// What errors name that concern no shard in particular.
    pub(super) path: PathBuf,
    /// Differs for corpora of other file names, rows or widths, or other first values of a shard.
    pub(super) fingerprint: u64,
}

impl Corpus {
    pub(super) fn open<P: AsRef<Path>>(
        engine: &Engine,
        paths: impl IntoIterator<Item = P>,
    ) -> Result<Self, Error> {
        let mut corpus =
            Self { shards: Vec::new(), width: 0, rows: 0, path: PathBuf::new(), fingerprint: 0 };
        let mut width = None;
        for path in paths {
            // Shards are opened again and looked at later, whatever the working directory is then.
            let path = absolute(path.as_ref())?;
            let (path, first) = (path.as_path(), width.is_none());
            let Opened { file, header, sample } = open_shard(engine, path)?;
            let found = usize::try_from(header.width)
                .map_err(|_| Error::format(path, ShardDamage::TooManyRows))?;
            if first {
                path.clone_into(&mut corpus.path);
            }
            let expected = *width.get_or_insert(found);
            if found != expected {
                let damage = ShardDamage::WidthMismatch { expected, found };
                return Err(Error::format(path, damage));
            }
            corpus.mix_in(path, header, sample);
            corpus.add(path, file, header)?;
        }
        if corpus.rows == 0 {
            return Err(match width {
                Some(_) => {
                    let reason = "the shards have no rows";
                    Error::format(&corpus.path, ShardDamage::Empty { reason })
                }
                None => {
                    let reason = "a source needs at least one shard";
                    Error::invalid_option("paths", "an empty list", reason)
                }
            });
        }
        corpus.width = width.unwrap_or(0);
        Ok(corpus)
    }

    /// Makes the fingerprint one of that shard too. Not of its time of writing: a corpus that was
    /// copied is the same.
    fn mix_in(&mut self, path: &Path, header: ShardHeader, sample: u64) {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let sizes = [name.len() as u64, header.rows, header.width, sample];
        let words = sizes.into_iter().chain(name.iter().map(|byte| u64::from(*byte)));
        self.fingerprint = words.fold(self.fingerprint, |hash, word| mix(hash ^ mix(word)));
    }

    fn add(&mut self, path: &Path, file: SteadyFile, header: ShardHeader) -> Result<(), Error> {
        if header.rows == 0 {
            return Ok(());
        }
        let (first_row, rows) = (self.rows, header.rows);
        self.rows = first_row
            .checked_add(rows)
            .ok_or_else(|| Error::format(path, ShardDamage::TooManyRows))?;
        // The header was checked against the file, so there is such a length.
        let payload_end = header.file_len().unwrap_or(file.len());
        self.shards.push(Shard { file, first_row, rows, payload_end });
        Ok(())
    }

    /// The bytes of a row in the file.
    pub(super) fn row_bytes(&self) -> usize {
        self.width.saturating_mul(VALUE_BYTES)
    }

    /// Which shard has the row; `hint` is tried first.
    pub(super) fn shard_of(&self, row: u64, hint: usize) -> usize {
        let has = |shard: &Shard| (shard.first_row..shard.end_row()).contains(&row);
        if self.shards.get(hint).is_some_and(has) {
            return hint;
        }
        self.shards.partition_point(|shard| shard.end_row() <= row)
    }

    /// Where a row of a shard begins in its file.
    pub(super) fn offset(&self, shard: &Shard, row: u64) -> u64 {
        HEADER_LEN as u64 + (row - shard.first_row) * self.row_bytes() as u64
    }
}

/// The `*.shard` files of a directory in the order of the bytes of their names: those that `open_dir`
/// opens. A folder without any is [`ShardDamage::Empty`].
pub fn list_shards(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let list_error = |error| Error::io(dir, "listing the shards of the directory", error);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(list_error)? {
        let path = entry.map_err(list_error)?.path();
        if path.extension().is_some_and(|extension| extension == "shard") {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        let reason = "the folder has no `*.shard` files";
        return Err(Error::format(dir, ShardDamage::Empty { reason }));
    }
    let name = |path: &PathBuf| path.file_name().map(|name| name.as_encoded_bytes().to_vec());
    paths.sort_by_cached_key(name);
    Ok(paths)
}

/// The path from the root; that of a file in memory is whatever name it has.
fn absolute(path: &Path) -> Result<PathBuf, Error> {
    let found = std::path::absolute(path)
        .map_err(|error| Error::io(path, "finding the working directory", error))?;
    Ok(if found.exists() { found } else { path.to_owned() })
}

/// A shard that was looked at.
struct Opened {
    file: SteadyFile,
    header: ShardHeader,
    /// Follows from its first values.
    sample: u64,
}

/// So much of the values goes into the fingerprint; it is read with the header.
const SAMPLE_BYTES: usize = 224;

fn open_shard(engine: &Engine, path: &Path) -> Result<Opened, Error> {
    let backend = engine.backend();
    let failed = |error| Error::backend(path, error);
    let file = backend.open(path).map_err(failed)?;
    let file = SteadyFile::new(engine, file).map_err(|change| Error::changed(path, change))?;
    let file_len = backend.len(&file).map_err(failed)?;
    let mut bytes = [0; HEADER_LEN + SAMPLE_BYTES];
    // At most that many, so it fits.
    let head_bytes = file_len.min(bytes.len() as u64) as usize;
    backend.read_exact_at(&file, 0, &mut bytes[..head_bytes]).map_err(failed)?;
    let header = ShardHeader::parse(&bytes[..head_bytes], file_len, path)?;
    // What is behind the last row is none of the corpus' business.
    let payload = header.file_len().unwrap_or(0).min(head_bytes as u64) as usize;
    let sample = &bytes[HEADER_LEN.min(payload)..payload];
    let sample = sample.iter().fold(0, |hash, byte| mix(hash ^ mix(u64::from(*byte) + 1)));
    Ok(Opened { file, header, sample })
}
