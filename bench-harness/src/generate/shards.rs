//! `GAMSAE01` shards of random rows.

use std::path::{Path, PathBuf};

use ringmain::Damage;
use ringmain::shards::{HEADER_LEN, ShardDamage, ShardWriter, list_shards};

use super::RawBytes;
use crate::failure::Failure;
use crate::system::interrupt;
use crate::system::whole_file::already_exists;
use crate::text::progress::Progress;

/// A row is made in memory, so it has 256 MiB at most.
const WIDTH_MAX: usize = 1 << 26;
const NAME_DIGITS_MIN: usize = 3;

/// The size of a corpus and its number of shards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardSizes {
    pub(crate) rows: u64,
    pub(crate) width: usize,
    pub(crate) shards: u64,
}

impl ShardSizes {
    /// Returns the bytes of all shards.
    pub(crate) fn bytes(&self) -> Result<u64, Failure> {
        if self.shards == 0 || self.width == 0 {
            let message = "a corpus needs at least one shard and one column";
            return Err(Failure::Usage { message: message.to_owned() });
        }
        if self.width > WIDTH_MAX {
            let message = format!("{} columns are too many; the limit is {WIDTH_MAX}", self.width);
            return Err(Failure::Usage { message });
        }
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

    /// Returns the name of a shard. All names have as many digits as the last one, so that shards sorted
    /// by name are in the order of their rows.
    fn name_of(&self, shard: u64) -> String {
        let digits = self.shards.saturating_sub(1).to_string().len().max(NAME_DIGITS_MIN);
        format!("part-{shard:0digits$}.shard")
    }

    /// Returns the number of rows in a shard; the first shards may have one more than the others.
    fn rows_of(&self, shard: u64) -> u64 {
        self.rows / self.shards + u64::from(shard < self.rows % self.shards)
    }
}

/// Returns an error if the folder has shards. Some would be replaced, and readers would take the others for a part of the
/// corpus.
pub(crate) fn refuse_shards(dir: &Path) -> Result<(), Failure> {
    let found = shard_files(dir)?;
    found.first().map_or(Ok(()), |shard| Err(already_exists(shard, "folder")))
}

/// Writes the shards `part-000.shard` and so on. Their values, from -1 to 1, depend on the seed and
/// not on the number of shards. `written` gets the path of each shard before it is made.
pub(crate) fn write_shards(
    dir: &Path,
    sizes: ShardSizes,
    seed: u64,
    progress: &Progress,
    written: &mut Vec<PathBuf>,
) -> Result<(), Failure> {
    let mut random = RawBytes::new(seed);
    // Whole words of the generator for any width.
    let mut bits = vec![0; (sizes.width * 4).next_multiple_of(8)];
    let mut row = vec![0f32; sizes.width];
    for shard in 0..sizes.shards {
        let path = dir.join(sizes.name_of(shard));
        written.push(path.clone());
        let mut writer = ShardWriter::create(&path, sizes.width)?;
        for _ in 0..sizes.rows_of(shard) {
            if interrupt::is_requested() {
                return Err(Failure::Interrupted);
            }
            random.fill(&mut bits);
            let (words, _) = bits.as_chunks::<4>();
            for (value, word) in row.iter_mut().zip(words) {
                *value = (u32::from_le_bytes(*word) >> 8) as f32 / (1 << 23) as f32 - 1.0;
            }
            writer.write(&row)?;
            progress.advance(row.len() as u64 * 4);
        }
        writer.finish()?;
    }
    Ok(())
}

/// Returns the shards that `open_dir` would open in a folder, or the file itself; none if it is not a
/// shard.
pub(crate) fn shard_files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |source| Failure::ReadFile { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(failed)?.is_file() {
        let file = Some(path.to_owned()).filter(|path| is_shard_name(path));
        return Ok(file.into_iter().collect());
    }
    match list_shards(path) {
        Err(error) if is_empty(&error) => Ok(Vec::new()),
        listed => Ok(listed?),
    }
}

fn is_empty(error: &ringmain::Error) -> bool {
    matches!(error.damage(), Some(Damage::Shard(ShardDamage::Empty { .. })))
}

pub(crate) fn is_shard_name(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "shard")
}

#[cfg(test)]
mod tests {
    use ringmain::Engine;
    use ringmain::shards::ShardSource;

    use super::*;

    fn values(shards: u64, seed: u64) -> Vec<f64> {
        let dir = tempfile::tempdir().unwrap();
        let sizes = ShardSizes { rows: 101, width: 5, shards };
        let progress = Progress::bytes("writing", 0);
        write_shards(dir.path(), sizes, seed, &progress, &mut Vec::new()).unwrap();
        let source = ShardSource::open_dir(&Engine::new().unwrap(), dir.path()).unwrap();
        source.flat_map(|batch| batch.unwrap().rows_f64().unwrap().to_vec()).collect()
    }

    #[test]
    fn the_rows_depend_on_the_seed_and_not_on_the_shards() {
        let one = values(1, 7);
        assert_eq!((one.len(), &one), (505, &values(4, 7)));
        assert_ne!(one, values(1, 8));
        assert!(one.iter().all(|value| (-1.0..1.0).contains(value)));
    }

    #[test]
    fn too_many_rows_are_refused() {
        let sizes = ShardSizes { rows: u64::MAX, width: 8, shards: 1 };
        assert!(sizes.bytes().is_err());
        for (width, shards) in [(99_999_999_999_999, 1), (0, 1), (8, 0)] {
            assert!(ShardSizes { rows: 0, width, shards }.bytes().is_err(), "{width} {shards}");
        }
    }

    /// `part-1000` used to sort before `part-101`, which changed the order of the rows.
    #[test]
    fn names_sort_in_the_order_of_the_rows() {
        for shards in [1, 999, 1000, 1001, 10_001] {
            let sizes = ShardSizes { rows: 0, width: 1, shards };
            let names: Vec<String> = (0..shards).map(|shard| sizes.name_of(shard)).collect();
            assert!(names.is_sorted(), "{shards}");
        }
        let sizes = ShardSizes { rows: 0, width: 1, shards: 1000 };
        assert_eq!(sizes.name_of(7), "part-007.shard");
    }
}
