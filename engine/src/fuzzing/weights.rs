//! Safetensors files and models.

use std::path::{Component, Path};

use arbitrary::{Arbitrary, Unstructured};
use safetensors::SafeTensors;

use super::engine_over;
use crate::weights::header::{self, Header, LENGTH_BYTES};
use crate::weights::index::Index;
use crate::weights::{Dtype, LoadOptions, TensorDamage, TensorInfo, Weights, WeightsDamage};
use crate::{Damage, Error};

/// The bytes are a safetensors file. It is also tried with the length that its header really has: the
/// header ends with the last brace. The tensors lie in the file without gaps, and the `safetensors`
/// crate agrees.
pub(super) fn safetensors_header(bytes: &[u8]) {
    check_header(bytes);
    let Some((_, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else { return };
    if let Some(last) = rest.iter().rposition(|byte| *byte == b'}') {
        let len = (last as u64 + 1).to_le_bytes();
        check_header(&[&len, rest].concat());
    }
}

fn parse(bytes: &[u8]) -> Result<Header, Error> {
    let (path, file_len) = (Path::new("fuzzed"), bytes.len() as u64);
    let json_len = header::header_bytes(bytes, file_len, path)? as usize;
    let (json, data) = bytes[LENGTH_BYTES..].split_at(json_len);
    header::parse(json, data.len() as u64, 0, path)
}

fn check_header(bytes: &[u8]) {
    let theirs = SafeTensors::deserialize(bytes);
    let header = match parse(bytes) {
        Ok(header) => header,
        Err(error) => {
            assert_eq!(error.path(), Some(Path::new("fuzzed")));
            assert!(theirs.is_err() || is_stricter(&error), "only this crate refuses it: {error}");
            return;
        }
    };
    let theirs = theirs.expect("the `safetensors` crate understands it too");
    assert_eq!(header.tensors.len(), theirs.len());
    let mut end = header.tensors.first().map_or(bytes.len() as u64, TensorInfo::offset);
    for tensor in &header.tensors {
        assert_eq!(tensor.offset(), end, "tensors follow each other");
        end += tensor.nbytes() as u64;
        let same = theirs.tensor(tensor.name()).expect("both know the tensor");
        assert_eq!((tensor.dtype(), tensor.shape()), (same.dtype(), same.shape()));
        let at = tensor.offset() as usize;
        assert!(std::ptr::eq(&bytes[at..at + tensor.nbytes()], same.data()));
    }
    assert_eq!(end, bytes.len() as u64, "tensors cover the file");
}

/// Returns `true` if this crate refuses files for this reason, and the `safetensors` crate does not: the
/// limits, and two tensors with the same name, of which that crate sees the last.
fn is_stricter(error: &Error) -> bool {
    let Some(Damage::Weights(damage)) = error.damage() else { return false };
    match damage {
        WeightsDamage::BadTensor(damage) => matches!(damage, TensorDamage::Twice),
        WeightsDamage::BadHeader { reason } => {
            reason.contains("occurs twice") || reason.contains("more than 64 axes")
        }
        _ => false,
    }
}

/// The bytes are the index of a model. The files that it names lie below its own folder, and no tensor
/// is in two of them.
pub(super) fn safetensors_index(bytes: &[u8]) {
    let path = Path::new("folder/m.index.json");
    let index = match Index::parse(bytes, path) {
        Ok(index) => index,
        Err(error) => {
            let is_typed =
                matches!(error.damage(), Some(Damage::Weights(WeightsDamage::BadIndex { .. })));
            assert!(is_typed && error.path() == Some(path), "{error:?}");
            return;
        }
    };
    let files: Vec<&str> = index.files().map(|entries| &*entries[0].file).collect();
    assert!(!files.is_empty() && files.is_sorted_by(|a, b| a < b), "a file comes once, in order");
    for file in files {
        let mut below = Path::new(file).components();
        assert!(below.all(|part| matches!(part, Component::Normal(_))), "{file}");
    }
    let mut names: Vec<_> = index.files().flatten().map(|entry| &entry.tensor).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "a tensor is in one file");
}

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    /// A file of a header, whose length is right, and data.
    Parts { json: &'a str, data: &'a [u8], rows: (usize, usize) },
    /// A file of any bytes.
    File(&'a [u8]),
    /// An index, beside the file `a` with one tensor `t`.
    Index(&'a [u8]),
}

const FILE_NAME: &str = "fuzzed.safetensors";
const INDEX_NAME: &str = "fuzzed.index.json";
const TINY: &[u8] =
    b"\x37\0\0\0\0\0\0\0{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}  x";

/// The bytes are a model, which is opened and read in every way. The bytes of every tensor are those
/// that the `safetensors` crate returns.
pub(super) fn safetensors_model(bytes: &[u8]) {
    match Input::arbitrary_take_rest(Unstructured::new(bytes)) {
        Ok(Input::Parts { json, data, rows }) => {
            let length = (json.len() as u64).to_le_bytes();
            check_file(&[&length, json.as_bytes(), data].concat(), rows);
        }
        Ok(Input::File(bytes)) => check_file(bytes, (0, 1)),
        Ok(Input::Index(json)) => check_index(json),
        Err(_) => {}
    }
}

fn check_index(json: &[u8]) {
    let engine = engine_over(&[(INDEX_NAME, json), ("a", TINY)]);
    match Weights::open(&engine, INDEX_NAME) {
        Ok(weights) => {
            assert!(weights.len() <= 1);
            assert!(weights.tensors().all(|tensor| tensor.name() == "t"));
        }
        Err(error) => assert!(error.path().is_some(), "{error}"),
    }
}

fn check_file(bytes: &[u8], rows: (usize, usize)) {
    let engine = engine_over(&[(FILE_NAME, bytes)]);
    let weights = match Weights::open(&engine, FILE_NAME) {
        Ok(weights) => weights,
        Err(error) => return assert_eq!(error.path(), Some(Path::new(FILE_NAME)), "{error}"),
    };
    let theirs = SafeTensors::deserialize(bytes).expect("the `safetensors` crate understands it");
    assert_eq!(weights.len(), theirs.len());
    for tensor in weights.load(LoadOptions::new().window_bytes(0)).expect("a load starts") {
        let tensor = tensor.expect("the tensor lies in the file");
        let (name, same) = (tensor.name(), theirs.tensor(tensor.name()).expect("both know it"));
        assert_eq!((tensor.shape(), tensor.bytes()), (same.shape(), same.data()));
        assert_eq!(tensor.dtype(), same.dtype());
        if let Ok(part) = weights.read_rows(name, rows.0..rows.1) {
            assert_eq!(part.shape()[0], rows.1 - rows.0);
            let row_bits = same.data().len() * 8 / same.shape()[0].max(1);
            assert_eq!(part.bytes(), &same.data()[rows.0 * row_bits / 8..rows.1 * row_bits / 8]);
        }
        if let Ok(view) = weights.view(name) {
            assert_eq!(*view.read_buffer().expect("the tensor lies in the file"), *same.data());
        } else {
            let has_part_bytes = same.dtype().bitsize() < 8;
            assert!(has_part_bytes || is_overflow(same.dtype(), same.shape()), "{name}");
        }
    }
}

/// Returns `true` if the strides of an array would overflow, which can happen if an axis is empty.
fn is_overflow(dtype: Dtype, shape: &[usize]) -> bool {
    let lengths = shape.iter().filter(|len| **len > 0);
    let bytes =
        lengths.fold(dtype.bitsize() as u128 / 8, |bytes, len| bytes.saturating_mul(*len as u128));
    // The offset of the data is added.
    bytes > i64::MAX as u128 - (1 << 20)
}
