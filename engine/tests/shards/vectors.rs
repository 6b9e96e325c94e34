//! The shards that come with the description of the format.

use std::path::{Path, PathBuf};

use ringmain::Engine;
use ringmain::shards::{CorpusRowSource, ShardDamage, ShardOptions, ShardSource};
use ringmain::{Damage, Error, Item};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::corpus::hex;
use crate::support::engines_for;

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/shards")
}

fn expected() -> Value {
    let text = std::fs::read(vectors().join("EXPECTED.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn engines() -> Vec<Engine> {
    engines_for(&vectors().join("part-000.shard"))
}

#[test]
fn all_rows_have_the_hash_of_the_vectors() {
    let good = &expected()["good"];
    for engine in engines() {
        let kind = engine.backend().kind();
        let mut source = ShardSource::open_dir(&engine, vectors()).unwrap();
        assert_eq!(CorpusRowSource::total_rows(&source), good["total_rows"].as_u64().unwrap());
        assert_eq!(source.width() as u64, good["width"].as_u64().unwrap());
        let mut hash = Sha256::new();
        let mut sizes = Vec::new();
        while let Some(batch) = source.next_batch().unwrap() {
            batch.rows_f64().unwrap().iter().for_each(|value| hash.update(value.to_le_bytes()));
            sizes.push(batch.len());
        }
        assert_eq!(hex(&hash.finalize()), good["sha256_all_rows_f64_le"], "{kind}");
        assert_eq!(sizes, [100, 1, 257, 64], "batches end with their shards");
    }
}

#[test]
fn bad_files_fail_as_the_vectors_say() {
    let expected = expected();
    let bad = expected["bad"].as_object().unwrap();
    assert_eq!(bad.len(), 8, "the vectors have lost files");
    for engine in engines() {
        for (name, outcome) in bad {
            check_bad(&engine, name, outcome.as_str().unwrap());
        }
    }
}

fn check_bad(engine: &Engine, name: &str, outcome: &str) {
    let path = vectors().join("bad").join(name);
    let good = vectors().join("part-000.shard");
    let what = format!("{name} on {}", engine.backend().kind());
    let alone = ShardSource::open(engine, [&path]);
    let beside = ShardSource::open(engine, [&good, &path]);
    if outcome.starts_with("accepted") {
        assert_eq!((alone.unwrap().total_rows(), beside.unwrap().total_rows()), (4, 104), "{what}");
        return;
    }
    if outcome.starts_with("WidthMismatch") {
        assert_eq!(alone.unwrap().total_rows(), 4);
        let error = beside.unwrap_err();
        let fits = matches!(
            error.damage(),
            Some(Damage::Shard(ShardDamage::WidthMismatch { expected: 48, found: 49, .. }))
        );
        assert!(fits && error.to_string().contains(name), "{what}: {error}");
        return;
    }
    let error = alone.unwrap_err();
    let fits = match outcome.split([' ', ',']).next().unwrap() {
        "BadMagic" => matches!(error.damage(), Some(Damage::Shard(ShardDamage::BadMagic))),
        "BadDtype" => {
            matches!(error.damage(), Some(Damage::Shard(ShardDamage::BadDtype { tag: 7, .. })))
        }
        "Truncated" => matches!(error, Error::Truncated { .. }),
        "Empty" => is_empty(&error),
        other => panic!("{other}"),
    };
    assert!(fits, "{what}: {error:?}");
    assert!(error.to_string().contains(name), "the file is missing in: {error}");
    // Paths are made absolute, which on Windows also changes their spelling.
    let absolute = std::path::absolute(&path).unwrap();
    assert_eq!(error.path(), Some(&*absolute), "{what}");
    if is_empty(&error) {
        assert_eq!(beside.unwrap().total_rows(), 100, "{what}");
    } else {
        assert!(beside.is_err(), "{what}");
    }
}

fn is_empty(error: &Error) -> bool {
    matches!(error.damage(), Some(Damage::Shard(ShardDamage::Empty { .. })))
}

#[test]
fn a_corpus_without_rows_is_refused() {
    let engine = Engine::new().unwrap();
    let none: [&Path; 0] = [];
    let error = ShardSource::open(&engine, none).unwrap_err();
    assert!(matches!(error, Error::InvalidOption { option: "paths", .. }), "{error}");
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("part-000.shard.tmp"), b"no shard").unwrap();
    let error = ShardSource::open_dir(&engine, dir.path()).unwrap_err();
    assert!(is_empty(&error) && error.path() == Some(dir.path()), "{error}");
    assert!(error.to_string().contains("no `*.shard` files"), "{error}");
    let error = ShardSource::open_dir(&engine, dir.path().join("nowhere")).unwrap_err();
    assert!(error.is_not_found(), "{error}");
    let error = ShardSource::open(&engine, [dir.path().join("a.shard")]).unwrap_err();
    assert!(error.is_not_found(), "{error}");
}

#[test]
fn options_that_cannot_work_are_refused() {
    let engine = Engine::builder().memory_limit_bytes(1 << 20).build().unwrap();
    let refused = |options: ShardOptions, word: &str| {
        let error = options.open_dir(&engine, vectors()).unwrap_err();
        assert!(error.to_string().contains(word), "`{word}` is missing in: {error}");
        error
    };
    refused(ShardOptions::new().batch_size(0), "at least one row");
    refused(ShardOptions::new().partition(2, 2), "rank 2 of 2");
    refused(ShardOptions::new().partition(0, 0), "rank 0 of 0");
    refused(ShardOptions::new().only_rows([]), "empty list");
    let error = refused(ShardOptions::new().only_rows([3, 422]), "row 422");
    assert!(matches!(error, Error::NoSuchItem { item: Item::Row(422), .. }));
}
