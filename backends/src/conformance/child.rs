//! A part of a test in a process of its own: the test binary starts itself again.
//!
//! Limits, user ids, seccomp filters and forks concern the whole process, and a signal ends it.
//! So such a test is written as one closure; the parent only starts the child and judges how it
//! ended.

use std::env;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// In a child: which piece of work it was started for.
const CHILD: &str = "RINGMAIN_TEST_CHILD";
/// In a child: the directory to work in.
const CHILD_DIR: &str = "RINGMAIN_TEST_CHILD_DIR";
/// A child prints this when it has done everything: a test that was filtered out succeeds too.
const DONE: &str = "the child has done its work";

/// Longer than any child works on a busy machine; one that hangs is killed after it.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Runs `body` in a process of its own, from within the test called `test` (as libtest names it,
/// with its modules). Panics unless the child comes to the end of `body`.
///
/// The whole test must be inside: code before it runs in the child once more.
pub fn in_child(test: &str, body: impl FnOnce()) {
    if is_child(test) {
        body();
        say_done();
    } else {
        let log_dir = tempfile::tempdir().expect("a directory for the child's output");
        start(test, test, log_dir.path());
    }
}

/// Runs `body` in a forked child of this process, and panics unless the child comes to its end. For a test inside
/// [`in_child`], whose process has no threads of other tests.
#[cfg(unix)]
#[track_caller]
pub fn in_forked_child(body: impl FnOnce()) {
    super::process::fork(body).join();
}

/// The directory that the parent made for this child. The parent removes it, also if the child has
/// given up the right to do so.
pub fn child_dir() -> Option<std::path::PathBuf> {
    env::var_os(CHILD_DIR).map(Into::into)
}

pub(super) fn is_any_child() -> bool {
    env::var_os(CHILD).is_some()
}

pub(super) fn is_child(id: &str) -> bool {
    env::var_os(CHILD).is_some_and(|value| value == id)
}

/// Past any capture by libtest, because the parent reads it.
pub(super) fn say_done() {
    writeln!(io::stderr(), "{DONE}").expect("standard error");
}

/// Starts the binary again for one piece of work, and panics unless it is done.
pub(super) fn start(id: &str, test: &str, dir: &Path) {
    let log_path = dir.join("child.log");
    let log = File::create(&log_path).expect("a file for the child's output");
    let mut command = Command::new(env::current_exe().expect("the path of this program"));
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, id)
        .env(CHILD_DIR, dir)
        .env("RUST_BACKTRACE", "0")
        .stdin(std::process::Stdio::null())
        .stdout(log.try_clone().expect("a second handle of the log"))
        .stderr(log);
    let outcome = run(&mut command);
    let output = std::fs::read(&log_path).expect("the child's output");
    let output = String::from_utf8_lossy(&output);
    match outcome {
        Ok(status) if status.success() && output.contains(DONE) => {}
        Ok(status) if status.success() => panic!("the child did not run {test}:\n{output}"),
        Ok(status) => panic!("the child ended with {status}:\n{output}"),
        Err(problem) => panic!("the child {problem}:\n{output}"),
    }
}

fn run(command: &mut Command) -> Result<ExitStatus, String> {
    let mut child = command.spawn().map_err(|error| format!("could not be started: {error}"))?;
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok(status);
        }
        if started.elapsed() > TIMEOUT {
            // Both may fail only if it has just ended by itself.
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("hung for {} s and was killed", TIMEOUT.as_secs()));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}
