//! `ringmain probe`: what the kernel and the filesystem offer, and what `auto` uses.

use std::borrow::Cow;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ringmain_backends::probe::{BackendProbe, KernelFeatures, Probe};
use ringmain_backends::{AutoReport, BackendKind};

use crate::cli::ProbeArgs;
use crate::failure::Failure;
use crate::measure::host::{Storage, kernel_release};
use crate::system::scratch::probe_file;
use crate::text::size::format_bytes;
use crate::text::table::Table;
/// How many files of a read-only folder are tried.
const TRIED_FILES_MAX: usize = 100;

/// Prints what was found.
pub(crate) fn run(args: &ProbeArgs, out: &mut impl Write) -> Result<(), Failure> {
    let (found, note) = probe_path(&args.path)?;
    let report = Report::new(&args.path, &found, note);
    let text =
        if args.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.to_text() };
    out.write_all(text.as_bytes()).map_err(Failure::Output)
}

/// Probes a file, or a folder with a temporary file. If the folder is read-only, the note says which
/// other file was read.
fn probe_path(path: &Path) -> Result<(Probe, Option<String>), Failure> {
    if !path.is_dir() {
        return Ok((ringmain::probe(path)?, None));
    }
    match probe_file(path) {
        Ok(file) => Ok((ringmain::probe(file.path())?, None)),
        Err(source) => probe_instead(path, source),
    }
}

