//! `ringmain record`: the reads of any program, as a trace.

use std::io::{self, Write};

use crate::cli::RecordArgs;
use crate::failure::Failure;
use crate::record::record;
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
    text += &format!(
        "\nringmain inspect {path} --html page.html    pictures of what the program read\n\
         ringmain bench --trace {path}               how fast each backend makes the same reads\n"
    );
    // Without a standard error the recording remains.
    let _ = io::stderr().write_all(text.as_bytes());
    match recorded.failure {
        None => Ok(()),
        Some(message) => Err(Failure::Program { message }),
    }
}
