//! The shards of a source, opened and checked, and the place of each row in them.
//!
//! Paths are made absolute when they are opened. A saved state identifies its corpus by the name,
//! rows, width and first 224 bytes of values of every shard. It ignores times, so that it also fits
//! a copy of the corpus, and it ignores the other values, which would have to be read.

use std::io;
use std::path::{Path, PathBuf};

use ringmain_backends::{FileChange, MemoryBackend, ReadBackend, ReadBackendExt, mix};

use super::header::{HEADER_LEN, ShardHeader, VALUE_BYTES};
use super::{Error, ShardDamage};
use crate::Engine;
use crate::versioned_file::{VersionChange, VersionedFile};

/// A shard with at least one row.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) file: VersionedFile,
    /// The id of the shard's first row.
    pub(super) first_row: u64,
    pub(super) rows: u64,
    /// The byte after the shard's last row.
    pub(super) payload_end: u64,
}

impl Shard {
    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(super) fn end_row(&self) -> u64 {
        self.first_row + self.rows
    }

    /// Returns an error if the file at the path is no longer the opened one.
    pub(super) fn check_unchanged(&self) -> Result<(), Error> {
        self.file.unchanged().map_err(|change| match change {
            VersionChange::Known(FileChange::Truncated { len }) => match len < self.payload_end {
                true => self.truncated(len),
                // The bytes that are missing now followed the rows.
                false => Error::changed(self.path(), VersionChange::Known(FileChange::Written)),
            },
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
    /// The shards that have rows.
    pub(super) shards: Vec<Shard>,
    pub(super) width: usize,
    pub(super) rows: u64,
    /// The path for errors that concern no particular shard.
    pub(super) path: PathBuf,
    /// A hash that differs for corpora with other file names, rows or widths, or other first values
    /// of a shard.
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
            // Shards are opened and checked again later, when the working directory may differ.
            let path = absolute(path.as_ref())?;
            let (path, first) = (path.as_path(), width.is_none());
            let OpenedShard { file, header, sample } = open_shard(engine, path)?;
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

    /// Adds the shard to the fingerprint. The modification time is left out: a copy of a corpus is
    /// the same corpus.
    fn mix_in(&mut self, path: &Path, header: ShardHeader, sample: u64) {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let sizes = [name.len() as u64, header.rows, header.width, sample];
        let words = sizes.into_iter().chain(name.iter().map(|byte| u64::from(*byte)));
        self.fingerprint = words.fold(self.fingerprint, |hash, word| mix(hash ^ mix(word)));
    }

    fn add(&mut self, path: &Path, file: VersionedFile, header: ShardHeader) -> Result<(), Error> {
        if header.rows == 0 {
            return Ok(());
        }
        let (first_row, rows) = (self.rows, header.rows);
        self.rows = first_row
            .checked_add(rows)
            .ok_or_else(|| Error::format(path, ShardDamage::TooManyRows))?;
        // The header was checked against the file, so the length does not overflow.
        let payload_end = header.file_len().unwrap_or(file.len());
        self.shards.push(Shard { file, first_row, rows, payload_end });
        Ok(())
    }

    /// Returns the size of a row in the file, in bytes.
    pub(super) fn row_bytes(&self) -> usize {
        self.width.saturating_mul(VALUE_BYTES)
    }

    /// Returns the number of the shard that has the row; `hint` is tried first.
    pub(super) fn shard_of(&self, row: u64, hint: usize) -> usize {
        let has = |shard: &Shard| (shard.first_row..shard.end_row()).contains(&row);
        if self.shards.get(hint).is_some_and(has) {
            return hint;
        }
        self.shards.partition_point(|shard| shard.end_row() <= row)
    }

    /// Returns the offset of a row of a shard in its file.
    pub(super) fn offset(&self, shard: &Shard, row: u64) -> u64 {
        HEADER_LEN as u64 + (row - shard.first_row) * self.row_bytes() as u64
    }
}

/// Returns the `*.shard` files of a directory on disk in the byte order of their names: the files that
/// `open_dir` opens. Fails with [`ShardDamage::Empty`] if there is none.
pub fn list_shards(dir: impl AsRef<Path>) -> Result<Vec<PathBuf>, Error> {
    // Every backend lists folders on disk, and this one needs nothing else.
    list_shards_with(&MemoryBackend::new(), dir.as_ref())
}

/// As [`list_shards`], in a folder of any kind that the backend knows.
pub(super) fn list_shards_with(
    backend: &dyn ReadBackend,
    dir: &Path,
) -> Result<Vec<PathBuf>, Error> {
    const ACTION: &str = "listing the shards of the directory";
    let listed = backend.list(dir).map_err(|error| Error::unlisted(dir, ACTION, error))?;
    let not_a_folder = || Error::listing(dir, ACTION, io::ErrorKind::NotADirectory.into());
    let mut paths = listed.ok_or_else(not_a_folder)?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "shard"));
    if paths.is_empty() {
        let reason = "the folder has no `*.shard` files";
        return Err(Error::format(dir, ShardDamage::Empty { reason }));
    }
    let name = |path: &PathBuf| path.file_name().map(|name| name.as_encoded_bytes().to_vec());
    paths.sort_by_cached_key(name);
    Ok(paths)
}

/// Returns the absolute path. The name of a file in memory stays unchanged.
fn absolute(path: &Path) -> Result<PathBuf, Error> {
    let found = std::path::absolute(path)
        .map_err(|error| Error::io(path, "finding the working directory", error))?;
    Ok(if found.exists() { found } else { path.to_owned() })
}

/// A shard whose header was read.
struct OpenedShard {
    file: VersionedFile,
    header: ShardHeader,
    /// A hash of the first values.
    sample: u64,
}

/// This much of the values goes into the fingerprint; it is read together with the header.
const SAMPLE_BYTES: usize = 224;

fn open_shard(engine: &Engine, path: &Path) -> Result<OpenedShard, Error> {
    let backend = engine.backend();
    let failed = |error| Error::backend(path, error);
    let file = backend.open(path).map_err(failed)?;
    let file = VersionedFile::new(engine, file).map_err(|change| Error::changed(path, change))?;
    let file_len = backend.len(&file).map_err(failed)?;
    let mut bytes = [0; HEADER_LEN + SAMPLE_BYTES];
    // The cast is exact: it is at most the length of `bytes`.
    let head_bytes = file_len.min(bytes.len() as u64) as usize;
    backend.read_exact_at(&file, 0, &mut bytes[..head_bytes]).map_err(failed)?;
    let header = ShardHeader::parse(&bytes[..head_bytes], file_len, path)?;
    // Bytes after the last row do not belong to the corpus.
    let payload = header.file_len().unwrap_or(0).min(head_bytes as u64) as usize;
    let sample = &bytes[HEADER_LEN.min(payload)..payload];
    let sample = sample.iter().fold(0, |hash, byte| mix(hash ^ mix(u64::from(*byte) + 1)));
    Ok(OpenedShard { file, header, sample })
}
