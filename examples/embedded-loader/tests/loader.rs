//! The batches must be the same with and without Ringmain: the expected values depend on neither.

// Clippy allows this in functions marked `#[test]`, but not in the helpers they share.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use embedded_loader::Loader;

const WIDTH: usize = 7;
const SHARDS: [u64; 4] = [10, 0, 25, 1];

fn value(row: u64, column: usize) -> f32 {
    row as f32 * 100.0 + column as f32 / 8.0
}

fn write_shard(path: &Path, rows: std::ops::Range<u64>) {
    let mut bytes = b"GAMSAE01".to_vec();
    bytes.extend((rows.end - rows.start).to_le_bytes());
    bytes.extend((WIDTH as u64).to_le_bytes());
    bytes.extend([0; 8]);
    for row in rows {
        bytes.extend((0..WIDTH).flat_map(|column| value(row, column).to_le_bytes()));
    }
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn rows_are_delivered_in_order_in_batches_that_end_with_their_shards() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = 0;
    for (at, rows) in SHARDS.into_iter().enumerate() {
        write_shard(&dir.path().join(format!("part-{at}.shard")), first..first + rows);
        first += rows;
    }
    let mut loader = Loader::open(dir.path(), 8).unwrap();
    assert_eq!(loader.width(), WIDTH);
    let (mut sizes, mut next) = (Vec::new(), 0);
    while let Some(batch) = loader.next_batch().unwrap() {
        sizes.push(batch.row_ids().len());
        for (row, id) in batch.rows().chunks(WIDTH).zip(batch.row_ids()) {
            assert_eq!(*id, next);
            assert!((0..WIDTH).all(|column| row[column] == value(next, column)), "row {next}");
            next += 1;
        }
    }
    assert_eq!((next, sizes), (36, vec![8, 2, 8, 8, 8, 1, 1]));
}

/// A large batch size means all rows of a shard, in both forms.
#[test]
fn a_batch_may_be_larger_than_the_corpus() {
    let dir = tempfile::tempdir().unwrap();
    write_shard(&dir.path().join("a.shard"), 0..10);
    write_shard(&dir.path().join("b.shard"), 10..13);
    for batch_rows in [11, 1 << 40, usize::MAX] {
        let mut loader = Loader::open(dir.path(), batch_rows).unwrap();
        let mut sizes = Vec::new();
        while let Some(batch) = loader.next_batch().unwrap() {
            sizes.push(batch.row_ids().len());
        }
        assert_eq!(sizes, [10, 3]);
    }
    assert!(Loader::open(dir.path(), 0).is_err());
}

#[test]
fn files_that_are_not_shards_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    assert!(Loader::open(dir.path(), 8).is_err(), "there are no shards");
    let path = dir.path().join("a.shard");
    write_shard(&path, 0..3);
    let whole = std::fs::read(&path).unwrap();
    for bad in [&whole[..20], &whole[..whole.len() - 1], &[&b"GAMSAE02"[..], &whole[8..]].concat()]
    {
        std::fs::write(&path, bad).unwrap();
        assert!(Loader::open(dir.path(), 8).is_err());
    }
}

/// The folder can be copied out of the repository: its manifest took settings from the workspace.
#[test]
fn the_manifest_needs_nothing_but_the_path_of_ringmain() {
    let manifest =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
    assert!(!manifest.contains("workspace = true"), "{manifest}");
    assert_eq!(manifest.matches("path = ").count(), 1, "{manifest}");
}
