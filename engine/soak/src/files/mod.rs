//! The files of a run: what there is, and the bytes of every version.

mod beton;
mod shard;
mod tensors;

use std::path::{Path, PathBuf};

pub(crate) use beton::{ARRAY_FIELD, BLOB_FIELD, BetonLayout, ID_FIELD};
pub(crate) use shard::{ROWS, WIDTH};
pub(crate) use tensors::TensorPlace;

use crate::dice::Dice;
use crate::model::Contents;

/// The shards of a corpus.
pub(crate) const CORPUS_SHARDS: usize = 3;
const CORPORA: usize = 2;
/// The sizes of files without a format. Each version has up to this many bytes.
const PLAIN_LENS_MAX: [u64; 9] =
    [5000, 40_000, 70_000, 200_000, 300_000, 1 << 20, 1 << 20, 3 << 20, 6 << 20];
const STEADY_LEN: u64 = 24 << 20;

/// The purpose of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// Without a format, and never changed.
    Steady,
    /// Without a format. It is cut, grown, replaced and deleted.
    Plain,
    /// A shard of one of the corpora. Shards, datasets and weights are also written to in place.
    Shard,
    /// A `.beton` dataset.
    Beton,
    /// A safetensors file that is read.
    Weights,
    /// A safetensors file that is mapped: it is replaced and deleted, never written to.
    Mapped,
}

/// One file.
#[derive(Clone, Debug)]
pub(crate) struct DataFile {
    /// Its number on the board.
    pub(crate) number: usize,
    pub(crate) kind: FileKind,
    pub(crate) path: PathBuf,
    len_max: u64,
}

#[cfg(test)]
impl DataFile {
    pub(crate) fn for_tests(number: usize, kind: FileKind) -> Self {
        Self { number, kind, path: PathBuf::from("file"), len_max: 1 << 20 }
    }
}

/// All files.
#[derive(Debug)]
pub(crate) struct Files {
    seed: u64,
    pub(crate) list: Vec<DataFile>,
    pub(crate) beton: BetonLayout,
    pub(crate) tensors: Vec<TensorPlace>,
    weights_header: Vec<u8>,
}

impl Files {
    /// The files of a run in this folder. Nothing is written but the pattern of the datasets, if the folder
    /// does not have it yet.
    pub(crate) fn new(seed: u64, dir: &Path) -> Result<Self, ringmain::Error> {
        let (weights_header, tensors) = tensors::header();
        let beton = BetonLayout::load(&dir.join("pattern.beton"))?;
        let mut files = Self { seed, list: Vec::new(), beton, tensors, weights_header };
        for number in 0..2 {
            files.add(FileKind::Steady, dir.join(format!("steady-{number}.bin")), STEADY_LEN);
        }
        for (number, len) in PLAIN_LENS_MAX.into_iter().enumerate() {
            files.add(FileKind::Plain, dir.join(format!("plain-{number}.bin")), len);
        }
        for number in 0..CORPORA * CORPUS_SHARDS {
            let (corpus, shard) = (number / CORPUS_SHARDS, number % CORPUS_SHARDS);
            let path = dir.join(format!("corpus-{corpus}-part-{shard}.shard"));
            files.add(FileKind::Shard, path, 0);
        }
        for number in 0..2 {
            files.add(FileKind::Beton, dir.join(format!("samples-{number}.beton")), 0);
            files.add(FileKind::Weights, dir.join(format!("read-{number}.safetensors")), 0);
            files.add(FileKind::Mapped, dir.join(format!("mapped-{number}.safetensors")), 0);
        }
        Ok(files)
    }

    fn add(&mut self, kind: FileKind, path: PathBuf, len_max: u64) {
        self.list.push(DataFile { number: self.list.len(), kind, path, len_max });
    }

    pub(crate) fn of_kind(&self, kind: FileKind) -> Vec<&DataFile> {
        self.list.iter().filter(|file| file.kind == kind).collect()
    }

    pub(crate) fn contents(&self, file: &DataFile, version: u64) -> Contents {
        Contents::new(self.seed, file.number, version)
    }

    /// The bytes of a version. Files of a format have the same places in all versions, and only their values
    /// differ.
    pub(crate) fn encode(&self, file: &DataFile, version: u64) -> Vec<u8> {
        let contents = self.contents(file, version);
        match file.kind {
            FileKind::Steady => filled(contents, file.len_max),
            FileKind::Plain => filled(contents, self.plain_len(file, version)),
            FileKind::Shard => shard::encode(contents),
            FileKind::Beton => self.beton.encode(contents),
            FileKind::Weights | FileKind::Mapped => {
                tensors::encode(&self.weights_header, &self.tensors, contents)
            }
        }
    }

    /// The length of a version of a plain file before it grows.
    fn plain_len(&self, file: &DataFile, version: u64) -> u64 {
        let mut dice = Dice::new(&[self.seed, file.number as u64, version, 1]);
        dice.between(file.len_max / 3, file.len_max)
    }

    /// The largest length of a plain file, after all its growth.
    pub(crate) fn grown_len_max(&self, file: &DataFile) -> u64 {
        file.len_max + file.len_max / 2
    }
}

fn filled(contents: Contents, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    contents.fill(0, &mut bytes);
    bytes
}
