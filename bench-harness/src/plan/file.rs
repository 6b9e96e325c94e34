//! `plan.toml`.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::Plan;
use crate::failure::Failure;

/// A plan has a few lines. The parser takes up to a hundred times as much memory.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Reads a plan; an error names line and column.
pub(crate) fn read_plan(path: &Path) -> Result<Plan, Failure> {
    let bytes = read_start(path, FILE_BYTES_MAX + 1)
        .map_err(|source| Failure::ReadFile { path: path.to_owned(), source })?;
    // Compared first: the cut may go through a letter.
    let plan = if bytes.len() as u64 > FILE_BYTES_MAX {
        Err(format!("the file has more than {FILE_BYTES_MAX} bytes, which is too large for a plan"))
    } else {
        let text = str::from_utf8(&bytes).map_err(|_| "the file is not UTF-8 text".to_owned());
        text.and_then(parse_plan)
    };
    plan.map_err(|message| Failure::Plan { path: path.to_owned(), message })
}

/// Reads at most `bytes_max` bytes: the file may be a pipe, whose length is not known.
fn read_start(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn parse_plan(text: &str) -> Result<Plan, String> {
    toml::from_str(text).map_err(|error| error.to_string())
}

/// Returns the text of a plan for [`read_plan`], with every default.
pub(crate) fn render_plan(plan: &Plan) -> Result<String, Failure> {
    let toml = toml::to_string_pretty(plan)
        .map_err(|error| Failure::Usage { message: format!("cannot write the plan: {error}") })?;
    Ok(format!(
        "# A plan for `ringmain bench --plan FILE`. An empty list stands for the default.\n{toml}"
    ))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_default_plan_survives_a_round_trip() {
        let text = render_plan(&Plan::default()).unwrap();
        assert_eq!(toml::from_str::<Plan>(&text).unwrap(), Plan::default(), "{text}");
    }

    /// Access policies, huge pages, block shuffle, delivered types, memory managers, alignment, windows, processes and
    /// epochs.
    #[test]
    fn a_plan_holds_every_axis() {
        let text = r#"
            backends = ["auto", "pread+random", "mmap+huge", "mmap+sequential", "uring+buffered"]
            workloads = ["shards", "samples", "samples-aligned", "weights"]
            variants = ["blocks", "shuffled-f32", "random-os-cache", "quasi-random-pages", "recycled"]
            caches = ["cold", "warm"]
            batches = [256]
            depths = [8, 128]
            processes = [1, 4]
            threads = [1, 2]
            window_bytes = ["32M", "1G"]
            epochs = 3
            memory_limit_bytes = "4G"
        "#;
        let plan = parse_plan(text).unwrap();
        plan.check().unwrap();
        assert_eq!((plan.processes.as_slice(), plan.epochs), (&[1, 4][..], 3));
        assert_eq!(parse_plan(&render_plan(&plan).unwrap()).unwrap(), plan);
        for (wrong, part) in [("blocks", "block"), ("mmap+huge", "mmap+hug"), ("epochs", "epoch")] {
            let broken = parse_plan(&text.replace(wrong, part));
            assert!(broken.is_err() || broken.unwrap().check().is_err(), "{part}");
        }
    }

    #[test]
    fn an_error_names_line_and_column() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.toml");
        fs::write(&path, "seconds = 1.0\nbackends = [\"pread\", \"urnig\"]\n").unwrap();
        let message = read_plan(&path).unwrap_err().to_string();
        assert!(message.contains("line 2, column"), "{message}");
        assert!(message.contains("did you mean `uring`"), "{message}");
    }

    #[test]
    fn a_file_that_is_too_large_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.toml");
        let comment = |bytes: u64| "#".repeat(bytes as usize);
        fs::write(&path, comment(FILE_BYTES_MAX)).unwrap();
        assert_eq!(read_plan(&path).unwrap(), Plan::default());
        fs::write(&path, comment(FILE_BYTES_MAX + 1)).unwrap();
        let message = read_plan(&path).unwrap_err().to_string();
        assert!(message.contains("too large for a plan"), "{message}");
        // The cut through a letter of several bytes was reported instead.
        fs::write(&path, "ß".repeat(FILE_BYTES_MAX as usize)).unwrap();
        let message = read_plan(&path).unwrap_err().to_string();
        assert!(message.contains("too large for a plan"), "{message}");
        fs::write(&path, b"# \xFF").unwrap();
        let message = read_plan(&path).unwrap_err().to_string();
        assert!(message.contains("UTF-8"), "{message}");
    }
}
