//! Patterns of reads: fio's iolog and the engine's recordings.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use ringmain::Engine;
use serde_json::{Map, json};

use super::Inspection;
use crate::failure::Failure;
use crate::trace::Trace;

const HEADS: [&[u8]; 2] = [b"fio version ", b"ringmain recording "];

pub(super) fn inspect(_: &Engine, path: &Path) -> Option<Result<Inspection, Failure>> {
    let mut head = Vec::new();
    File::open(path).ok()?.take(32).read_to_end(&mut head).ok()?;
    HEADS.iter().any(|start| head.starts_with(start)).then(|| describe(path))
}

fn describe(path: &Path) -> Result<Inspection, Failure> {
    let trace = Trace::open(path)?;
    let failed = |source| Failure::ReadFile { path: path.to_owned(), source };
    let bytes = std::fs::metadata(path).map_err(failed)?.len();
    let threads: BTreeSet<u32> = trace.batches().map(|batch| batch.thread).collect();
    let seconds = trace.batches().map(|batch| batch.at_us).max().unwrap_or(0) as f64 / 1e6;
    let names: Vec<_> = trace.files.iter().map(|file| file.path.display().to_string()).collect();
    let mut facts = Map::new();
    facts.insert("files".into(), json!(names));
    facts.insert("batches".into(), json!(trace.batch_count()));
    facts.insert("reads".into(), json!(trace.reads().len()));
    facts.insert("read_bytes".into(), json!(trace.total_bytes()));
    facts.insert("threads".into(), json!(threads.len()));
    facts.insert("seconds".into(), json!(seconds));
    facts.insert("notes".into(), json!(trace.notes));
    Ok(Inspection { format: "trace", path: path.display().to_string(), bytes, facts })
}
