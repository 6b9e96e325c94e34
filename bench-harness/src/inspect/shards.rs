//! `GAMSAE01` shards: one, or all of a directory.

use std::path::Path;

use ringmain::Engine;
use ringmain::backends::ReadBackendExt;
use ringmain::shards::{SHARD_MAGIC, ShardSource};
use serde_json::{Map, json};

use super::Inspection;
use crate::failure::Failure;
use crate::workload::shard_files;

pub(super) fn inspect(engine: &Engine, path: &Path) -> Option<Result<Inspection, Failure>> {
    if path.is_dir() {
        let has_shards = shard_files(path).is_ok_and(|files| !files.is_empty());
        return has_shards.then(|| describe_dir(engine, path));
    }
    let backend = engine.backend();
    let file = backend.open(path).ok()?;
    let mut magic = [0; SHARD_MAGIC.len()];
    backend.read_exact_at(&file, 0, &mut magic).ok()?;
    (magic == SHARD_MAGIC).then(|| describe(engine, path, &[path]))
}

fn describe_dir(engine: &Engine, dir: &Path) -> Result<Inspection, Failure> {
    describe(engine, dir, &shard_files(dir)?)
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
