//! `ringmain inspect`: what is in a file. A new format is a file here and a line in [`FORMATS`].

mod beton;
mod npy;
mod records;
mod safetensors;
mod shards;
mod trace;

use std::io::Write;
use std::path::Path;

use ringmain::Engine;
use serde::Serialize;
use serde_json::Value;

use crate::cli::InspectArgs;
use crate::failure::Failure;
use crate::text::size::{exact_bytes, format_bytes_short};
use crate::text::table::Table;

/// The facts about a file.
#[derive(Debug, Serialize)]
pub(crate) struct Inspection {
    pub(crate) format: &'static str,
    pub(crate) path: String,
    pub(crate) bytes: u64,
    /// Everything else, in the order in which it is shown.
    #[serde(flatten)]
    pub(crate) facts: serde_json::Map<String, Value>,
}

/// Inspects a file; returns `None` if it has another format.
type Format = fn(&Engine, &Path) -> Option<Result<Inspection, Failure>>;

/// Shards come after weights, because they take every folder that is left.
const FORMATS: [Format; 5] =
    [npy::inspect, beton::inspect, safetensors::inspect, shards::inspect, trace::inspect];

/// The rows of a table that are shown without `--all`.
const ROWS_MAX: usize = 40;

pub(crate) fn run(args: &InspectArgs, out: &mut impl Write) -> Result<(), Failure> {
    let found = match &args.html {
        Some(page) => trace::inspect_with_page(&args.path, page)?,
        None => inspect(&args.path)?,
    };
    let rows_max = if args.all { usize::MAX } else { ROWS_MAX };
    let text = if args.json {
        serde_json::to_string_pretty(&found)? + "\n"
    } else {
        render(&found, rows_max)
    };
    out.write_all(text.as_bytes()).map_err(Failure::Output)
}

fn inspect(path: &Path) -> Result<Inspection, Failure> {
    let failed = |source| Failure::ReadFile { path: path.to_owned(), source };
    let metadata = std::fs::metadata(path).map_err(failed)?;
    // Opening a pipe would wait for a writer.
    if !metadata.is_file() && !metadata.is_dir() {
        let message = format!("{} is not a regular file, so it has no format", path.display());
        return Err(Failure::Usage { message });
    }
    let bytes = metadata.len();
    let engine = Engine::new()?;
    if let Some(found) = FORMATS.iter().find_map(|format| format(&engine, path)) {
        return found;
    }
    // Opening it shows whether it can be read.
    engine.backend().open(path)?;
    let path = path.display().to_string();
    Ok(Inspection { format: "raw", path, bytes, facts: serde_json::Map::new() })
}

/// Renders a column of facts, and below it a table for each fact that is a list of records.
fn render(found: &Inspection, rows_max: usize) -> String {
    let mut table = Table::default();
    table.row("path", found.path.as_str());
    table.row("format", found.format);
    let exact = exact_bytes(found.bytes);
    let short = format_bytes_short(found.bytes as f64);
    table.row("size", if found.bytes < 1024 { exact } else { format!("{short} ({exact})") });
    let mut lists = String::new();
    for (name, value) in &found.facts {
        match (records::of(value), value) {
            (Some(records), _) => {
                lists += &format!("\n{name}\n{}", records::render(&records, rows_max));
            }
            (None, Value::Array(sentences)) if sentences.iter().any(Value::is_string) => {
                lists += &format!("\n{name}\n");
                sentences.iter().for_each(|it| lists += &format!(" {}\n", records::text("", it)));
            }
            (None, value) => table.row(name, records::text(name, value)),
        }
    }
    table.render() + &lists
}
