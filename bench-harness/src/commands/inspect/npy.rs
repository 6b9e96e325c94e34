//! NumPy's `.npy`.

use std::path::Path;

use ringmain::Engine;
use ringmain::backends::ReadBackendExt;
use serde_json::{Map, Value, json};

use super::Inspection;
use crate::failure::Failure;

const MAGIC: &[u8] = b"\x93NUMPY";

pub(super) fn inspect(engine: &Engine, path: &Path) -> Option<Result<Inspection, Failure>> {
    let backend = engine.backend();
    let file = backend.open(path).ok()?;
    let mut magic = [0; 6];
    backend.read_exact_at(&file, 0, &mut magic).ok()?;
    (magic == MAGIC).then(|| describe(engine, path))
}

fn describe(engine: &Engine, path: &Path) -> Result<Inspection, Failure> {
    let array = engine.open_npy(path)?;
    let bytes = engine.backend().len(&engine.backend().open(path)?)?;
    let mut facts = Map::new();
    facts.insert("dtype".into(), Value::String(array.dtype().to_string()));
    facts.insert("shape".into(), json!(array.shape()));
    facts.insert("elements".into(), json!(array.size()));
    facts.insert("data_offset".into(), json!(array.offset()));
    facts.insert("data_bytes".into(), json!(array.nbytes()));
    Ok(Inspection { format: "npy", path: path.display().to_string(), bytes, facts })
}
