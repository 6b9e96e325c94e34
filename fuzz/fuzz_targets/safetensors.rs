//! Any bytes as a safetensors file, or as the index of a model: refused or loaded, but never a
//! panic, nor bytes that are not the file's. What is loaded the `safetensors` crate must know too,
//! and what it knows must be loaded.
#![no_main]

use std::sync::Arc;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use ringmain::backends::MemoryBackend;
use ringmain::weights::{LoadOptions, TensorDamage, Weights, WeightsDamage};
use ringmain::{Damage, Engine};
use safetensors::SafeTensors;

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    /// A file of a header, whose length is right, and data.
    Parts { json: &'a str, data: &'a [u8], rows: (usize, usize) },
    /// Just any bytes.
    File(&'a [u8]),
    /// An index, beside the file `a` of one tensor `t`.
    Index(&'a [u8]),
}

const TINY: &[u8] =
    b"\x37\0\0\0\0\0\0\0{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}  x";

fn open(name: &str, files: &[(&str, &[u8])]) -> ringmain::Result<Weights> {
    let memory = MemoryBackend::new();
    for (name, bytes) in files {
        memory.insert(*name, *bytes);
    }
    let engine = Engine::builder().with_backend(Arc::new(memory)).build().expect("an engine");
    Weights::open(&engine, name)
}

fn check_file(bytes: &[u8], rows: (usize, usize)) {
    let ours = open("fuzzed.safetensors", &[("fuzzed.safetensors", bytes)]);
    let theirs = SafeTensors::deserialize(bytes);
    let weights = match ours {
        Ok(weights) => weights,
        Err(error) => {
            assert!(error.to_string().contains("fuzzed"), "{error}");
            // Of two tensors with one name the crate sees the last.
            let twice = WeightsDamage::BadTensor(TensorDamage::Twice);
            let is_twice = matches!(error.damage(), Some(Damage::Weights(damage)) if *damage == twice)
                || error.to_string().contains("there twice");
            assert!(is_twice || theirs.is_err(), "{error}");
            return;
        }
    };
    let theirs = theirs.expect("the crate refuses it");
    assert_eq!(weights.len(), theirs.len());
    for tensor in weights.load(LoadOptions::new().window_bytes(0)).expect("all tensors") {
        let tensor = tensor.expect("its bytes are there");
        let same = theirs.tensor(tensor.name()).expect("the crate has it");
        assert_eq!((tensor.shape(), tensor.bytes()), (same.shape(), same.data()));
        assert_eq!(tensor.dtype(), same.dtype());
        if let Ok(part) = weights.read_rows(tensor.name(), rows.0..rows.1) {
            assert_eq!(part.shape()[0], rows.1 - rows.0);
            let row_bits = same.data().len() * 8 / same.shape()[0].max(1);
            assert_eq!(part.bytes(), &same.data()[rows.0 * row_bits / 8..rows.1 * row_bits / 8]);
        }
        if let Ok(view) = weights.view(tensor.name()) {
            assert_eq!(
                view.read_buffer().map(|bytes| bytes.to_vec()).ok().as_deref(),
                Some(same.data())
            );
        }
    }
}

fuzz_target!(|input: Input<'_>| match input {
    Input::Parts { json, data, rows } => {
        let length = (json.len() as u64).to_le_bytes();
        check_file(&[&length, json.as_bytes(), data].concat(), rows);
    }
    Input::File(bytes) => check_file(bytes, (0, 1)),
    Input::Index(json) => match open("m.index.json", &[("m.index.json", json), ("a", TINY)]) {
        Ok(weights) => {
            assert!(weights.len() <= 1);
            assert!(weights.tensors().all(|tensor| tensor.name() == "t"));
        }
        Err(error) => assert!(error.path().is_some(), "{error}"),
    },
});
