//! FFCV's own file, and its expected contents.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use ringmain::beton::{Batch, BetonReader, Sample, Value};
use ringmain::{BackendKind, Engine};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

pub(crate) const SAMPLES: u64 = 300;

pub(crate) fn vector() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/beton/mixed.beton")
}

/// All samples, as recorded by the author of the vector.
static EXPECTED: LazyLock<Vec<Json>> = LazyLock::new(|| {
    let text = std::fs::read(vector().with_file_name("mixed.expected.json")).unwrap();
    let mut all: Json = serde_json::from_slice(&text).unwrap();
    let Json::Array(samples) = all["samples"].take() else { panic!("no samples") };
    assert_eq!(samples.len() as u64, SAMPLES);
    samples
});

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// All samples as read from memory, after comparing them with the recorded ones.
static SAMPLES_READ: LazyLock<Vec<Sample>> = LazyLock::new(|| {
    let engine = Engine::builder().backend(BackendKind::Memory).build().unwrap();
    let reader = BetonReader::open(&engine, vector()).unwrap();
    let samples: Vec<_> = (0..SAMPLES).map(|id| reader.read_sample(id).unwrap()).collect();
    for (sample, expected) in samples.iter().zip(EXPECTED.iter()) {
        for (index, field) in sample.fields().iter().enumerate() {
            let (value, name) = (sample.value(index).unwrap(), field.name());
            check_value(value, &expected[name], &format!("sample {}, field {name}", sample.id()));
        }
    }
    samples
});

/// Compares every value of every sample of a batch.
pub(crate) fn check_batch(batch: &Batch, what: &str) {
    for (at, id) in batch.ids().iter().enumerate() {
        let expected = &SAMPLES_READ[*id as usize];
        for (index, field) in batch.fields().iter().enumerate() {
            let is_right = batch.value(at, index).unwrap() == expected.value(index).unwrap();
            assert!(is_right, "{what}: sample {id}, field {}", field.name());
        }
    }
}

fn check_value(value: Value<'_>, expected: &Json, what: &str) {
    match value {
        Value::Int(value) => assert_eq!(Some(value), expected.as_i64(), "{what}"),
        Value::Float(value) => assert_eq!(Some(value), expected.as_f64(), "{what}"),
        Value::Bytes(bytes) => {
            assert_eq!(Some(bytes.len() as u64), expected[0].as_u64(), "{what}");
            assert_eq!(sha256(bytes), expected[1], "{what}");
        }
        Value::Array(array) => {
            assert_eq!((array.shape, array.dtype.to_string().as_str()), (&[4, 6][..], "<f4"));
            assert_eq!(sha256(array.bytes), *expected, "{what}");
        }
        Value::Json(text) => {
            assert_eq!(serde_json::from_str::<Json>(text).unwrap(), *expected, "{what}");
        }
        Value::Image(image) => {
            let (mode, width, height) = (image.mode.id(), image.width, image.height);
            let found =
                serde_json::json!([mode, width, height, image.bytes.len(), sha256(image.bytes)]);
            assert_eq!(found, *expected, "{what}");
        }
        other => panic!("{what}: {other:?}"),
    }
}
