//! `ringmain probe`: what works here, and what `auto` takes.

use std::borrow::Cow;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ringmain_backends::AutoReport;
use ringmain_backends::probe::{BackendProbe, KernelFeatures, Probe};
use tempfile::NamedTempFile;

use crate::cli::ProbeArgs;
use crate::failure::Failure;
use crate::size::format_bytes;
use crate::table::Table;

/// Enough for every backend to read a few device blocks.
const PROBE_FILE_BYTES: usize = 64 << 10;
/// How many files of a folder that takes no new one are tried.
const TRIED_FILES_MAX: usize = 100;

/// Prints what was found.
pub(crate) fn run(args: &ProbeArgs, out: &mut impl Write) -> Result<(), Failure> {
    let (found, note) = probe_path(&args.path)?;
    let report = Report::new(&args.path, &found, note);
    let text =
        if args.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.to_text() };
    out.write_all(text.as_bytes()).map_err(Failure::Output)
}

/// A file is read as it is. In a folder one is made, which goes away again in any case. The note
/// says what was read instead, if the folder takes no file.
fn probe_path(path: &Path) -> Result<(Probe, Option<String>), Failure> {
    if !path.is_dir() {
        return Ok((ringmain::probe(path)?, None));
    }
    match probe_file(path) {
        Ok(file) => Ok((ringmain::probe(file.path())?, None)),
        Err(source) => probe_instead(path, source),
    }
}

/// Probes with a file of the folder. If none can be read, with a new one in the temporary folder,
/// which may be on another filesystem.
fn probe_instead(dir: &Path, source: io::Error) -> Result<(Probe, Option<String>), Failure> {
    let why = format!("no file can be made in {} ({source})", dir.display());
    let probed = files_of(dir).into_iter().find_map(|path| ringmain::probe(&path).ok());
    if let Some(probed) = probed {
        let note = format!("{why}; this is what reads of {} found", probed.path.display());
        return Ok((probed, Some(note)));
    }
    let temporary = std::env::temp_dir();
    match probe_file(&temporary) {
        Ok(file) => {
            let note = format!(
                "{why} and none in it can be read; this is what reads of a file in {} found, which \
                 may be on another filesystem",
                temporary.display()
            );
            Ok((ringmain::probe(file.path())?, Some(note)))
        }
        Err(temporary_source) => {
            let dir = dir.to_owned();
            Err(Failure::NothingToProbe { dir, source, temporary, temporary_source })
        }
    }
}

/// Files of a folder that have something to read, in the order of their names. Only regular ones:
/// opening a pipe would wait for a writer.
fn files_of(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort_unstable();
    paths.retain(|path| path.metadata().is_ok_and(|found| found.is_file() && found.len() > 0));
    paths.truncate(TRIED_FILES_MAX);
    paths
}

/// A new file with something to read, which goes away when it is dropped.
pub(crate) fn probe_file(dir: &Path) -> io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix(".ringmain-probe-").tempfile_in(dir)?;
    file.write_all(&[0xA5; PROBE_FILE_BYTES])?;
    Ok(file)
}

/// What is printed. Its fields are those of the JSON output.
#[derive(Debug, serde::Serialize)]
struct Report<'a> {
    ringmain_version: &'static str,
    /// The kernel's release, where there is one to be read.
    kernel: Option<String>,
    /// The path asked about, made absolute.
    path: String,
    /// What was read instead of a new file at that path.
    note: Option<String>,
    features: &'a KernelFeatures,
    backends: &'a [BackendProbe],
    auto: &'a AutoReport,
}

impl<'a> Report<'a> {
    fn new(path: &Path, found: &'a Probe, note: Option<String>) -> Self {
        let absolute = std::path::absolute(path).map_or(Cow::Borrowed(path), Cow::Owned);
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        Self {
            ringmain_version: env!("CARGO_PKG_VERSION"),
            kernel: release.map(|release| release.trim().to_owned()),
            path: absolute.display().to_string(),
            note,
            features: &found.features,
            backends: &found.backends,
            auto: &found.auto,
        }
    }

    fn to_text(&self) -> String {
        let mut head = Table::default();
        head.row("path", self.path.as_str());
        if let Some(note) = &self.note {
            head.row("note", note.as_str());
        }
        head.row("kernel", self.kernel.as_deref().unwrap_or("unknown"));
        head.row("ringmain", self.ringmain_version);
        format!(
            "{}\nKernel and filesystem\n{}\nBackends\n{}\nauto takes {}\n{}",
            head.render(),
            features_table(self.features).render(),
            backends_table(self.backends).render(),
            self.auto.choice,
            auto_table(self.auto).render(),
        )
    }
}

fn features_table(features: &KernelFeatures) -> Table {
    let mut table = Table::default();
    let ring = match features.io_uring {
        true => yes_with(&features.io_uring_setup_flags.join(", ")),
        false => no_with(features.io_uring_reason.as_deref()),
    };
    table.row("io_uring", ring);
    table.row("O_DIRECT", direct_text(features));
    table.row("RWF_DONTCACHE", yes_or_no(features.rwf_dontcache));
    let cachestat = match features.cachestat {
        true => "yes".into(),
        false => no_with(features.cachestat_reason.as_deref()),
    };
    table.row("cachestat", cachestat);
    let memlock = features.memlock_bytes.map(format_bytes);
    table.row("lockable memory", memlock.unwrap_or_else(|| "no limit".into()));
    let open_files = features.open_files_max.map(|limit| limit.to_string());
    table.row("open files", open_files.unwrap_or_else(|| "no limit".into()));
    table
}

fn direct_text(features: &KernelFeatures) -> String {
    match (features.dio_mem_align, features.dio_offset_align) {
        _ if !features.o_direct => "no".into(),
        (Some(memory), Some(offset)) => {
            format!("yes: memory aligned to {memory} bytes, offset and length to {offset}")
        }
        _ => "yes".into(),
    }
}

fn backends_table(backends: &[BackendProbe]) -> Table {
    let mut table = Table::default();
    for backend in backends {
        let text = if backend.available {
            yes_with(&backend.features.join(", "))
        } else {
            format!("no: {}", backend.reason)
        };
        table.row(backend.name.name(), text);
        for missing in &backend.degradations {
            table.row("", format!("without {}: {}", missing.what, missing.reason));
        }
    }
    table
}

fn auto_table(auto: &AutoReport) -> Table {
    let mut table = Table::default();
    table.row("why", auto.reason.as_str());
    table
}

fn yes_with(details: &str) -> String {
    if details.is_empty() { "yes".into() } else { format!("yes: {details}") }
}

fn no_with(reason: Option<&str>) -> String {
    reason.map_or_else(|| "no".into(), |reason| format!("no: {reason}"))
}

fn yes_or_no(is_there: bool) -> &'static str {
    if is_there { "yes" } else { "no" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files_in(dir: &Path) -> usize {
        dir.read_dir().unwrap().count()
    }

    #[test]
    fn a_directory_is_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let file = probe_file(dir.path()).unwrap();
        let name = file.path().file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with(".ringmain-probe-"), "{name}");
        assert_eq!(files_in(dir.path()), 1);
        drop(file);
        probe_path(dir.path()).unwrap();
        assert_eq!(files_in(dir.path()), 0);
    }
}
