//! Records the reads of an unmodified program: its system calls by strace, and the page faults of its mappings by
//! events of the kernel.

mod faults;
mod target;

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::NamedTempFile;

use crate::cli::RecordArgs;
use crate::failure::Failure;
use crate::system::interrupt::{self, Leftover};
use crate::system::scratch::without_path;
use crate::system::whole_file::{folder, write_whole_with};
use crate::text::format::counted;
use crate::trace::{Fault, KnownProcess, Trace, TraceFile};
use faults::{FaultCollector, Faults};
use target::Target;

/// How long strace may take to let a process go.
const DETACHING_MAX: Duration = Duration::from_secs(3);
/// The time between two looks at strace.
const LOOKING: Duration = Duration::from_millis(20);

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
    let _leftover = Leftover::new(log.path());
    // A process may be gone afterwards.
    let program = target.name();
    let seen = Seen::by_running(&target, log.path(), !args.no_mappings)?;
    let mut trace = seen.trace(&target, log.path(), &only).map_err(|reasons| {
        let message = format!("nothing was recorded: {}", reasons.join("; "));
        Failure::Trace { path: args.out.clone(), message }
    })?;
    trace.program = Some(program);
    write_whole_with(&args.out, |file| trace.write_to(file))?;
    // The interrupt that ends the recording ends strace too.
    let is_wanted_end = matches!(target, Target::Process(_)) && interrupt::is_requested();
    let failure = if is_wanted_end { None } else { status_words(seen.status) };
    Ok(Recorded { trace, failure })
}

/// Observations of a program besides the log of strace.
struct Seen {
    status: ExitStatus,
    faults: Faults,
    notes: Vec<String>,
    /// The files that a process that ran already had open.
    known: Option<KnownProcess>,
}

impl Seen {
    fn by_running(target: &Target, log: &Path, with_mappings: bool) -> Result<Self, Failure> {
        let mut strace = target.strace(log)?;
        let collector = with_mappings.then(|| FaultCollector::start(&target.watched()));
        let known = target.known();
        let status = run(&mut strace, target)?;
        let (faults, notes) = finish(collector);
        Ok(Self { status, faults, notes, known })
    }

    /// Returns the reads of the files that begin with one of `only`, or of all; or the reasons why there are none.
    fn trace(&self, target: &Target, log: &Path, only: &[PathBuf]) -> Result<Trace, Vec<String>> {
        // The end of the program and the notes may say why nothing was seen.
        let nothing = |reason: String| -> Vec<String> {
            let how = status_words(self.status).filter(|_| matches!(target, Target::Command(_)));
            [reason].into_iter().chain(how).chain(self.notes.clone()).collect()
        };
        let input = File::open(log).map_err(|error| nothing(error.to_string()))?;
        if input.metadata().is_ok_and(|found| found.len() == 0) {
            return Err(nothing(target.why_nothing(interrupt::is_requested())));
        }
        let known = self.known.clone();
        let trace = Trace::of_program(BufReader::new(input), &self.faults.faults, known);
        let mut trace = trace.map_err(|fault| nothing(fault.message()))?;
        if only.is_empty() {
            trace = without_system_files(trace).map_err(|fault| nothing(fault.message()))?;
        } else {
            let is_wanted = |path: &Path| only.iter().any(|start| path.starts_with(start));
            let kept = trace.only(|file| is_wanted(&file.path));
            trace =
                kept.map_err(|_| nothing("the program read no file that --only names".into()))?;
        }
        let kept = trace.without_files_that_are_gone();
        let mut trace = kept.map_err(|fault| vec![fault.message()])?;
        trace.notes.extend(self.notes.clone());
        Ok(trace)
    }
}

/// Leaves out the files that the start of every program reads, unless the program read nothing else. Other programs map
/// them too, so that they are never cold.
fn without_system_files(mut trace: Trace) -> Result<Trace, Fault> {
    let is_of_system = |file: &TraceFile| is_system_file(&file.path);
    let count = trace.files.iter().filter(|file| is_of_system(file)).count();
    if count == 0 || count == trace.files.len() {
        return Ok(trace);
    }
    let (files, are) = (counted(count, "file"), if count == 1 { "is" } else { "are" });
    trace.notes.push(format!(
        "{files} of the system {are} left out: libraries, locales and the like; `--only /` records them too"
    ));
    trace.only(|file| !is_of_system(file))
}

