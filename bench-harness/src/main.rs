//! The `ringmain` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ringmain_bench::main()
}
