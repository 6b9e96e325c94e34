//! Tells the program which commit it was built from, where there is one.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The log of HEAD changes with every commit, checkout and rebase.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    if let Some(commit) = git(&["rev-parse", "HEAD"]) {
        println!("cargo::rustc-env=RINGMAIN_COMMIT={commit}");
    }
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
