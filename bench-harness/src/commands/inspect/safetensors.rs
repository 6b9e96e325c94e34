//! Model weights: a safetensors file, the index of a model of several, or a folder with either.

use std::collections::BTreeMap;
use std::path::Path;

use ringmain::backends::ReadBackendExt;
use ringmain::weights::{TensorInfo, WeightFile, Weights, WeightsDamage};
use ringmain::{Damage, Engine};
use serde_json::{Map, Value, json};

use super::Inspection;
use crate::failure::Failure;
use crate::workload::holds_weights;

/// The length of a header before its first byte, which is that of JSON.
const START_BYTES: usize = 9;

/// A file with the name of weights must be one. Other files are recognised by their first bytes,
/// because caches name files by their hash.
pub(super) fn inspect(engine: &Engine, path: &Path) -> Option<Result<Inspection, Failure>> {
    match holds_weights(path) {
        Ok(true) => return Some(describe(engine, path)),
        Ok(false) if path.is_dir() || !begins_like_weights(engine, path) => return None,
        Ok(false) => {}
        Err(failure) => return Some(Err(failure)),
    }
    match Weights::open(engine, path) {
        Err(error) if is_bad_header(&error) => None,
        _ => Some(describe(engine, path)),
    }
}

fn is_bad_header(error: &ringmain::Error) -> bool {
    matches!(error.damage(), Some(Damage::Weights(WeightsDamage::BadHeader { .. })))
}

fn begins_like_weights(engine: &Engine, path: &Path) -> bool {
    let backend = engine.backend();
    let mut start = [0; START_BYTES];
    let read = backend.open(path).and_then(|file| backend.read_exact_at(&file, 0, &mut start));
    read.is_ok() && start.last() == Some(&b'{')
}

fn describe(engine: &Engine, path: &Path) -> Result<Inspection, Failure> {
    let weights = Weights::open(engine, path)?;
    let headers = weights.files().iter().map(|file| header_bytes(engine, file));
    let headers = headers.collect::<Result<Vec<u64>, Failure>>()?;
    let mut facts = Map::new();
    facts.insert("tensor_count".into(), json!(weights.len()));
    facts.insert("tensor_bytes".into(), json!(weights.nbytes()));
    facts.insert("header_bytes".into(), json!(headers.iter().sum::<u64>()));
    let metadata: BTreeMap<_, _> =
        weights.files().iter().filter_map(WeightFile::metadata).flatten().collect();
    facts.insert("metadata".into(), json!(metadata));
    facts.insert("dtypes".into(), dtypes(&weights));
    let has_several = weights.files().len() > 1;
    if has_several {
        facts.insert("files".into(), files(&weights, &headers));
    }
    let tensor = |info| tensor(info, has_several.then(|| &weights.files()[info.file()]));
    facts.insert("tensors".into(), weights.tensors().map(tensor).collect());
    let bytes = weights.files().iter().map(WeightFile::file_len).sum();
    Ok(Inspection { format: "safetensors", path: path.display().to_string(), bytes, facts })
}

/// Returns the length field at the start of the file.
fn header_bytes(engine: &Engine, file: &WeightFile) -> Result<u64, Failure> {
    let backend = engine.backend();
    let mut length = [0; 8];
    backend.read_exact_at(&backend.open(file.path())?, 0, &mut length)?;
    Ok(u64::from_le_bytes(length))
}

fn dtypes(weights: &Weights) -> Value {
    let mut totals = BTreeMap::<String, (u64, u64)>::new();
    for info in weights.tensors() {
        let (tensors, bytes) = totals.entry(info.dtype().to_string()).or_default();
        *tensors += 1;
        *bytes += info.nbytes() as u64;
    }
    let total =
        |(dtype, (tensors, bytes))| json!({"dtype": dtype, "tensors": tensors, "bytes": bytes});
    totals.into_iter().map(total).collect()
}

fn files(weights: &Weights, headers: &[u64]) -> Value {
    let mut counts = vec![0u64; headers.len()];
    weights.tensors().for_each(|info| counts[info.file()] += 1);
    let files = weights.files().iter().zip(headers).zip(counts);
    let describe = |((file, header_bytes), tensors): ((&WeightFile, &u64), u64)| {
        json!({
            "file": name_of(file),
            "bytes": file.file_len(),
            "header_bytes": header_bytes,
            "tensors": tensors,
        })
    };
    files.map(describe).collect()
}

/// Adds the file of the tensor if there are several files.
fn tensor(info: &TensorInfo, file: Option<&WeightFile>) -> Value {
    let mut fields = Map::new();
    fields.insert("name".into(), json!(info.name()));
    fields.insert("dtype".into(), json!(info.dtype().to_string()));
    fields.insert("shape".into(), json!(info.shape()));
    fields.insert("bytes".into(), json!(info.nbytes()));
    fields.extend(file.map(|file| ("file".into(), json!(name_of(file)))));
    Value::Object(fields)
}

fn name_of(file: &WeightFile) -> String {
    file.path().file_name().map_or_else(String::new, |name| name.display().to_string())
}
