//! FFCV's `.beton` datasets.

use std::path::Path;

use ringmain::beton::{BetonDamage, BetonReader, Field, FieldKind};
use ringmain::{Damage, Engine};
use serde_json::{Map, Value, json};

use super::Inspection;
use crate::failure::Failure;
use crate::workload::is_beton_name;

/// How many damaged samples are described.
const DAMAGE_MAX: usize = 5;

/// The format has no magic number, so the name of the file decides.
pub(super) fn inspect(engine: &Engine, path: &Path) -> Option<Result<Inspection, Failure>> {
    is_beton_name(path).then(|| describe(engine, path))
}

fn describe(engine: &Engine, path: &Path) -> Result<Inspection, Failure> {
    let (header, fields) = BetonReader::describe(engine, path)?;
    let bytes = engine.backend().len(&engine.backend().open(path)?)?;
    let mut facts = Map::new();
    facts.insert("samples".into(), json!(header.samples));
    facts.insert("fields".into(), fields.iter().map(describe_field).collect());
    match BetonReader::open(engine, path) {
        Ok(reader) => describe_samples(&reader, &mut facts),
        // The layout of such a file is unknown.
        Err(error) => {
            let Some(why) = unknown_type(&error) else { return Err(error.into()) };
            facts.insert("page_bytes".into(), json!(header.page_bytes));
            facts.insert("samples_not_inspected".into(), json!(why));
        }
    }
    Ok(Inspection { format: "beton", path: path.display().to_string(), bytes, facts })
}

/// Returns which field has a custom type, if that is the error. The advice of the error is for programs.
fn unknown_type(error: &ringmain::Error) -> Option<String> {
    match error.damage() {
        Some(Damage::Beton(BetonDamage::UnknownType { index, name, type_id, .. })) => {
            Some(format!(
                "field {index} (`{name}`) has the custom type {type_id}, which only the program that \
             wrote it can read"
            ))
        }
        _ => None,
    }
}

fn describe_samples(reader: &BetonReader, facts: &mut Map<String, Value>) {
    facts.insert("pages".into(), json!(reader.pages()));
    facts.insert("page_bytes".into(), json!(reader.page_bytes()));
    facts.insert("regions".into(), json!(reader.regions()));
    facts.insert("region_bytes".into(), json!(reader.region_bytes()));
    facts.insert("region_alignment".into(), json!(reader.region_alignment()));
    let (mut damaged, mut damage) = (0u64, Vec::new());
    for error in (0..reader.len()).filter_map(|id| reader.check_sample(id).err()) {
        damaged += 1;
        if damage.len() < DAMAGE_MAX {
            damage.push(Value::String(error.to_string()));
        }
    }
    facts.insert("damaged_samples".into(), json!(damaged));
    if damaged > 0 {
        facts.insert("damage".into(), Value::Array(damage));
    }
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
