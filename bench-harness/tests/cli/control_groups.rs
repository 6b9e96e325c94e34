//! `--memory-limit` where control groups of version 2 are mounted.
//!
//! The test mounts them in a mount namespace of its own, so only root can run it. A kernel that has given the memory
//! controller to version 1 has none for version 2; then the test checks the warning.

use std::process::Command;

use crate::bench::{cells, json_of};
use crate::support::{Place, run, say};

/// Runs `sh -c SCRIPT` with the arguments, in a mount namespace in which only groups of version 2 are mounted.
fn with_version_2(script: &str) -> Command {
    let mount = "mount -t cgroup2 none /sys/fs/cgroup && ";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c"]);
    command.arg(format!("{mount}{script}")).arg("sh").env("RINGMAIN_PROFILE", "off");
    command
}

/// Returns the controllers that the topmost group of version 2 passes on; the reason if it cannot be mounted.
fn passed_on() -> Result<String, String> {
    let mut command = with_version_2("cat /sys/fs/cgroup/cgroup.subtree_control");
    let output = command.output().map_err(|error| error.to_string())?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().to_owned();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

#[test]
fn a_limit_works_with_version_2_or_the_warning_says_why_not() {
    let controllers = match passed_on() {
        Ok(controllers) => controllers,
        Err(why) => return say(&format!("SKIPPED: control groups of version 2: {why}")),
    };
    let place = Place::new();
    let mut command = with_version_2("exec \"$@\"");
    command.arg(env!("CARGO_BIN_EXE_ringmain")).args(["bench", "--out", "out", "--json"]);
    command.args([
        "--workloads",
        "views",
        "--backends",
        "pread",
        "--cache",
        "cold",
        "--bytes",
        "16M",
    ]);
    command.args(["--memory-limit", "64M", "--buffer-bytes", "8M", "--repetitions", "1"]);
    command.args(["--seconds", "0.02"]).current_dir(place.dir.path());
    let result = json_of(run(&mut command));
    assert!(cells(&result).iter().all(|cell| cell["valid"] == true), "{result:#}");
    let warnings = result["warnings"].to_string();
    if controllers.split_whitespace().any(|name| name == "memory") {
        assert!(!warnings.contains("control group"), "{warnings}");
    } else {
        say("version 2 has no memory controller here, so the warning is checked");
        assert!(warnings.contains("cgroup.subtree_control does not have the memory"), "{warnings}");
        assert!(warnings.contains("not to the page cache"), "{warnings}");
    }
}
