//! Files written by the safetensors package load with the sha256 of their manifest, on every
//! backend and in every way.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ringmain::weights::{Dtype, LoadOptions, Tensor, Weights};
use ringmain::{BufferPool, Index, backends::PoolOptions};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::support::engines_for;

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

/// Returns name, shape, type and sha256 of each tensor.
fn manifest() -> BTreeMap<String, (Vec<usize>, String, String)> {
    let json = std::fs::read(vectors().join("MANIFEST.json")).unwrap();
    let json: Value = serde_json::from_slice(&json).unwrap();
    let Value::Object(tensors) = &json["safetensors/mixed.safetensors"] else {
        panic!("an object")
    };
    assert_eq!(tensors.len(), 9, "the manifest has lost tensors");
    let entry = |(name, value): (&String, &Value)| {
        let shape = value["shape"].as_array().unwrap().iter();
        let shape = shape.map(|len| usize::try_from(len.as_u64().unwrap()).unwrap()).collect();
        let text = |key: &str| value[key].as_str().unwrap().to_owned();
        (name.clone(), (shape, text("dtype"), text("sha256")))
    };
    tensors.iter().map(entry).collect()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the tensors of the manifest that the files under a path hold: all, or those of the
/// index.
fn expected(weights: &Weights) -> BTreeMap<String, (Vec<usize>, String, String)> {
    let mut expected = manifest();
    expected.retain(|name, _| weights.info(name).is_ok());
    assert_eq!(expected.len(), weights.len());
    expected
}

fn check(weights: &Weights, what: &str, tensors: impl IntoIterator<Item = Tensor>) {
    let mut expected = expected(weights);
    for tensor in tensors {
        let what = format!("{what}: {tensor:?}");
        let (shape, torch_type, sum) = expected.remove(tensor.name()).expect(&what);
        assert_eq!(torch_name(tensor.dtype()), torch_type, "{what}");
        assert_eq!(tensor.shape(), shape, "{what}");
        assert_eq!(sha256(tensor.bytes()), sum, "{what}");
    }
    assert!(expected.is_empty(), "{what}: {expected:?} did not come");
}

/// Returns torch's name for the types of the vector.
fn torch_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F32 => "torch.float32",
        Dtype::BF16 => "torch.bfloat16",
        Dtype::F16 => "torch.float16",
        Dtype::I64 => "torch.int64",
        Dtype::U8 => "torch.uint8",
        Dtype::BOOL => "torch.bool",
        Dtype::F8_E4M3 => "torch.float8_e4m3fn",
        other => panic!("{other}"),
    }
}

/// Checks every way to get all tensors.
fn check_every_way(weights: &Weights, what: &str) {
    let names: Vec<_> = weights.tensors().map(|info| info.name().to_owned()).collect();
    let one_by_one = names.iter().map(|name| weights.read(name).unwrap());
    check(weights, &format!("{what}, one by one"), one_by_one);
    let reversed: Vec<_> = names.iter().rev().collect();
    let batch = weights.read_many(&reversed).unwrap();
    assert!(batch.iter().map(Tensor::name).eq(reversed.iter().map(|name| name.as_str())), "{what}");
    check(weights, &format!("{what}, as a batch"), batch);
    check(weights, &format!("{what}, all"), weights.read_all().unwrap());
    let limit_bytes = weights.pool_bytes();
    let pool = BufferPool::new(PoolOptions { limit_bytes, ..PoolOptions::default() }).unwrap();
    for _ in 0..2 {
        let tensors = weights.read_all_from(&pool).unwrap();
        check(weights, &format!("{what}, from a pool"), tensors);
    }
    assert_eq!(pool.stats().fresh as usize, weights.len(), "{what}: {:?}", pool.stats());
    for window_bytes in [0, 1, 8192, 1 << 30] {
        let options = LoadOptions::new().window_bytes(window_bytes);
        let tensors = weights.load(options).unwrap().map(Result::unwrap);
        check(weights, &format!("{what}, window of {window_bytes}"), tensors);
    }
    check_into(weights, what);
    check_parts(weights, what);
}

fn check_into(weights: &Weights, what: &str) {
    let expected = expected(weights);
    let memory = |name| vec![0xAA; weights.info(name).unwrap().nbytes()];
    let mut memory: Vec<_> = expected.keys().map(|name| memory(name)).collect();
    let mut wanted: Vec<_> =
        expected.keys().map(String::as_str).zip(memory.iter_mut().map(Vec::as_mut_slice)).collect();
    weights.read_many_bytes_into(&mut wanted).unwrap();
    for ((name, (.., sum)), bytes) in expected.iter().zip(&mut memory) {
        assert_eq!(&sha256(bytes), sum, "{what}: {name} into memory");
        bytes.fill(0xAA);
        weights.read_bytes_into(name, bytes).unwrap();
        assert_eq!(&sha256(bytes), sum, "{what}: {name} by itself into memory");
    }
}

/// Rows and views, put together, must be the tensor.
fn check_parts(weights: &Weights, what: &str) {
    for (name, (shape, _, sum)) in expected(weights) {
        let view = weights.view(&name).unwrap();
        assert_eq!(view.shape(), shape, "{what}: {name}");
        assert_eq!(sha256(&view.read_buffer().unwrap()), sum, "{what}: {name} as a view");
        let Some(rows) = shape.first().copied() else { continue };
        let (mut by_rows, mut by_views) = (Vec::new(), Vec::new());
        for start in (0..rows).step_by(7) {
            let end = (start + 7).min(rows);
            by_rows.extend_from_slice(weights.read_rows(&name, start..end).unwrap().bytes());
            let part = view.index(&[(start as i64..end as i64).into()]).unwrap();
            by_views.extend_from_slice(&part.read_buffer().unwrap());
        }
        assert_eq!(sha256(&by_rows), sum, "{what}: {name} by rows");
        assert_eq!(sha256(&by_views), sum, "{what}: {name} by slices");
    }
}

#[test]
fn every_tensor_has_its_sha256_on_every_backend() {
    let path = vectors().join("safetensors/mixed.safetensors");
    for engine in engines_for(&path) {
        let weights = Weights::open(&engine, &path).unwrap();
        check_every_way(&weights, &format!("mixed on {}", engine.backend().kind()));
    }
}

#[test]
fn a_model_of_two_files_opens_by_its_index_and_by_its_directory() {
    let dir = vectors().join("safetensors");
    let index = dir.join("model.safetensors.index.json");
    for engine in engines_for(&index) {
        for path in [&index, &dir] {
            let weights = Weights::open(&engine, path).unwrap();
            assert_eq!((weights.len(), weights.files().len()), (5, 2));
            check_every_way(&weights, &format!("the model on {}", engine.backend().kind()));
        }
    }
}

/// Compares basic selections of a tensor with the same selections of the whole tensor.
#[test]
fn slices_of_a_tensor_are_arrays() {
    let path = vectors().join("safetensors/mixed.safetensors");
    for engine in engines_for(&path) {
        let weights = Weights::open(&engine, &path).unwrap();
        let (whole, view) = (weights.read("a.f32").unwrap(), weights.view("a.f32").unwrap());
        let whole = whole.as_slice::<f32>().unwrap();
        let row = view.index(&[3.into(), (5..9).into()]).unwrap().read_vec::<f32>().unwrap();
        assert_eq!(row, whole[3 * 33 + 5..3 * 33 + 9]);
        let column = view.read_selection::<f32>(&[Index::ALL.into(), 2.into()]).unwrap();
        let expected: Vec<_> = whole.iter().skip(2).step_by(33).copied().collect();
        assert_eq!(column.elements, expected);
    }
}
