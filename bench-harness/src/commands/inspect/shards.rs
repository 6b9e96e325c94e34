//! `GAMSAE01` shards: one, or all of a directory.

use std::path::Path;

use ringmain::Engine;
use ringmain::backends::ReadBackendExt;
use ringmain::shards::{SHARD_MAGIC, ShardSource};
use serde_json::{Map, json};

use super::Inspection;
use crate::failure::Failure;
use crate::generate::{is_shard_name, shard_files};

/// A directory that no other format took must hold shards. A file is a shard by its name or by its
/// first bytes.
pub(super) fn inspect(engine: &Engine, path: &Path) -> Option<Result<Inspection, Failure>> {
    if path.is_dir() {
        return Some(describe_dir(engine, path));
    }
    (is_shard_name(path) || has_magic(engine, path)).then(|| describe(engine, path, &[path]))
}

fn has_magic(engine: &Engine, path: &Path) -> bool {
    let backend = engine.backend();
    let mut magic = [0; SHARD_MAGIC.len()];
    let read = backend.open(path).and_then(|file| backend.read_exact_at(&file, 0, &mut magic));
    read.is_ok() && magic == SHARD_MAGIC
}

fn describe_dir(engine: &Engine, dir: &Path) -> Result<Inspection, Failure> {
    let files = shard_files(dir)?;
    if files.is_empty() {
        let dir = dir.display();
        let message = format!(
            "{dir} is a directory without *.shard files and without *.safetensors files; name a file in it"
        );
        return Err(Failure::Usage { message });
    }
    describe(engine, dir, &files)
}

fn describe(
    engine: &Engine,
    path: &Path,
    files: &[impl AsRef<Path>],
) -> Result<Inspection, Failure> {
    let source = ShardSource::open(engine, files)?;
    let mut bytes = 0;
    for file in files {
        let failed = |source| Failure::ReadFile { path: file.as_ref().to_owned(), source };
        bytes += std::fs::metadata(file).map_err(failed)?.len();
    }
    let mut facts = Map::new();
    facts.insert("shards".into(), json!(files.len()));
    facts.insert("rows".into(), json!(source.total_rows()));
    facts.insert("columns".into(), json!(source.width()));
    facts.insert("dtype".into(), json!("float32"));
    facts.insert("row_bytes".into(), json!(source.width() * 4));
    Ok(Inspection { format: "GAMSAE01", path: path.display().to_string(), bytes, facts })
}
