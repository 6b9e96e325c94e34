//! Wrong files cause a typed error that names file and tensor, and no panic.

use std::path::Path;

use ringmain::Engine;
use ringmain::weights::{TensorDamage, Weights, WeightsDamage};
use ringmain::{Damage, Error};

use crate::model::{Model, file, file_of, write};
use crate::support::{engines_for, temp_dir};

fn open(path: &Path) -> Error {
    let mut errors = Vec::new();
    for engine in engines_for(path) {
        errors.push(Weights::open(&engine, path).unwrap_err());
    }
    // Every backend must return the same error, except for its name.
    let kinds: Vec<_> = errors.iter().map(std::mem::discriminant).collect();
    assert!(kinds.windows(2).all(|pair| pair[0] == pair[1]), "{errors:?}");
    errors.pop().unwrap()
}

#[test]
fn headers_with_a_wrong_length_are_refused() {
    let dir = temp_dir();
    let long = |len: u64| [&len.to_le_bytes()[..], b"{}"].concat();
    for (bytes, expected) in [
        (vec![], "0 bytes"),
        (vec![0; 7], "7 bytes"),
        (long(100), "only 2 follow"),
        (long(100_000_001), "100000000 are allowed"),
        (long(u64::MAX), "100000000 are allowed"),
        (long(2)[..9].to_vec(), "only 1 follow"),
        (file_of("nonsense", b""), "cannot be parsed"),
        (file_of("{}", b"x"), "1 bytes follow"),
    ] {
        let path = write(dir.path(), "bad.safetensors", &bytes);
        let error = open(&path);
        assert!(
            matches!(error.damage(), Some(Damage::Weights(WeightsDamage::BadHeader { .. }))),
            "{error}"
        );
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.path(), Some(&*path));
    }
}

#[test]
fn impossible_tensors_are_refused_by_name() {
    let dir = temp_dir();
    let entry = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#)
    };
    let (a, b) = (entry("U8", "[4]", "[0,4]"), entry("U8", "[4]", "[2,6]"));
    type Fits = fn(&TensorDamage) -> bool;
    let cases: [(String, Fits); 4] = [
        (format!(r#"{{"w":{a},"x":{b}}}"#), |fault| matches!(fault, TensorDamage::Overlap { .. })),
        (format!(r#"{{"w":{a},"x":{a},"x":{a}}}"#), |fault| *fault == TensorDamage::Twice),
        (
            format!(r#"{{"x":{}}}"#, entry("F7", "[4]", "[0,4]")),
            |fault| matches!(fault, TensorDamage::UnknownDtype { dtype } if dtype == "F7"),
        ),
        (format!(r#"{{"x":{}}}"#, entry("U8", "[9]", "[0,9]")), |fault| {
            matches!(fault, TensorDamage::OutsideFile { end: 9, data_len: 6 })
        }),
    ];
    for (json, fits) in cases {
        let path = write(dir.path(), "bad.safetensors", &file_of(&json, b"abcdef"));
        let error = open(&path);
        let Some(Damage::Weights(WeightsDamage::BadTensor(fault))) = error.damage() else {
            panic!("{error}")
        };
        assert!(fits(fault), "{error}");
        assert_eq!((error.tensor(), error.path()), (Some("x"), Some(&*path)));
    }
}

#[test]
fn a_long_header_is_read_completely() {
    let spec = |at: usize| (format!("a.rather.long.name.of.a.tensor.{at}"), "U8", vec![1], 1);
    let model = Model::new((0..2000).map(spec).collect());
    for engine in engines_for(&model.path()) {
        assert_eq!(Weights::open(&engine, model.path()).unwrap().len(), 2000);
    }
}

#[test]
fn missing_files_and_folders_are_refused() {
    let dir = temp_dir();
    let engine = Engine::new().unwrap();
    let missing = Weights::open(&engine, dir.path().join("none.safetensors")).unwrap_err();
    assert!(missing.is_not_found(), "{missing}");
    let empty = Weights::open(&engine, dir.path()).unwrap_err();
    assert!(
        matches!(empty.damage(), Some(Damage::Weights(WeightsDamage::NoModel { .. }))),
        "{empty}"
    );
}

fn tiny(names: &[&str]) -> Vec<u8> {
    let specs: Vec<_> = names.iter().map(|name| ((*name).to_owned(), "U8", vec![2], 2)).collect();
    file(&specs)
}

#[test]
fn an_index_that_names_missing_files_or_tensors_is_refused() {
    let dir = temp_dir();
    write(dir.path(), "one.safetensors", &tiny(&["a", "b"]));
    let cases = [
        (r#"{"weight_map":{"a":"one.safetensors","c":"one.safetensors"}}"#, "c", "no tensor"),
        (r#"{"weight_map":{"a":"one.safetensors","d":"two.safetensors"}}"#, "d", "does not exist"),
    ];
    for (json, tensor, expected) in cases {
        let path = write(dir.path(), "model.safetensors.index.json", json.as_bytes());
        let error = open(&path);
        assert_eq!((error.path(), error.tensor()), (Some(&*path), Some(tensor)), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let path = write(dir.path(), "model.safetensors.index.json", b"{}");
    assert!(matches!(open(&path).damage(), Some(Damage::Weights(WeightsDamage::BadIndex { .. }))));
}

#[test]
fn two_files_with_the_same_tensor_need_an_index() {
    let dir = temp_dir();
    write(dir.path(), "one.safetensors", &tiny(&["a", "b"]));
    write(dir.path(), "two.safetensors", &tiny(&["b", "c"]));
    let engine = Engine::new().unwrap();
    let twice = Weights::open(&engine, dir.path()).unwrap_err();
    assert!(twice.to_string().contains("tensor `b` is in both"), "{twice}");
    let json = r#"{"weight_map":{"c":"two.safetensors","b":"one.safetensors"}}"#;
    write(dir.path(), "model.safetensors.index.json", json.as_bytes());
    let weights = Weights::open(&engine, dir.path()).unwrap();
    let names: Vec<_> = weights.tensors().map(|info| (info.name(), info.file())).collect();
    assert_eq!(names, [("b", 0), ("c", 1)]);
    assert!(matches!(weights.read("a").unwrap_err(), Error::NoSuchItem { .. }));
}
