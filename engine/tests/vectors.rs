//! Files written by NumPy and exca read with the sha256 of their manifest, on every backend.

// Clippy allows these in functions marked `#[test]`, but not in the helpers they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::{Path, PathBuf};

use ringmain::{ContiguousMemmap, Engine, Error, MemmapArrayInfo};
use serde_json::Value;
use sha2::{Digest, Sha256};
use support::engines_for;

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

fn json(path: &str) -> Value {
    serde_json::from_slice(&std::fs::read(vectors().join(path)).unwrap()).unwrap()
}

/// Returns the entries of the manifest for `.npy` files.
fn npy_entries() -> Vec<(String, Value)> {
    let Value::Object(manifest) = json("MANIFEST.json") else { panic!("an object") };
    let entries: Vec<_> = manifest.into_iter().filter(|(name, _)| name.ends_with(".npy")).collect();
    assert_eq!(entries.len(), 15, "the manifest has lost files");
    entries
}

fn lengths(value: &Value) -> Vec<usize> {
    let lengths = value.as_array().unwrap().iter();
    lengths.map(|len| usize::try_from(len.as_u64().unwrap()).unwrap()).collect()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks the whole array, read in every way.
fn check_bytes(array: &ContiguousMemmap, expected: &str, what: &str) {
    let mut bytes = vec![0; array.nbytes()];
    array.read_bytes_into(&mut bytes).unwrap();
    assert_eq!(sha256(&bytes), expected, "{what}: read_into");
    assert_eq!(sha256(&array.read_buffer().unwrap()), expected, "{what}: read_buffer");
    let engine = array.engine();
    engine.read_many_bytes(std::slice::from_ref(array), &mut bytes).unwrap();
    assert_eq!(sha256(&bytes), expected, "{what}: read_many");
    array.read_selection_bytes_into(&[], &mut bytes).unwrap();
    assert_eq!(sha256(&bytes), expected, "{what}: read_selection_bytes_into");
}

fn check_npy(engine: &Engine, name: &str, entry: &Value) {
    let what = format!("{name} on {}", engine.backend().kind());
    let array = engine.open_npy(vectors().join(name)).unwrap();
    assert_eq!(array.dtype(), entry["dtype"].as_str().unwrap().parse().unwrap(), "{what}");
    assert_eq!(array.shape(), lengths(&entry["shape"]), "{what}");
    check_bytes(&array, entry["sha256_c_order_bytes"].as_str().unwrap(), &what);
}

#[test]
fn every_npy_file_reads_as_in_numpy() {
    for engine in engines_for(&vectors().join("npy/c_f32_2d.npy")) {
        for (name, entry) in npy_entries().iter().filter(|(_, entry)| entry["expect"].is_null()) {
            check_npy(&engine, name, entry);
        }
    }
}

#[test]
fn non_numeric_npy_files_are_refused_as_the_manifest_says() {
    for engine in engines_for(&vectors().join("npy/object.npy")) {
        let mut refused = 0;
        for (name, entry) in npy_entries() {
            let Some(expected) = entry["expect"].as_str() else { continue };
            let error = engine.open_npy(vectors().join(&name)).unwrap_err();
            assert!(matches!(error, Error::Format { .. }), "{error:?}");
            let reason = expected.strip_prefix("clear error: ").unwrap();
            assert!(error.to_string().contains(reason), "`{reason}` is missing in: {error}");
            assert!(error.to_string().contains(&name[4..]), "the file is missing in: {error}");
            refused += 1;
        }
        assert_eq!(refused, 2);
    }
}

#[test]
fn every_exca_array_reads_as_written() {
    let infos = json("exca/infos.json");
    let folder = vectors().join("exca");
    for engine in engines_for(&folder.join("data/vm-27251.data")) {
        for entry in infos.as_array().unwrap() {
            let info = MemmapArrayInfo {
                filename: entry["filename"].as_str().unwrap().into(),
                offset: entry["offset"].as_u64().unwrap(),
                shape: lengths(&entry["shape"]),
                dtype: entry["dtype"].as_str().unwrap().into(),
            };
            let what = format!("{info:?} on {}", engine.backend().kind());
            let array = engine.open_exca(&folder, &info).unwrap();
            assert_eq!(array.shape(), info.shape, "{what}");
            check_bytes(&array, entry["sha256"].as_str().unwrap(), &what);
        }
    }
}

/// The hashes above are of bytes; this test checks their meaning against known values.
#[test]
fn big_endian_and_fortran_arrays_have_their_values() {
    let engine = Engine::new().unwrap();
    let swapped = engine.open_npy(vectors().join("npy/big_endian_f4.npy")).unwrap();
    let elements = swapped.read_vec::<f32>().unwrap();
    let bytes = std::fs::read(vectors().join("npy/big_endian_f4.npy")).unwrap();
    let first = f32::from_be_bytes(bytes[128..132].try_into().unwrap());
    assert_eq!((elements.len(), elements[0]), (30, first));

    let fortran = engine.open_npy(vectors().join("npy/fortran_f64.npy")).unwrap();
    assert_eq!(fortran.strides(), [8, 13 * 8]);
    let bytes = std::fs::read(vectors().join("npy/fortran_f64.npy")).unwrap();
    let stored = |at: usize| f64::from_le_bytes(bytes[128 + at * 8..][..8].try_into().unwrap());
    let elements = fortran.read_vec::<f64>().unwrap();
    assert_eq!((elements[0], elements[1], elements[19]), (stored(0), stored(13), stored(1)));
    let column = fortran.index(&[(..).into(), 4.into()]).unwrap();
    assert_eq!(column.read_vec::<f64>().unwrap()[2], stored(4 * 13 + 2));
    let scalar = fortran.index(&[12.into(), 18.into()]).unwrap();
    assert_eq!(scalar.read_scalar::<f64>().unwrap(), stored(13 * 19 - 1));
}
