//! Records the reads of an unmodified program: its system calls by strace, and the page faults of its mappings by
//! events of the kernel.

mod faults;
mod target;

use std::fs::File;
use std::io::BufReader;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;

use crate::cli::RecordArgs;
use crate::failure::Failure;
use crate::system::interrupt;
use crate::system::scratch::without_path;
use crate::system::whole_file::{folder, write_whole_with};
use crate::trace::{Fault, Trace};
use faults::{FaultCollector, Faults};
use target::Target;

/// How long strace may take to let a process go.
const DETACHING_MAX: Duration = Duration::from_secs(3);

/// A recording that was written.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) trace: Trace,
    /// How the program ended, in words, if it failed.
    pub(crate) failure: Option<String>,
}

/// Runs the command, or watches the process, and writes the recording when it has ended.
pub(crate) fn record(args: &RecordArgs) -> Result<Recorded, Failure> {
    let target = Target::new(&args.command, args.pid)?;
    refuse_existing(&args.out)?;
    let only = absolute_paths(&args.only)?;
    let log = make_log(&args.out)?;
    let mut strace = target.strace(log.path())?;
    let collector = match args.no_mappings {
        true => None,
        false => Some(FaultCollector::start(&target.watched())),
    };
    let known = target.known();
    let status = run(&mut strace, &target)?;
    let (faults, notes) = finish(collector);
    // The notes may say why nothing was seen.
    let nothing = |reason: String| {
        let how = status_words(status).filter(|_| matches!(target, Target::Command(_)));
        let reasons: Vec<String> = [reason].into_iter().chain(how).chain(notes.clone()).collect();
        let message = format!("nothing was recorded: {}", reasons.join("; "));
        Failure::Trace { path: args.out.clone(), message }
    };
    let failed = |source| Failure::ReadFile { path: log.path().to_owned(), source };
    if log.as_file().metadata().map_err(failed)?.len() == 0 {
        return Err(nothing(target.why_nothing(interrupt::is_requested())));
    }
    let input = BufReader::new(File::open(log.path()).map_err(failed)?);
    let parsed = Trace::of_program(input, &faults.faults, known);
    let parsed = parsed.map_err(|fault| nothing(fault.message()))?;
    let in_out = |fault: Fault| fault.in_file(&args.out);
    let mut trace = parsed;
    if !only.is_empty() {
        let is_wanted = |path: &Path| only.iter().any(|start| path.starts_with(start));
        let kept = trace.only(|file| is_wanted(&file.path));
        trace = kept.map_err(|_| nothing("the program read no file that --only names".into()))?;
    }
    let mut trace = trace.without_files_that_are_gone().map_err(in_out)?;
    trace.notes.extend(notes);
    write_whole_with(&args.out, |file| trace.write_to(file))?;
    // The interrupt that ends the recording ends strace too.
    let is_wanted_end = matches!(target, Target::Process(_)) && interrupt::is_requested();
    let failure = if is_wanted_end { None } else { status_words(status) };
    Ok(Recorded { trace, failure })
}

/// The file may be data. What the program itself writes to that path is replaced.
fn refuse_existing(path: &Path) -> Result<(), Failure> {
    match path.symlink_metadata() {
        Err(_) => Ok(()),
        Ok(_) => Err(Failure::Usage {
            message: format!(
                "{} already exists; remove it or name another file with --out",
                path.display()
            ),
        }),
    }
}

fn absolute_paths(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let absolute = |path: &PathBuf| {
        path.canonicalize().map_err(|source| Failure::ReadFile { path: path.clone(), source })
    };
    paths.iter().map(absolute).collect()
}

/// The log is beside the recording, because that folder must be writable and have space anyway.
fn make_log(out: &Path) -> Result<NamedTempFile, Failure> {
    let made = tempfile::Builder::new().prefix(".ringmain-strace-").tempfile_in(folder(out));
    made.map_err(|error| Failure::WriteFile { path: out.to_owned(), source: without_path(error) })
}

/// Runs strace to its end. A signal ends the recording of a process that ran before. Ctrl-C on a terminal reaches a
/// command too, and strace ends with the command.
fn run(strace: &mut Command, target: &Target) -> Result<ExitStatus, Failure> {
    interrupt::handle();
    let failed = |source| Failure::Child { what: "strace".into(), source };
    let mut child = strace.spawn().map_err(failed)?;
    if matches!(target, Target::Process(_)) {
        interrupt::watch_child(child.id());
    }
    let status = wait(&mut child, target);
    interrupt::watch_child(0);
    status.map_err(failed)
}

/// After the signal that ends the recording of a process, strace gets some time to let the process go. If the process
/// waits for a child that it has made by `vfork`, strace 6.1 waits for the process and the child for strace. The
/// kernel lets both go when strace is killed.
fn wait(child: &mut Child, target: &Target) -> std::io::Result<ExitStatus> {
    if matches!(target, Target::Command(_)) {
        return child.wait();
    }
    let mut requested: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if interrupt::is_requested() {
            let since = requested.get_or_insert_with(Instant::now);
            if since.elapsed() > DETACHING_MAX {
                child.kill()?;
                return child.wait();
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the page faults, and notes about those that are missing.
fn finish(collector: Option<std::io::Result<FaultCollector>>) -> (Faults, Vec<String>) {
    match collector {
        None => (Faults::default(), Vec::new()),
        Some(Err(error)) => {
            let advice = match error.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    "; as root, run `sysctl kernel.perf_event_paranoid=2`"
                }
                _ => "",
            };
            let note = format!("page faults of mappings are not recorded: {error}{advice}");
            (Faults::default(), vec![note])
        }
        Some(Ok(collector)) => {
            let faults = collector.finish();
            let lost = faults.lost;
            (faults, (lost > 0).then(|| lost_words(lost)).into_iter().collect())
        }
    }
}

fn lost_words(lost: u64) -> String {
    format!("{lost} page faults are not recorded: they came too fast, or after 20 million others")
}

/// Returns how the program ended, if it failed. strace ends as the program did.
fn status_words(status: ExitStatus) -> Option<String> {
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("the program ended with exit code {code}")),
        (None, signal) => Some(format!("signal {} ended the program", signal.unwrap_or(0))),
    }
}

/// Notes and endings, for the list of messages.
#[cfg(test)]
pub(crate) fn sample_notes() -> Vec<String> {
    let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
    let ends = [3 << 8, 9].into_iter().filter_map(|raw| status_words(ExitStatus::from_raw(raw)));
    finish(Some(Err(denied))).1.into_iter().chain([lost_words(12)]).chain(ends).collect()
}
