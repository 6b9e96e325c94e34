//! One scenario in a process of its own.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ringmain_backends::BackendKind;

use crate::scenario::{Course, Scenario};
use crate::supervisor::{Fault, Supervisor};

/// In a child: backend, folder, and the fault or nothing, separated by tabs.
const TASK: &str = "RINGMAIN_SYSTEM_CALL_TASK";
/// Lines of the child's report begin with it: libtest writes to the same stream.
const MARK: &str = "report ";
/// Longer than a child works on a busy machine; one that hangs is killed after it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How a child ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Right,
    RightAfter(String),
    Failed(String),
    Wrong(String),
    /// By a signal, a panic or an abort.
    Dead(String),
    Hung,
}

/// How a child ended, and how often it made each system call.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) ending: Ending,
    pub(crate) counts: BTreeMap<i64, u32>,
}

/// Runs a scenario in a new process.
pub(crate) fn run(kind: BackendKind, dir: &Path, fault: Option<Fault>) -> Report {
    let fault = fault.map(|fault| fault.to_string()).unwrap_or_default();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child_process", "--exact", "--nocapture", "--test-threads=1"])
        .env(TASK, format!("{kind}\t{}\t{fault}", dir.display()))
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > TIMEOUT {
            child.kill().unwrap();
            child.wait().unwrap();
            return Report { ending: Ending::Hung, counts: BTreeMap::new() };
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() || !text.contains(MARK) {
        let ending = Ending::Dead(format!("{}: {}", output.status, text.trim()));
        return Report { ending, counts: BTreeMap::new() };
    }
    parse(&text)
}

fn parse(text: &str) -> Report {
    let mut report = Report { ending: Ending::Hung, counts: BTreeMap::new() };
    for line in text.lines().filter_map(|line| line.strip_prefix(MARK)) {
        let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
        match what {
            "right" => report.ending = Ending::Right,
            "right-after" => report.ending = Ending::RightAfter(rest.into()),
            "failed" => report.ending = Ending::Failed(rest.into()),
            "wrong" => report.ending = Ending::Wrong(rest.into()),
            number => {
                report.counts.insert(number.parse().unwrap(), rest.parse().unwrap());
            }
        }
    }
    report
}

/// In a child: does its task.
pub(crate) fn enter() {
    let Ok(task) = std::env::var(TASK) else { return };
    let mut parts = task.split('\t');
    let kind: BackendKind = parts.next().unwrap().parse().unwrap();
    let scenario = Scenario::new(kind, Path::new(parts.next().unwrap()));
    let fault = parts.next().filter(|text| !text.is_empty()).map(|text| text.parse().unwrap());
    let supervisor = Supervisor::watch_this_thread(fault);
    let course = scenario.run();
    let counts = supervisor.finish();
    let mut text = match course {
        Course::Right => format!("{MARK}right\n"),
        Course::RightAfter(error) => format!("{MARK}right-after {error}\n"),
        Course::Failed(error) => format!("{MARK}failed {error}\n"),
        Course::Wrong(complaint) => format!("{MARK}wrong {complaint}\n"),
    };
    for (number, count) in counts {
        let _ = writeln!(text, "{MARK}{number} {count}");
    }
    eprint!("{text}");
}
