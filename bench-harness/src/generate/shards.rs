//! `GAMSAE01` shards of random rows.

use std::path::{Path, PathBuf};

use ringmain::shards::{HEADER_LEN, ShardError, ShardWriter};

use super::{RawBytes, check_space};
use crate::cli::GenShardsArgs;
use crate::failure::Failure;
use crate::interrupt;
use crate::progress::Progress;
use crate::size::format_bytes;

/// How large a corpus is, and how it is divided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardSizes {
    pub(crate) rows: u64,
    pub(crate) width: usize,
    pub(crate) shards: u64,
}

pub(super) fn run(args: &GenShardsArgs) -> Result<String, Failure> {
    let sizes = ShardSizes { rows: args.rows, width: args.width, shards: args.shards.max(1) };
    let bytes = sizes.bytes()?;
    std::fs::create_dir_all(&args.dir)
        .map_err(|source| Failure::WriteFile { path: args.dir.clone(), source })?;
    check_space(&args.dir, bytes)?;
    let progress = Progress::bytes("writing", bytes);
    write_shards(&args.dir, sizes, args.seed, &progress)?;
    progress.finish();
    let ShardSizes { rows, width, shards } = sizes;
    Ok(format!(
        "{}: {shards} shards, {rows} rows of {width} f32, {}, seed {}",
        args.dir.display(),
        format_bytes(bytes),
        args.seed
    ))
}

impl ShardSizes {
    fn bytes(&self) -> Result<u64, Failure> {
        let values = self.rows.checked_mul(self.width as u64);
        let bytes = values.and_then(|values| values.checked_mul(4));
        let headers = self.shards.checked_mul(HEADER_LEN as u64);
        bytes.zip(headers).and_then(|(bytes, headers)| bytes.checked_add(headers)).ok_or_else(
            || {
                let message = format!("{} rows of {} columns are too many", self.rows, self.width);
                Failure::Usage { message }
            },
        )
    }

    /// The rows of a shard: the same number in each, but for one more in the first ones.
    fn rows_of(&self, shard: u64) -> u64 {
        self.rows / self.shards + u64::from(shard < self.rows % self.shards)
    }
}

/// Writes the shards `part-000.shard` and so on, whose values, from -1 to 1, follow from the seed.
/// How they are divided does not change them.
pub(crate) fn write_shards(
    dir: &Path,
    sizes: ShardSizes,
    seed: u64,
    progress: &Progress,
) -> Result<Vec<PathBuf>, Failure> {
    let mut random = RawBytes::new(seed);
    // Whole words of the generator, whatever the width.
    let mut bits = vec![0; (sizes.width * 4).next_multiple_of(8)];
    let mut row = vec![0f32; sizes.width];
    let mut paths = Vec::new();
    for shard in 0..sizes.shards {
        let path = dir.join(format!("part-{shard:03}.shard"));
        let failed = |error: ShardError| Failure::from(error);
        let mut writer = ShardWriter::create(&path, sizes.width).map_err(failed)?;
        for _ in 0..sizes.rows_of(shard) {
            if interrupt::is_requested() {
                return Err(Failure::Interrupted);
            }
            random.fill(&mut bits);
            let (words, _) = bits.as_chunks::<4>();
            for (value, word) in row.iter_mut().zip(words) {
                *value = (u32::from_le_bytes(*word) >> 8) as f32 / (1 << 23) as f32 - 1.0;
            }
            writer.write(&row).map_err(failed)?;
            progress.advance(row.len() as u64 * 4);
        }
        writer.finish().map_err(failed)?;
        paths.push(path);
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use ringmain::Engine;
    use ringmain::shards::ShardSource;

    use super::*;

    fn values(shards: u64, seed: u64) -> Vec<f64> {
        let dir = tempfile::tempdir().unwrap();
        let args = GenShardsArgs { dir: dir.path().join("new"), rows: 101, width: 5, shards, seed };
        let line = run(&args).unwrap();
        assert!(line.contains("101 rows of 5 f32"), "{line}");
        let source = ShardSource::open_dir(&Engine::new().unwrap(), &args.dir).unwrap();
        source.flat_map(|batch| batch.unwrap().rows_f64().unwrap().to_vec()).collect()
    }

    #[test]
    fn the_rows_follow_from_the_seed_and_not_from_the_shards() {
        let one = values(1, 7);
        assert_eq!((one.len(), &one), (505, &values(4, 7)));
        assert_ne!(one, values(1, 8));
        assert!(one.iter().all(|value| (-1.0..1.0).contains(value)));
    }

    #[test]
    fn too_many_rows_are_refused() {
        let sizes = ShardSizes { rows: u64::MAX, width: 8, shards: 1 };
        assert!(sizes.bytes().is_err());
    }
}
