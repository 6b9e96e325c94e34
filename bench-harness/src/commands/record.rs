//! `ringmain record`: the reads of any program, as a trace.

use std::io::{self, Write};

use crate::cli::RecordArgs;
use crate::failure::Failure;
use crate::record::record;
use crate::system::interrupt;
use crate::trace::pattern::Pattern;

/// Standard output belongs to the program.
pub(crate) fn run(args: &RecordArgs) -> Result<(), Failure> {
    let recorded = record(args)?;
    let path = args.out.display();
    let mut text = format!("\n{path}\n");
    for sentence in Pattern::of(&recorded.trace).sentences() {
        text += &format!("  {sentence}\n");
    }
    for note in &recorded.trace.notes {
        text += &format!("note: {note}\n");
    }
    let is_interrupted = recorded.failure.is_some() && interrupt::is_requested();
    if let Some(failure) = recorded.failure.as_ref().filter(|_| is_interrupted) {
        text += &format!("note: {failure}\n");
    }
    text += &format!(
        "\nringmain inspect {path} --html page.html    pictures of what the program read\n\
         ringmain bench --trace {path}               how fast each backend makes the same reads\n"
    );
    // Without a standard error the recording remains.
    let _ = io::stderr().write_all(text.as_bytes());
    match recorded.failure {
        None => Ok(()),
        Some(_) if is_interrupted => Err(Failure::Interrupted),
        Some(message) => Err(Failure::Program { message }),
    }
}