/// Probes with an existing file of the folder. If none can be read, probes with a new file in the
/// temporary folder, which may be on another filesystem.
fn probe_instead(dir: &Path, source: io::Error) -> Result<(Probe, Option<String>), Failure> {
    let why = format!("cannot create a file in {} ({source})", dir.display());
    for path in files_of(dir) {
        match ringmain::probe(&path) {
            Ok(probed) => {
                let note = format!("{why}; the results are those of {}", path.display());
                return Ok((probed, Some(note)));
            }
            // Another file would not help.
            Err(ringmain::Error::Backend { cause, .. }) if cause.is_shortage() => {
                return Err((*cause).into());
            }
            Err(_) => {}
        }
    }
    let temporary = std::env::temp_dir();
    match probe_file(&temporary) {
        Ok(file) => {
            let note = format!(
                "{why} and no file in it can be read; the results are those of a file in {}, which \
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

/// Returns the regular files of a folder that are not empty, by name. Opening a pipe would wait for a
/// writer.
fn files_of(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort_unstable();
    paths.retain(|path| path.metadata().is_ok_and(|found| found.is_file() && found.len() > 0));
    paths.truncate(TRIED_FILES_MAX);
    paths
}

/// The output; its fields are those of the JSON output.
#[derive(Debug, serde::Serialize)]
struct Report<'a> {
    ringmain_version: &'static str,
    /// The release of the kernel, if it can be read.
    kernel: Option<String>,
    /// The absolute path of the argument.
    path: String,
    /// The filesystem and the device that hold it.
    storage: Storage,
    /// Which other file was read, if none could be made at that path.
    note: Option<String>,
    features: &'a KernelFeatures,
    backends: &'a [BackendProbe],
    auto: AutoReport,
}

impl<'a> Report<'a> {
    fn new(path: &Path, found: &'a Probe, note: Option<String>) -> Self {
        let absolute = std::path::absolute(path).map_or(Cow::Borrowed(path), Cow::Owned);
        let mut storage =
            Storage::describe(&fs::canonicalize(path).unwrap_or(absolute.to_path_buf()));
        // JSON cannot hold a name that is not UTF-8.
        storage.path = absolute.display().to_string().into();
        let auto = auto_on(&storage, &found.auto);
        Self {
            ringmain_version: env!("CARGO_PKG_VERSION"),
            kernel: kernel_release(),
            path: absolute.display().to_string(),
            storage,
            note,
            features: &found.features,
            backends: &found.backends,
            auto,
        }
    }

    fn to_text(&self) -> String {
        let mut head = Table::default();
        head.row("path", self.path.as_str());
        if let Some(note) = &self.note {
            head.row("note", note.as_str());
        }
        if let Some(filesystem) = &self.storage.filesystem {
            head.row("filesystem", mounted(filesystem, &self.storage));
        }
        if let Some(device) = &self.storage.device {
            head.row("device", named(device, self.storage.device_model.as_deref()));
        }
        head.row("kernel", self.kernel.as_deref().unwrap_or("unknown"));
        head.row("ringmain", self.ringmain_version);
        format!(
            "{}\nKernel and filesystem\n{}\nBackends\n{}\nauto\n{}",
            head.render(),
            features_table(self.features, self.backends).render(),
            backends_table(self.backends).render(),
            auto_table(&self.auto).render(),
        )
    }
}

/// Returns the report of `auto` as it is on this filesystem. If the filesystem keeps its files in memory, `auto`
/// finds all data in the page cache and copies it with `pread`.
fn auto_on(storage: &Storage, auto: &AutoReport) -> AutoReport {
    let mut auto = auto.clone();
    let in_memory =
        storage.filesystem.as_ref().filter(|_| storage.is_memory() && !follows_profile(&auto));
    if let Some(filesystem) = in_memory {
        auto.choice = BackendKind::Pread;
        auto.reason = format!(
            "{filesystem} keeps its files in memory: every read is a copy, and no data is cold"
        );
    }
    auto
}

fn follows_profile(auto: &AutoReport) -> bool {
    auto.profile.as_ref().is_some_and(|profile| profile.is_used)
}

/// `ext4, mounted at /data`.
fn mounted(filesystem: &str, storage: &Storage) -> String {
    match &storage.mount_point {
        Some(mount_point) => format!("{filesystem}, mounted at {}", mount_point.display()),
        None => filesystem.to_owned(),
    }
}

/// `/dev/nvme0n1 (Some Model)`.
fn named(device: &str, model: Option<&str>) -> String {
    model.map_or_else(|| device.to_owned(), |model| format!("{device} ({model})"))
}

/// A feature that is missing is explained by the backend that needs it.
fn features_table(features: &KernelFeatures, backends: &[BackendProbe]) -> Table {
    let reason = |kind: BackendKind| {
        let found = backends.iter().find(|backend| backend.name == kind && !backend.available);
        found.map(|backend| backend.reason.as_str())
    };
    let mut table = Table::default();
    let ring = match features.io_uring {
        true => yes_with(&features.io_uring_setup_flags.join(", ")),
        false => no_with(features.io_uring_reason.as_deref()),
    };
    table.row("io_uring", ring);
    table.row("O_DIRECT", direct_text(features, reason(BackendKind::Direct)));
    let dontcache = match features.rwf_dontcache {
        true => "yes".into(),
        false => no_with(reason(BackendKind::Uncached)),
    };
    table.row("RWF_DONTCACHE", dontcache);
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

fn direct_text(features: &KernelFeatures, reason: Option<&str>) -> String {
    match (features.dio_mem_align, features.dio_offset_align) {
        _ if !features.o_direct => no_with(reason),
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
        for lacking in &backend.degradations {
            table.row("", lacking.to_string());
        }
    }
    table
}

fn auto_table(auto: &AutoReport) -> Table {
    let choice = auto.choice;
    let reads = if choice == BackendKind::Pread || follows_profile(auto) {
        format!("all data with {choice}")
    } else {
        format!("cached data with pread, other data with {choice}")
    };
    let mut table = Table::default();
    table.row("reads", reads);
    table.row("why", auto.reason.as_str());
    table
}

fn yes_with(details: &str) -> String {
    if details.is_empty() { "yes".into() } else { format!("yes: {details}") }
}

fn no_with(reason: Option<&str>) -> String {
    format!("no: {}", reason.unwrap_or("the kernel or this filesystem does not offer it"))
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
