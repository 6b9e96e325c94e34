//! A shard that has a length, but no data.

use std::path::{Path, PathBuf};

/// Makes a shard with `rows` rows of one value, all of them a hole in the file.
pub(crate) fn sparse_shard(dir: &Path, rows: u64) -> PathBuf {
    let path = dir.join(format!("{rows}.shard"));
    let header = [*b"GAMSAE01", rows.to_le_bytes(), 1u64.to_le_bytes(), [0; 8]].concat();
    std::fs::write(&path, header).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(32 + 4 * rows).unwrap();
    path
}
