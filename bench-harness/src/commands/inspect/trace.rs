//! Patterns of reads: recordings, fio's iolog and logs of strace.

use std::io::Read;
use std::path::Path;

use ringmain::Engine;
use serde_json::{Map, Value, json};

use super::Inspection;
use crate::failure::Failure;
use crate::system::regular::open_regular;
use crate::system::whole_file::{refuse_existing, write_whole};
use crate::trace::Trace;
use crate::trace::pattern::Pattern;

const FORMAT: &str = "trace";

/// The first line of every format of traces is shorter than this, or recognised by its beginning.
const HEAD_BYTES: u64 = 4096;

pub(super) fn inspect(_: &Engine, path: &Path) -> Option<Result<Inspection, Failure>> {
    // The files of the trace may be gone.
    is_trace(path)?.then(|| describe(path, &Trace::open_unchecked(path)?))
}

/// Inspects a trace, and writes its page. Other formats have none.
pub(super) fn inspect_with_page(path: &Path, page: &Path) -> Result<Inspection, Failure> {
    if is_trace(path) == Some(false) {
        let message = format!(
            "{} is not a trace, and only traces have pictures; leave out --html",
            path.display()
        );
        return Err(Failure::Usage { message });
    }
    if path.canonicalize().ok().is_some_and(|path| page.canonicalize().ok() == Some(path)) {
        let message = format!("--html {} would replace the trace", page.display());
        return Err(Failure::Usage { message });
    }
    refuse_existing(page, "file")?;
    let trace = Trace::open_unchecked(path)?;
    let found = describe(path, &trace)?;
    write_whole(page, &crate::report::html::trace::page(path, &trace))?;
    Ok(found)
}

/// Returns `None` for a file that cannot be read.
fn is_trace(path: &Path) -> Option<bool> {
    let mut head = Vec::new();
    open_regular(path).ok()?.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
    Some(Trace::is_trace(&head))
}

fn describe(path: &Path, trace: &Trace) -> Result<Inspection, Failure> {
    let failed = |source| Failure::ReadFile { path: path.to_owned(), source };
    let bytes = std::fs::metadata(path).map_err(failed)?.len();
    let facts = facts(trace)?;
    Ok(Inspection { format: FORMAT, path: path.display().to_string(), bytes, facts })
}

/// The figures, with the batches and the notes of the trace.
fn facts(trace: &Trace) -> Result<Map<String, Value>, Failure> {
    let mut facts = Map::new();
    if let Some(program) = trace.program.as_ref().filter(|program| !program.is_empty()) {
        facts.insert("program".into(), json!(program.to_string_lossy()));
    }
    facts.insert("files".into(), json!(trace.files.len()));
    facts.insert("batches".into(), json!(trace.batch_count()));
    let pattern = Pattern::of(trace);
    if let Value::Object(figures) = serde_json::to_value(pattern)? {
        facts.extend(figures);
    }
    facts.insert("notes".into(), json!(trace.notes));
    Ok(facts)
}
