//! FFCV's `.beton` datasets.

use std::path::Path;

use ringmain::Engine;
use ringmain::beton::{BetonReader, Field, FieldKind};
use serde_json::{Map, Value, json};

use super::Inspection;
use crate::failure::Failure;
use crate::workload::is_beton_name;

/// They have no magic: a file is one if its name says so, whatever is in it.
pub(super) fn inspect(engine: &Engine, path: &Path) -> Option<Result<Inspection, Failure>> {
    is_beton_name(path).then(|| describe(engine, path))
}

fn describe(engine: &Engine, path: &Path) -> Result<Inspection, Failure> {
    let reader = BetonReader::open(engine, path)?;
    let bytes = engine.backend().len(&engine.backend().open(path)?)?;
    let damaged = (0..reader.len()).filter(|id| reader.check_sample(*id).is_err());
    let mut facts = Map::new();
    facts.insert("samples".into(), json!(reader.len()));
    facts.insert("fields".into(), reader.fields().iter().map(describe_field).collect());
    facts.insert("pages".into(), json!(reader.pages()));
    facts.insert("page_bytes".into(), json!(reader.page_bytes()));
    facts.insert("regions".into(), json!(reader.regions()));
    facts.insert("region_bytes".into(), json!(reader.region_bytes()));
    facts.insert("region_alignment".into(), json!(reader.region_alignment()));
    facts.insert("damaged_samples".into(), json!(damaged.count()));
    Ok(Inspection { format: "beton", path: path.display().to_string(), bytes, facts })
}

fn describe_field(field: &Field) -> Value {
    let kind = match field.kind() {
        FieldKind::Float => "float".to_owned(),
        FieldKind::Int => "int".to_owned(),
        FieldKind::RgbImage => "RGB image".to_owned(),
        FieldKind::Bytes => "bytes".to_owned(),
        FieldKind::Json => "JSON".to_owned(),
        FieldKind::NdArray(spec) => format!("array {} {:?}", spec.dtype(), spec.shape()),
        FieldKind::TorchTensor(spec) => format!("tensor {} {:?}", spec.dtype(), spec.shape()),
        other => format!("type {}", other.type_id()),
    };
    Value::String(format!("{}: {kind}", field.name()))
}
