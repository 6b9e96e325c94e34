//! Arrays and shards that lie in several files, read by an ordinary engine.
#![allow(clippy::expect_used, reason = "helpers of tests are tests")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use concatenated::{Concatenated, Part};
use ringmain::shards::{ShardSource, encode_shard_bytes};
use ringmain::{Engine, Error, Kind};
use ringmain_backends::{BackendKind, BackendOptions, open_backend};
use tempfile::TempDir;

/// Writes `bytes` into three files, each with something else around its part, and returns an engine
/// that reads them as one.
fn engine_over(dir: &TempDir, bytes: &[u8]) -> (Engine, Vec<Part>) {
    let third = bytes.len() / 3;
    let pieces = [&bytes[..third], &bytes[third..third + 7], &bytes[third + 7..]];
    let write = |(number, piece): (usize, &[u8])| {
        let path: PathBuf = dir.path().join(format!("{number}.bin"));
        let around = vec![0xEE; 100 + number];
        std::fs::write(&path, [&around, piece, &around].concat()).expect("a file to write");
        let start = around.len() as u64;
        Part { path, range: start..start + piece.len() as u64 }
    };
    let parts: Vec<Part> = pieces.into_iter().enumerate().map(write).collect();
    let inner = open_backend(BackendKind::Auto, &BackendOptions::default()).expect("`auto`");
    let layout = parts.clone();
    let backend = Concatenated::new(inner, move |_path| layout.clone());
    let engine = Engine::builder().with_backend(Arc::new(backend)).build();
    (engine.expect("an engine over any backend"), parts)
}

#[test]
fn a_view_crosses_the_parts() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let numbers: Vec<u32> = (0..3000).collect();
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let (engine, _) = engine_over(&dir, &bytes);
    assert!(engine.describe().to_string().contains("concatenated"));
    let view = engine.open_raw("all.bin", Kind::U32, &[100, 30], 0)?;
    assert_eq!(view.read_vec::<u32>()?, numbers);
    assert_eq!(view.at(34)?.read_vec::<u32>()?, numbers[1020..1050]);
    let error = engine.open_raw("all.bin", Kind::U32, &[3001], 0).unwrap_err();
    assert!(error.to_string().contains("12000"), "{error}");
    Ok(())
}

#[test]
fn a_shard_crosses_the_parts_and_notices_a_change_in_one() -> Result<(), Box<dyn std::error::Error>>
{
    let dir = tempfile::tempdir()?;
    let values: Vec<f64> = (0..4000u16).map(f64::from).collect();
    let (engine, parts) = engine_over(&dir, &encode_shard_bytes(&values, 8)?);
    let mut source = ShardSource::open(&engine, [Path::new("all.shard")])?;
    let mut read = Vec::new();
    while let Some(batch) = source.next_batch()? {
        read.extend_from_slice(batch.rows_f64().unwrap_or_default());
    }
    assert!(read == values, "{} values were read", read.len());

    let mut bytes = std::fs::read(&parts[1].path)?;
    bytes.push(0);
    std::fs::write(&parts[1].path, bytes)?;
    source.reset();
    let error = source.next_batch().unwrap_err();
    assert!(matches!(error, Error::Changed { .. }), "{error}");
    Ok(())
}
