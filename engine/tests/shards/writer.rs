//! Writing shards.

use std::path::Path;

use ringmain::Engine;
use ringmain::shards::{ShardDamage, ShardSource, ShardWriter, encode_shard_bytes};
use ringmain::{Damage, Error};

use crate::support::temp_dir;

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn pieces_of_any_size_make_the_same_file() {
    let values: Vec<f64> = (0..600_000).map(|at| f64::from(at) / 7.0).collect();
    let expected = encode_shard_bytes(&values, 3).unwrap();
    let dir = temp_dir();
    for piece in [1, 1000, 262_144, 600_000] {
        let path = dir.path().join("a.shard");
        let mut writer = ShardWriter::create(&path, 3).unwrap();
        let pieces = values[..30_000].chunks(piece).chain(values[30_000..].chunks(piece.max(999)));
        pieces.for_each(|values| writer.write(values).unwrap());
        assert_eq!(writer.finish().unwrap(), 200_000);
        assert!(std::fs::read(&path).unwrap() == expected, "pieces of {piece}");
    }
    assert_eq!(names(dir.path()), ["a.shard"]);
}

#[test]
fn f64_is_rounded_to_the_nearest_f32() {
    let bytes = encode_shard_bytes(&[0.1f64], 1).unwrap();
    assert_eq!(bytes[32..], 0.1f32.to_le_bytes());
}

#[test]
fn a_shard_has_no_name_before_it_is_complete() {
    let dir = temp_dir();
    let path = dir.path().join("a.shard");
    let mut writer = ShardWriter::create(&path, 2).unwrap();
    writer.write(&vec![1.0f32; 1 << 20]).unwrap();
    assert!(!path.exists());
    let there = names(dir.path());
    assert!(there.len() == 1 && there[0].ends_with(".tmp"), "{there:?}");
    // The remains of a crash are not taken for a shard, neither by name nor by content.
    let engine = Engine::new().unwrap();
    let error = ShardSource::open_dir(&engine, dir.path()).unwrap_err();
    let damage = error.damage();
    assert!(matches!(damage, Some(Damage::Shard(ShardDamage::Empty { .. }))), "{error}");
    let error = ShardSource::open(&engine, [dir.path().join(&there[0])]).unwrap_err();
    assert!(matches!(error.damage(), Some(Damage::Shard(ShardDamage::BadMagic))), "{error}");
    writer.finish().unwrap();
    assert_eq!(names(dir.path()), ["a.shard"]);
}

#[test]
fn an_abandoned_writer_leaves_the_old_file() {
    let dir = temp_dir();
    let path = dir.path().join("a.shard");
    let old = encode_shard_bytes(&[5.0f32], 1).unwrap();
    std::fs::write(&path, &old).unwrap();
    let mut writer = ShardWriter::create(&path, 1).unwrap();
    writer.write(&[6.0f32; 4]).unwrap();
    drop(writer);
    assert_eq!((names(dir.path()), std::fs::read(&path).unwrap()), (vec!["a.shard".into()], old));

    let mut writer = ShardWriter::create(&path, 2).unwrap();
    writer.write(&[1.0f32; 3]).unwrap();
    assert_eq!(writer.rows(), 1);
    let error = writer.finish().unwrap_err();
    assert!(matches!(&error, Error::InvalidItem { .. }), "{error}");
    assert_eq!(names(dir.path()), ["a.shard"]);
}

#[test]
fn impossible_shards_are_refused() {
    let dir = temp_dir();
    assert!(matches!(ShardWriter::create(dir.path().join("a"), 0), Err(Error::InvalidItem { .. })));
    let nowhere = dir.path().join("no/where.shard");
    assert!(ShardWriter::create(nowhere, 1).unwrap_err().is_not_found());
    assert!(matches!(ShardWriter::create("/", 1), Err(Error::Io { .. })));
    assert!(encode_shard_bytes(&[1.0f32; 3], 2).is_err());
    assert!(encode_shard_bytes::<f32>(&[], 0).is_err());
}

#[test]
fn a_shard_without_rows_is_valid() {
    let dir = temp_dir();
    ShardWriter::create(dir.path().join("a.shard"), 4).unwrap().finish().unwrap();
    std::fs::write(dir.path().join("b.shard"), encode_shard_bytes(&[1.0f32; 4], 4).unwrap())
        .unwrap();
    let source = ShardSource::open_dir(&Engine::new().unwrap(), dir.path()).unwrap();
    assert_eq!(source.total_rows(), 1);
}
