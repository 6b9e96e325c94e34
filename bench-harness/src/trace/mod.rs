//! Traces: recorded reads, from an iolog of fio or a recording of the engine.
//!
//! The harness reads recordings and fio's iolog (versions 2 and 3; the times of version 3 are
//! microseconds, as fio's source has it) into one form: a list of reads and the places where
//! batches begin, which a replay goes through without allocating. Errors name the line and the
//! column. A recording that was cut off is used up to its last complete line, because the last
//! number may lack digits.

mod iolog;
mod lines;
mod recording;

use std::collections::HashMap;
use std::fmt::Write;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::text::size::format_bytes;

use lines::{Fault, Lines};

/// Recorded reads in batches, in the order of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    /// The files that are read; files that are only named are left out.
    pub(crate) files: Vec<TraceFile>,
    /// Notes for the user about what was left out or is unusual.
    pub(crate) notes: Vec<String>,
    batches: Vec<Span>,
    reads: Vec<TraceRead>,
}

/// A file that a trace reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TraceFile {
    pub(crate) path: PathBuf,
    /// The length that the file must have: the end of the last read.
    pub(crate) bytes_needed: u64,
}

/// One read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceRead {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Its index in [`Trace::files`].
    pub(crate) file: u32,
}

/// Reads that were handed over at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Batch<'a> {
    /// Microseconds since the start of the trace; 0 if the trace has no times.
    pub(crate) at_us: u64,
    /// A small number for the thread that read.
    pub(crate) thread: u32,
    pub(crate) reads: &'a [TraceRead],
}

/// A batch as it is stored: its reads end where those of the next start.
#[derive(Clone, Copy, Debug)]
struct Span {
    first_read: usize,
    at_us: u64,
    thread: u32,
}

impl Trace {
    /// Reads a trace in the format that its first line names, and checks that its files exist and are long
    /// enough.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let file = File::open(path)
            .map_err(|source| Failure::ReadFile { path: path.to_owned(), source })?;
        let trace = Self::parse(BufReader::new(file)).map_err(|fault| fault.in_file(path))?;
        trace.check_files(path)?;
        Ok(trace)
    }

    /// Parses a trace without checking its files.
    pub(crate) fn parse(input: impl Read) -> Result<Self, Fault> {
        let mut lines = Lines::new(input);
        let head = lines.next()?.map(|line| line.text.to_vec()).unwrap_or_default();
        let mut builder = TraceBuilder::default();
        match head.trim_ascii_end() {
            b"fio version 2 iolog" => iolog::parse(&mut lines, iolog::Version::Two, &mut builder)?,
            b"fio version 3 iolog" => {
                iolog::parse(&mut lines, iolog::Version::Three, &mut builder)?
            }
            b"ringmain recording 1" => recording::parse(&mut lines, &mut builder)?,
            head => {
                let head = String::from_utf8_lossy(&head[..head.len().min(40)]).into_owned();
                return Err(Fault::at(
                    1,
                    1,
                    format!(
                        "expected `fio version 2 iolog`, `fio version 3 iolog` or `ringmain recording \
                     1`, found `{}`",
                        head.escape_debug(),
                    ),
                ));
            }
        }
        builder.finish()
    }

    /// Returns the batches in order. Allocates nothing.
    pub(crate) fn batches(&self) -> impl ExactSizeIterator<Item = Batch<'_>> + Clone {
        (0..self.batches.len()).map(|at| self.batch(at))
    }

    fn batch(&self, at: usize) -> Batch<'_> {
        let Span { first_read, at_us, thread } = self.batches[at];
        let end = self.batches.get(at + 1).map_or(self.reads.len(), |next| next.first_read);
        Batch { at_us, thread, reads: &self.reads[first_read..end] }
    }

    /// Returns the number of batches.
    pub(crate) fn batch_count(&self) -> usize {
        self.batches.len()
    }

    /// Returns the reads of consecutive batches; batches past the end have none.
    pub(crate) fn reads_of(&self, batches: Range<usize>) -> &[TraceRead] {
        let read_at = |at: usize| self.batches.get(at).map_or(self.reads.len(), |b| b.first_read);
        &self.reads[read_at(batches.start)..read_at(batches.end)]
    }

    /// Returns all reads, in the order of the batches.
    pub(crate) fn reads(&self) -> &[TraceRead] {
        &self.reads
    }

    /// Returns the bytes of all reads together.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.reads.iter().fold(0, |total, read| total.saturating_add(read.bytes))
    }

    /// Returns an error with the first files that are missing or too short.
    fn check_files(&self, trace: &Path) -> Result<(), Failure> {
        const NAMED_MAX: usize = 5;
        let mut problems = self.files.iter().filter_map(TraceFile::problem);
        let named: Vec<String> = problems.by_ref().take(NAMED_MAX).collect();
        if named.is_empty() {
            return Ok(());
        }
        let mut message = String::from("it cannot be replayed here:");
        for problem in named {
            let _ = write!(message, "\n  {problem}");
        }
        match problems.count() {
            0 => {}
            more => message += &format!("\n  and {more} more files"),
        }
        Err(Failure::Trace { path: trace.to_owned(), message })
    }
}

impl TraceFile {
    /// Returns why the file cannot be read as in the trace.
    fn problem(&self) -> Option<String> {
        let name = self.path.display();
        match fs::metadata(&self.path) {
            Err(error) => Some(format!("{name}: {error}")),
            Ok(found) if !found.is_file() => Some(format!("{name} is not a regular file")),
            Ok(found) if found.len() < self.bytes_needed => Some(format!(
                "{name} has {}, and {} are read",
                format_bytes(found.len()),
                format_bytes(self.bytes_needed),
            )),
            Ok(_) => None,
        }
    }
}

/// Builds a trace from its lines.
#[derive(Default)]
struct TraceBuilder {
    trace: Trace,
    /// The indices of the files that are read.
    places: HashMap<PathBuf, u32>,
}

impl TraceBuilder {
    fn begin_batch(&mut self, at_us: u64, thread: u32) {
        let first_read = self.trace.reads.len();
        self.trace.batches.push(Span { first_read, at_us, thread });
    }

    /// Adds a read to the last batch. Returns an error if it is impossible.
    fn read(&mut self, path: &Path, offset: u64, bytes: u64) -> Result<(), String> {
        let end = offset.checked_add(bytes).filter(|end| *end <= i64::MAX as u64);
        let end = end.ok_or("the read ends beyond what any file can hold")?;
        let file = match self.places.get(path) {
            Some(place) => *place,
            None => self.add_file(path)?,
        };
        if let Some(file) = self.trace.files.get_mut(file as usize) {
            file.bytes_needed = file.bytes_needed.max(end);
        }
        self.trace.reads.push(TraceRead { offset, bytes, file });
        Ok(())
    }

    fn add_file(&mut self, path: &Path) -> Result<u32, String> {
        let place = u32::try_from(self.trace.files.len()).map_err(|_| "too many files")?;
        self.trace.files.push(TraceFile { path: path.to_owned(), bytes_needed: 0 });
        self.places.insert(path.to_owned(), place);
        Ok(place)
    }

    fn note(&mut self, note: String) {
        self.trace.notes.push(note);
    }

    fn finish(self) -> Result<Trace, Fault> {
        if self.trace.reads.is_empty() {
            return Err(Fault::whole("the trace has no reads".into()));
        }
        Ok(self.trace)
    }
}

#[cfg(test)]
mod tests;
