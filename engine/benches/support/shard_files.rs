//! The shards that benches read: eight files with rows of 4 KiB of random values.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ringmain::shards::{ShardSource, ShardWriter};

use crate::support::random;

pub(crate) const SHARDS: u64 = 8;
pub(crate) const WIDTH: usize = 1024;
pub(crate) const ROW_BYTES: usize = WIDTH * 4;
pub(crate) const BATCH_ROWS: usize = 1024;

/// Writes shards of `bytes` bytes together, without their headers, and returns their paths. The values
/// are normal numbers: converting subnormal ones would take longer.
pub(crate) fn write_shards(dir: &Path, bytes: u64) -> Vec<PathBuf> {
    let (mut state, mut row) = (0x5EED, vec![0f32; WIDTH]);
    let write = |shard: u64| {
        let path = dir.join(format!("part-{shard:03}.shard"));
        let mut writer = ShardWriter::create(&path, WIDTH).unwrap();
        for _ in 0..bytes / SHARDS / ROW_BYTES as u64 {
            for value in &mut row {
                *value = random(&mut state, 1 << 24) as f32 / (1 << 23) as f32 - 1.0;
            }
            writer.write(&row).unwrap();
        }
        writer.finish().unwrap();
        path
    };
    (0..SHARDS).map(write).collect()
}

/// Returns the bytes per second of a pass over the whole corpus.
pub(crate) fn pass(source: &mut ShardSource) -> f64 {
    source.reset();
    let (start, mut bytes) = (Instant::now(), 0);
    while let Some(batch) = source.next_batch().unwrap() {
        bytes += batch.len() * ROW_BYTES;
        black_box(&batch);
    }
    bytes as f64 / start.elapsed().as_secs_f64()
}
