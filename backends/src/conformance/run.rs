//! Running a case: whether it can be run, whether it was expected to fail, and how it ended.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{BackendOptions, ReadBackendExt, Result};

use super::subject::Refusal;
use super::{CASES, Case, Rig, Subject, child};

/// The environment variable with the backends that must run, separated by commas. CI sets it.
pub const REQUIRE_BACKENDS: &str = "RINGMAIN_REQUIRE_BACKENDS";

/// Longer than any case takes on a busy machine, and than the limit of its child process: a hang
/// becomes a failure with a name.
const CASE_TIMEOUT: Duration = Duration::from_secs(600);

/// Cases that need gigabytes of memory. They take turns.
const LARGE_CASES: [&str; 1] = ["reads_over_2_gib"];

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It passed.
    Passed,
    /// It is on the list of expected skips, for this reason.
    Skipped(String),
    /// The backend cannot run here, for this reason.
    Unavailable(String),
    /// It failed, or the list of expected skips is out of date.
    Failed(String),
}

/// How every case ended.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The cases in their order, and how each ended.
    pub outcomes: Vec<(&'static str, Outcome)>,
}

impl Report {
    /// Panics with all that failed, if anything did.
    pub fn check(&self, what: &str) {
        let mut failures = String::new();
        for (case, outcome) in &self.outcomes {
            if let Outcome::Failed(message) = outcome {
                let _ = writeln!(failures, "--- {what}, {case}:\n{message}");
            }
        }
        assert!(failures.is_empty(), "{failures}");
    }

    /// Returns how many cases passed.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::Passed).count()
    }
}

/// The names in [`REQUIRE_BACKENDS`].
#[must_use]
pub fn required_backends() -> Vec<String> {
    let names = std::env::var(REQUIRE_BACKENDS).unwrap_or_default();
    let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// Runs every case in a directory, one after the other.
#[must_use]
pub fn run_all(subject: &Subject, dir: &Path) -> Report {
    subject.check_skips();
    let mut report = Report::default();
    for case in CASES {
        let outcome = outcome_of(subject, case, dir);
        notice(subject, case, &outcome);
        report.outcomes.push((case.name(), outcome));
    }
    report
}

pub(super) fn test(subject: &Subject, name: &str) {
    if child::is_any_child() {
        return run_child(subject);
    }
    let case = CASES.iter().find(|case| case.name() == name);
    let case = case.unwrap_or_else(|| panic!("there is no case `{name}`"));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let outcome = outcome_of(subject, case, dir.path());
    notice(subject, case, &outcome);
    if let Outcome::Failed(message) = outcome {
        panic!("{message}");
    }
}

/// A child does not look at the list of skips and catches nothing: the parent does that.
pub(super) fn run_child(subject: &Subject) {
    for case in CASES {
        if child::is_child(&child_id(subject, case)) {
            let dir = child::child_dir().expect("the parent names a directory");
            (case.run)(&Rig::new(subject, *case, &dir));
        }
    }
}

pub(super) fn child_id(subject: &Subject, case: &Case) -> String {
    format!("{}/{}", subject.name(), case.name())
}

fn outcome_of(subject: &Subject, case: &Case, dir: &Path) -> Outcome {
    let skip = subject.skip(case.name());
    if let Some(skip) = skip.filter(|skip| !skip.is_run) {
        return Outcome::Skipped(skip.reason.to_owned());
    }
    if let Err(outcome) = check_availability(subject, dir) {
        return outcome;
    }
    let outcome = attempt(subject, case, dir);
    match (outcome, skip) {
        (Ok(()), None) => Outcome::Passed,
        (Err(message), None) => Outcome::Failed(message),
        (Err(_), Some(skip)) => Outcome::Skipped(skip.reason.to_owned()),
        (Ok(()), Some(skip)) => Outcome::Failed(format!(
            "`{}` passes, but is on the list of expected skips (\"{}\"): take it off",
            skip.case, skip.reason
        )),
    }
}

/// `Err` when the backend does not run here: excused, or not.
fn check_availability(subject: &Subject, dir: &Path) -> Result<(), Outcome> {
    let refusal = subject.refusal();
    let problem = match read_a_byte(subject, dir) {
        Err(error) if error.is_unsupported() => error,
        // The case finds any other error.
        _ => match refusal.filter(|refusal| refusal.is_certain) {
            None => return Ok(()),
            Some(Refusal { reason, .. }) => {
                let name = subject.name();
                let complaint = "works here, but is expected not to";
                return Err(Outcome::Failed(format!("`{name}` {complaint} ({reason})")));
            }
        },
    };
    if let Some(Refusal { reason, .. }) = refusal {
        return Err(Outcome::Unavailable(format!("{reason} ({problem})")));
    }
    if required_backends().iter().any(|name| name == subject.backend()) {
        return Err(Outcome::Failed(format!("{REQUIRE_BACKENDS} names it, but: {problem}")));
    }
    Err(Outcome::Unavailable(problem.to_string()))
}

fn read_a_byte(subject: &Subject, dir: &Path) -> Result<()> {
    let backend = subject.open(&BackendOptions::default())?;
    let path = dir.join("availability");
    std::fs::write(&path, [1; 4096]).expect("a file in the directory of the test");
    let file = backend.open(&path)?;
    backend.read_exact_at(&file, 0, &mut [0])
}

/// Runs the case in a directory and a thread of its own, so that a panic and a hang both become
/// messages.
fn attempt(subject: &Subject, case: &Case, dir: &Path) -> Result<(), String> {
    let prefix = format!("{}-{}-", subject.name(), case.name());
    let dir =
        tempfile::Builder::new().prefix(&prefix).tempdir_in(dir).map_err(|e| e.to_string())?;
    let (subject, case, path) = (subject.clone(), *case, dir.path().to_owned());
    // Before the clock starts: the wait belongs to the cases before.
    let _turn = LARGE_CASES.contains(&case.name()).then(large_turn);
    let (done, finished) = channel();
    let thread = std::thread::Builder::new().name(case.name().to_owned()).spawn(move || {
        let run = || (case.run)(&Rig::new(&subject, case, &path));
        let outcome = catch_unwind(AssertUnwindSafe(run));
        let _ = done.send(());
        outcome.unwrap_or_else(|panic| resume_unwind(panic));
    });
    let thread = thread.map_err(|error| error.to_string())?;
    if finished.recv_timeout(CASE_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
        return Err(format!("still running after {} s", CASE_TIMEOUT.as_secs()));
    }
    thread.join().map_err(|panic| message_of(&*panic))
}

fn large_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}

/// Says what was not run, past any capture by libtest: a skipped case each time, a backend that
/// cannot run only once.
fn notice(subject: &Subject, case: &Case, outcome: &Outcome) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let (name, case) = (subject.name(), case.name());
    let line = match outcome {
        Outcome::Passed | Outcome::Failed(_) => return,
        Outcome::Unavailable(reason) => format!("{name}: unavailable: {reason}"),
        Outcome::Skipped(reason) => format!("{name}, {case}: skipped: {reason}"),
    };
    let is_about_backend = matches!(outcome, Outcome::Unavailable(_));
    let key = if is_about_backend { name.to_owned() } else { line.clone() };
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(key) {
        let _ = writeln!(io::stderr(), "{line}");
    }
}
