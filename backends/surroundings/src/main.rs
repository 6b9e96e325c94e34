//! `surroundings NAME DATA [--show SOURCE TARGET]... COMMAND...`: runs a command, in its own process, in the
//! surroundings of this name. DATA is the folder that it reads. TARGET is a folder that shows what is in
//! SOURCE, which the user in the surroundings may not be able to enter. `surroundings --list` prints all names.
//!
//! The exit code is 77 if the surroundings cannot be made here.

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    linux::run(std::env::args_os().skip(1).collect())
}

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
// The names are the output of the program.
#[allow(clippy::print_stdout)]
mod linux {
    use std::ffi::OsString;
    use std::io;
    use std::os::unix::process::CommandExt;
    use std::path::Path;
    use std::process::{Command, ExitCode};

    use ringmain_surroundings::{ALL, Place, Surroundings, is_refusal};

    const CANNOT_BE_MADE: u8 = 77;

    pub(super) fn run(args: Vec<OsString>) -> ExitCode {
        if args.len() == 1 && args[0] == "--list" {
            ALL.iter().for_each(|it| println!("{}", it.name));
            return ExitCode::SUCCESS;
        }
        let Some(error) = become_command(&args) else {
            eprintln!("usage: surroundings NAME DATA [--show SOURCE TARGET]... COMMAND...");
            return ExitCode::from(2);
        };
        eprintln!("surroundings: {}: {error}", args[0].display());
        if is_refusal(&error) { ExitCode::from(CANNOT_BE_MADE) } else { ExitCode::FAILURE }
    }

    /// Returns only if that fails: the error, or `None` if the arguments are wrong.
    fn become_command(args: &[OsString]) -> Option<io::Error> {
        let [name, data, rest @ ..] = args else { return None };
        let surroundings = Surroundings::named(name.to_str()?)?;
        let (mut place, mut rest) = (Place::new(Path::new(data)), rest);
        while let [option, source, target, others @ ..] = rest
            && option == "--show"
        {
            place = place.show(Path::new(source), Path::new(target));
            rest = others;
        }
        let [program, args @ ..] = rest else { return None };
        let mut command = Command::new(program);
        surroundings.put_around(command.args(args), &place);
        Some(command.exec())
    }
}
