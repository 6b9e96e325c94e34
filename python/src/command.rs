//! The `ringmain` command that comes with the Python package.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command and returns its exit code. `program` is the command line that starts this
/// command again in a new interpreter: `bench` measures each backend in its own process.
#[pyfunction]
pub(crate) fn _run_command(py: Python<'_>, args: Vec<OsString>, program: Vec<OsString>) -> u8 {
    py.detach(|| run(args, program))
}

#[cfg(target_os = "linux")]
fn run(args: Vec<OsString>, program: Vec<OsString>) -> u8 {
    ringmain_bench::run(args, program)
}

#[cfg(not(target_os = "linux"))]
fn run(_args: Vec<OsString>, _program: Vec<OsString>) -> u8 {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "error: the ringmain command needs Linux");
    1
}