fn is_system_file(path: &Path) -> bool {
    const FOLDERS: [&str; 6] =
        ["/usr/lib/locale", "/usr/share/locale", "/usr/share/zoneinfo", "/etc", "/proc", "/sys"];
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // libc.so.6, but not words.so.bin.
    let has_version =
        |(_, rest): (&str, &str)| rest.bytes().all(|b| b == b'.' || b.is_ascii_digit());
    let is_library = name.ends_with(".so") || name.rsplit_once(".so.").is_some_and(has_version);
    is_library
        || name == "gconv-modules.cache"
        || FOLDERS.iter().any(|folder| path.starts_with(folder))
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

/// Runs strace to its end. A signal ends the recording of a process that ran before, and is passed on to a command.
fn run(strace: &mut Command, target: &Target) -> Result<ExitStatus, Failure> {
    let failed = |source| Failure::Child { what: "strace".into(), source };
    let status = match target {
        Target::Process(_) => {
            interrupt::handle();
            let mut child = strace.spawn().map_err(failed)?;
            interrupt::watch_child(child.id());
            wait_for_process(&mut child)
        }
        Target::Command(_) => {
            interrupt::handle_every_signal();
            let mut child = strace.spawn().map_err(failed)?;
            let status = wait_for_command(&mut child);
            interrupt::end_at_next_signal();
            status
        }
    };
    interrupt::watch_child(0);
    status.map_err(failed)
}

/// After the signal that ends the recording of a process, strace gets some time to let the process go. If the process
/// waits for a child that it has made by `vfork`, strace 6.1 waits for the process and the child for strace. The
/// kernel lets both go when strace is killed.
fn wait_for_process(strace: &mut Child) -> io::Result<ExitStatus> {
    let mut requested: Option<Instant> = None;
    loop {
        if let Some(status) = strace.try_wait()? {
            return Ok(status);
        }
        if interrupt::is_requested() {
            let since = requested.get_or_insert_with(Instant::now);
            if since.elapsed() > DETACHING_MAX {
                strace.kill()?;
                return strace.wait();
            }
        }
        std::thread::sleep(LOOKING);
    }
}

/// strace ends with the command and all that it has started, and no signal ends it earlier. The first signal is passed
/// on as SIGTERM, the second one as SIGKILL. In the foreground of a terminal, the very first signal is taken for
/// Ctrl-C, which has reached the command already; only the next ones are passed on. The last resort is to kill strace.
fn wait_for_command(strace: &mut Child) -> io::Result<ExitStatus> {
    let strace_id = strace.id();
    let mut passed_on = 0;
    loop {
        if let Some(status) = strace.try_wait()? {
            return Ok(status);
        }
        let signals = interrupt::signals();
        if signals > passed_on {
            passed_on = signals;
            match signals - u32::from(is_in_foreground()) {
                0 => {}
                1 => signal_traced(strace_id, Signal::SIGTERM),
                2 => signal_traced(strace_id, Signal::SIGKILL),
                _ => strace.kill()?,
            }
        }
        std::thread::sleep(LOOKING);
    }
}

/// Returns whether Ctrl-C on the terminal goes to this process and its children.
fn is_in_foreground() -> bool {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    foreground_of(&stat)
}

/// Parses `ID (NAME) STATE PARENT GROUP SESSION TERMINAL FOREGROUND_GROUP …` of proc(5). The name may have any characters.
fn foreground_of(stat: &str) -> bool {
    let after_name = stat.rsplit_once(") ").map_or("", |(_, after)| after);
    let mut words = after_name.split(' ').skip(2);
    let (group, foreground) = (words.next(), words.nth(2));
    group.is_some() && group == foreground
}

/// Signals every process that strace traces, older ones first, so that a shell ends before it can start another command.
fn signal_traced(strace: u32, signal: Signal) {
    let tracer = format!("TracerPid:\t{strace}");
    let is_traced = |id: &i32| {
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        status.lines().any(|line| line == tracer)
    };
    let mut traced: Vec<i32> = target::numbers_in("/proc").into_iter().filter(is_traced).collect();
    traced.sort_unstable();
    for id in traced {
        // It may have ended already.
        let _ = kill(Pid::from_raw(id), signal);
    }
}

/// Returns the page faults, and notes about those that are missing.
fn finish(collector: Option<io::Result<FaultCollector>>) -> (Faults, Vec<String>) {
    match collector {
        None => (Faults::default(), Vec::new()),
        Some(Err(error)) => {
            let advice = match error.kind() {
                io::ErrorKind::PermissionDenied => {
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
    let denied = io::Error::from(io::ErrorKind::PermissionDenied);
    let ends = [3 << 8, 9].into_iter().filter_map(|raw| status_words(ExitStatus::from_raw(raw)));
    finish(Some(Err(denied))).1.into_iter().chain([lost_words(12)]).chain(ends).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_system_are_known_by_their_names() {
        let names = ["/usr/lib/x/libc.so.6", "/opt/a/_b.cpython-311.so", "/etc/ld.so.cache"];
        let more = ["/usr/lib/locale/C.utf8/LC_CTYPE", "/usr/lib/x/gconv/gconv-modules.cache"];
        assert!(names.into_iter().chain(more).all(|name| is_system_file(Path::new(name))));
        for name in ["/data/train.bin", "/data/so.bin", "/usr/lib/python3/os.pyc", "/d/en.so.bin"] {
            assert!(!is_system_file(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn only_the_foreground_group_gets_ctrl_c() {
        assert!(foreground_of("7 (a) b) (c) S 1 42 7 34816 42 4194304 9"));
        assert!(!foreground_of("7 (ringmain) S 1 42 7 34816 43 4194304 9"));
        assert!(!foreground_of("7 (ringmain) S 1 42 7 0 -1 4194304 9"));
        assert!(!foreground_of(""));
    }
}
