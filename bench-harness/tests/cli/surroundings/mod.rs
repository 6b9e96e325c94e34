//! The command and the engine with few rights and small limits: they work, or say in one message what is
//! missing and what to do. No panic, no hang, no wrong byte.
//!
//! Every program runs in every one of the surroundings. `docs/reliability.md` has the outcomes as a table, which
//! a test compares.

mod engine;
mod programs;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use programs::{PROGRAMS, Program, Stage};
use ringmain_surroundings::{ALL, Surroundings};

use crate::support::{Data, Outcome, say};

/// A program that does not work, but says why.
struct Exception {
    surroundings: &'static str,
    program: Program,
    code: i32,
    /// Parts of its message: what is missing, and what to do.
    parts: &'static [&'static str],
    /// The missing part, for the documentation.
    missing: &'static str,
}

const fn except(
    surroundings: &'static str,
    program: Program,
    missing: &'static str,
    code: i32,
    parts: &'static [&'static str],
) -> Exception {
    Exception { surroundings, program, code, parts, missing }
}

const NO_FOLDER: &str = "cannot create its folder of results, and names `--out`";
const NO_DESCRIPTORS: &str = "has too few file descriptors, and names `ulimit -n`";

/// The commands that do not work. All others do.
#[rustfmt::skip]
const EXCEPTIONS: &[Exception] = &[
    except("read-only-mounts", Program::Bench, NO_FOLDER, 2, &["ringmain-results", "Read-only", "`--out DIR`"]),
    except("closed-working-folder", Program::Bench, NO_FOLDER, 2, &["ringmain-results", "Permission denied", "`--out DIR`"]),
    except("removed-working-folder", Program::Bench, NO_FOLDER, 2, &["ringmain-results", "No such file", "`--out DIR`"]),
    except("no-proc", Program::Bench, "needs /proc, and says so", 1, &["/proc", "mount it"]),
    except("strict-filter", Program::Bench, "cannot verify what is cached, and names the calls to allow", 2, &["cachestat", "RWF_NOWAIT", "seccomp"]),
    except("hints-refused", Program::Bench, "cannot make data cold, and names the call to allow", 2, &["data.bin", "dropped from the page cache", "allow fadvise64"]),
    except("fewest-descriptors", Program::Probe, NO_DESCRIPTORS, 1, &["Too many open files", "`ulimit -n`"]),
    except("fewest-descriptors", Program::ProbeFolder, NO_DESCRIPTORS, 1, &["Too many open files", "`ulimit -n`"]),
    except("fewest-descriptors", Program::Bench, NO_DESCRIPTORS, 1, &["Too many open files", "`ulimit -n`"]),
    except("fewest-descriptors", Program::Engine, "has too few file descriptors, and says so", 1, &["shards", "Too many open files"]),
];

fn exception(surroundings: &str, program: Program) -> Option<&'static Exception> {
    EXCEPTIONS.iter().find(|it| it.surroundings == surroundings && it.program == program)
}

#[test]
fn every_program_works_or_says_what_is_missing() {
    let stage = Stage::new();
    let (mut left_out, mut wrong) = (BTreeSet::new(), String::new());
    for surroundings in ALL {
        for program in PROGRAMS {
            let outcome = match stage.run(*surroundings, program) {
                Ok(outcome) => outcome,
                Err(refusal) => {
                    left_out.insert((surroundings.name, refusal.to_string()));
                    break;
                }
            };
            let complaint = match exception(surroundings.name, program) {
                None => stage.complaint(program, &outcome),
                Some(expected) => outcome.complaint(expected.code, expected.parts),
            };
            if let Some(complaint) = complaint {
                let _ = writeln!(wrong, "{}, {}: {complaint}", surroundings.name, program.name());
            }
        }
    }
    for (surroundings, refusal) in &left_out {
        say(&format!("surroundings {surroundings}: not tested: {refusal}"));
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(left_out.is_empty() || !in_ci, "CI must make all surroundings: {left_out:?}");
}

/// An exception for a name that does not exist would say nothing.
#[test]
fn exceptions_name_surroundings() {
    for it in EXCEPTIONS {
        assert!(Surroundings::named(it.surroundings).is_some(), "{}", it.surroundings);
    }
}

/// A file that was read was copied once more, in an allocation that ended the process: "memory allocation of …
/// bytes failed".
#[test]
fn too_little_memory_for_the_backend_memory_is_an_error() {
    let stage = Stage::new();
    let least = Surroundings::named("least-memory").unwrap();
    // Of 64 MiB: one copy fits, two do not, and the buffers of `cat` may not fit beside one.
    let data = for_all(Data::new(30 << 20));
    let outcome = run_in(&stage, least, &["cat", data.name(), "--backend", "memory"]);
    match outcome.code {
        Some(0) => assert!(outcome.stdout_of_success() == data.bytes),
        code => {
            assert_eq!(code, Some(1), "{}", outcome.stderr);
            // After some bytes, perhaps: the second buffer may be the one that does not fit.
            outcome.expect_message(&["no memory"]);
        }
    }
    let data = for_all(Data::sparse(1 << 30));
    let outcome = run_in(&stage, least, &["cat", data.name(), "--backend", "memory"]);
    outcome.expect_failure(1, &[data.name(), "memory"]);
}

/// Lets every user read it.
fn for_all(data: Data) -> Data {
    fs::set_permissions(data.dir(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&data.path, Permissions::from_mode(0o644)).unwrap();
    data
}

fn run_in(stage: &Stage, surroundings: Surroundings, args: &[&str]) -> Outcome {
    let mut command = stage.ringmain();
    command.args(args);
    stage.run_command(surroundings, command).unwrap()
}

#[test]
fn the_documentation_has_the_outcomes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reliability.md");
    let documented = std::fs::read_to_string(path).unwrap();
    for surroundings in ALL {
        let cells = PROGRAMS.map(|program| {
            exception(surroundings.name, program).map_or("works", |it| it.missing).to_owned()
        });
        let row = format!("| `{}` | {} |", surroundings.name, cells.join(" | "));
        let is_there = documented.lines().any(|line| line.starts_with(&row));
        assert!(is_there, "docs/reliability.md lacks the row\n{row}");
    }
}
