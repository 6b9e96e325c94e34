//! Traces: recorded reads, from a recording of Ringmain, an iolog of fio or a log of strace.
//!
//! The harness reads all of them into one form: a list of reads and the places where batches begin, which a replay goes
//! through without allocating. Errors name the line and the column. A recording that was cut off is used up to its last
//! complete line, because the last number may lack digits.

mod iolog;
mod lines;
pub(crate) mod pattern;
mod recording;
mod reuse;
mod strace;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use ringmain::{BatchHead, ReadBy};

use crate::failure::Failure;
use crate::result::Run;
use crate::system::regular::open_regular;
use crate::text::format::counted;
use crate::text::size::format_bytes;

pub(crate) use lines::Fault;
use lines::{Line, Lines};
use strace::Beside;
pub(crate) use strace::{KnownMapping, KnownProcess, PageFault};

/// Recorded reads in batches, in the order of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    /// The files that are read; files that are only named are left out.
    pub(crate) files: Vec<TraceFile>,
    /// Notes for the user about what was left out or is unusual.
    pub(crate) notes: Vec<String>,
    /// The process of each thread, as far as the trace says.
    processes: BTreeMap<u32, u32>,
    batches: Vec<Span>,
    reads: Vec<TraceRead>,
    /// The program whose reads were recorded, if the trace names it.
    pub(crate) program: Option<OsString>,
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
    /// The times are 0 if the trace has none.
    pub(crate) head: BatchHead,
    pub(crate) reads: &'a [TraceRead],
}

/// A batch as it is stored: its reads end where those of the next start.
#[derive(Clone, Copy, Debug)]
struct Span {
    first_read: usize,
    head: BatchHead,
}

impl Trace {
    /// Reads a trace without looking at its files.
    pub(crate) fn open_unchecked(path: &Path) -> Result<Self, Failure> {
        let file = open_regular(path)
            .map_err(|source| Failure::ReadFile { path: path.to_owned(), source })?;
        Self::parse(BufReader::new(file)).map_err(|fault| fault.in_file(path))
    }

    /// Returns the trace that a run has replayed; `None` if it replayed none, or if the trace has gone or changed into
    /// something else since.
    pub(crate) fn of_run(run: &Run) -> Option<Self> {
        Self::open_unchecked(run.plan.data.trace.as_deref()?).ok()
    }

    /// Reads a trace in the format that its first line names, without the files that are missing or too short; its notes
    /// name these. Returns an error if no file is left.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let trace = Self::open_unchecked(path)?;
        trace.without_files_that_are_gone().map_err(|fault| fault.in_file(path))
    }

    /// Returns whether the first bytes of a file are those of a trace.
    pub(crate) fn is_trace(head: &[u8]) -> bool {
        let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
        Format::of(line).is_some()
    }

    /// Parses a trace without checking its files.
    pub(crate) fn parse(input: impl Read) -> Result<Self, Fault> {
        Self::parse_beside(input, Beside::default())
    }

    /// Parses a log of strace without checking its files. The page faults of the program are in the order of
    /// time; `process` is what it was before the log, if it ran already.
    pub(crate) fn of_program(
        log: impl Read,
        faults: &[PageFault],
        process: Option<KnownProcess>,
    ) -> Result<Self, Fault> {
        Self::parse_beside(log, Beside { faults, process })
    }

    fn parse_beside(input: impl Read, beside: Beside<'_>) -> Result<Self, Fault> {
        let mut lines = Lines::new(input);
        let head = lines.next()?.map(|line| line.text.to_vec()).unwrap_or_default();
        let mut builder = TraceBuilder::default();
        match Format::of(&head) {
            Some(Format::Iolog(version)) => iolog::parse(&mut lines, version, &mut builder)?,
            Some(Format::Recording(version)) => {
                recording::parse(&mut lines, version, &mut builder)?
            }
            Some(Format::Strace) => {
                let head = Line { text: head.trim_ascii_end(), number: 1, is_whole: true };
                strace::parse(head, &mut lines, beside, &mut builder)?;
            }
            Some(Format::OtherVersion) | None => return Err(unknown_format(&head)),
        }
        builder.finish()
    }

    /// Returns the batches in order. Allocates nothing.
    pub(crate) fn batches(&self) -> impl ExactSizeIterator<Item = Batch<'_>> + Clone {
        (0..self.batches.len()).map(|at| self.batch(at))
    }

    fn batch(&self, at: usize) -> Batch<'_> {
        let Span { first_read, head } = self.batches[at];
        let end = self.batches.get(at + 1).map_or(self.reads.len(), |next| next.first_read);
        Batch { head, reads: &self.reads[first_read..end] }
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

    /// Returns how many different bytes the first batches read.
    pub(crate) fn distinct_bytes(&self, batches: usize) -> u64 {
        let mut distinct: u64 = 0;
        each_new_part(self.reads_of(0..batches), |_, bytes| {
            distinct = distinct.saturating_add(bytes);
        });
        distinct
    }

    /// Returns when a batch began, in microseconds from the start of the trace.
    pub(crate) fn began_at_us(&self, batch: usize) -> Option<u64> {
        self.batches.get(batch).map(|span| span.head.at_us)
    }

    /// Returns the process of a thread, if the trace says it.
    pub(crate) fn process_of(&self, thread: u32) -> Option<u32> {
        self.processes.get(&thread).copied()
    }

    /// Returns the reads of the files that `keep` returns true for, and of no other. Time begins at the first of
    /// them.
    pub(crate) fn only(&self, keep: impl Fn(&TraceFile) -> bool) -> Result<Self, Fault> {
        let kept: Vec<bool> = self.files.iter().map(keep).collect();
        let mut builder = TraceBuilder::default();
        let mut first_us = None;
        for batch in self.batches() {
            let mut reads = batch.reads.iter().filter(|read| kept[read.file as usize]).peekable();
            if reads.peek().is_some() {
                let first_us = *first_us.get_or_insert(batch.head.at_us);
                let at_us = batch.head.at_us.saturating_sub(first_us);
                builder.begin_batch(BatchHead { at_us, ..batch.head });
            }
            for read in reads {
                let path = &self.files[read.file as usize].path;
                builder.read(path, read.offset, read.bytes).map_err(Fault::whole)?;
            }
        }
        builder.trace.notes = self.notes.clone();
        builder.trace.processes = self.processes.clone();
        builder.trace.program = self.program.clone();
        builder.finish()
    }

    /// Returns the trace without the files that cannot be read as they were, and names these in a note. Returns an error
    /// if that would be all of them. A page fault at the end of a file counts the bytes that the file has.
    pub(crate) fn without_files_that_are_gone(mut self) -> Result<Self, Fault> {
        self.cut_faults();
        let problems: Vec<String> = self.files.iter().filter_map(TraceFile::problem).collect();
        if problems.is_empty() {
            return Ok(self);
        }
        let named = first_of(&problems);
        if problems.len() == self.files.len() {
            let named = named.join("\n  ");
            return Err(Fault::whole(format!("none of its files can be read again:\n  {named}")));
        }
        let (gone, all, named) = (problems.len(), self.files.len(), named.join("; "));
        self.notes.push(format!("{gone} of {all} files are left out: {named}"));
        self.only(|file| file.problem().is_none())
    }

    /// Cuts the last page of each file to the bytes that the file has.
    fn cut_faults(&mut self) {
        let len_of = |file: &TraceFile| fs::metadata(&file.path).map_or(0, |found| found.len());
        let lens: Vec<u64> = self.files.iter().map(len_of).collect();
        let mut needed = vec![0; lens.len()];
        for at in 0..self.batches.len() {
            let is_fault = self.batches[at].head.by == ReadBy::Fault;
            let end = self.batches.get(at + 1).map_or(self.reads.len(), |next| next.first_read);
            for read in &mut self.reads[self.batches[at].first_read..end] {
                let file = read.file as usize;
                if is_fault && read.offset < lens[file] {
                    read.bytes = read.bytes.min(lens[file] - read.offset);
                }
                needed[file] = needed[file].max(read.offset + read.bytes);
            }
        }
        for (file, needed) in self.files.iter_mut().zip(needed) {
            file.bytes_needed = needed;
        }
    }

    /// Writes the trace as a recording.
    pub(crate) fn write_to(&self, out: &mut dyn io::Write) -> io::Result<()> {
        recording::write(self, out)
    }
}

/// Returns the first problems, and the number of those that would make the list too long.
fn first_of(problems: &[String]) -> Vec<String> {
    const NAMED_MAX: usize = 5;
    let mut list: Vec<String> = problems.iter().take(NAMED_MAX).cloned().collect();
    if problems.len() > NAMED_MAX {
        list.push(format!("and {}", counted(problems.len() - NAMED_MAX, "more file")));
    }
    list
}

/// The format of a trace.
#[derive(Clone, Copy, Debug)]
enum Format {
    Iolog(iolog::Version),
    Recording(recording::Version),
    Strace,
    /// An iolog or a recording of a version that cannot be read.
    OtherVersion,
}

impl Format {
    /// Recognises the first line of a trace.
    fn of(line: &[u8]) -> Option<Self> {
        Some(match line.trim_ascii_end() {
            b"fio version 2 iolog" => Self::Iolog(iolog::Version::Two),
            b"fio version 3 iolog" => Self::Iolog(iolog::Version::Three),
            b"ringmain recording 1" => Self::Recording(recording::Version::One),
            b"ringmain recording 2" => Self::Recording(recording::Version::Two),
            line if line.starts_with(b"fio version ") => Self::OtherVersion,
            line if line.starts_with(b"ringmain recording ") => Self::OtherVersion,
            line if strace::is_log(line) => Self::Strace,
            _ => return None,
        })
    }
}

fn unknown_format(head: &[u8]) -> Fault {
    let head = String::from_utf8_lossy(&head[..head.len().min(40)]);
    let message = format!(
        "expected `ringmain recording 2`, `fio version 3 iolog`, an earlier version of these, or a line of strace; \
         found `{}`",
        head.trim_end().escape_debug(),
    );
    Fault::at(1, 1, message)
}

/// Calls `add` with the file of each read and the bytes of it that no other read has, in the order of the files.
fn each_new_part(reads: &[TraceRead], mut add: impl FnMut(u32, u64)) {
    let mut sorted: Vec<&TraceRead> = reads.iter().collect();
    sorted.sort_unstable_by_key(|read| (read.file, read.offset));
    let (mut file, mut covered) = (u32::MAX, 0);
    for read in sorted {
        if read.file != file {
            (file, covered) = (read.file, 0);
        }
        let end = read.offset.saturating_add(read.bytes);
        add(file, end.saturating_sub(covered.max(read.offset)));
        covered = covered.max(end);
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
    /// Begins a batch of a trace that has neither threads nor durations.
    fn begin_plain_batch(&mut self, at_us: u64) {
        self.begin_batch(BatchHead { by: ReadBy::Call, at_us, took_us: 0, thread: 0 });
    }

    fn begin_batch(&mut self, head: BatchHead) {
        let first_read = self.trace.reads.len();
        self.trace.batches.push(Span { first_read, head });
    }

    fn name_thread(&mut self, thread: u32, process: u32) {
        self.trace.processes.insert(thread, process);
    }

    /// Puts the batches, each of one read, into the order in which they began, and counts time from the first.
    fn start_at_first(&mut self) {
        let Trace { batches, reads, .. } = &mut self.trace;
        let mut order: Vec<(BatchHead, TraceRead)> =
            batches.iter().map(|span| (span.head, reads[span.first_read])).collect();
        order.sort_by_key(|(head, _)| head.at_us);
        let first_us = order.first().map_or(0, |(head, _)| head.at_us);
        for (at, (mut head, read)) in order.into_iter().enumerate() {
            head.at_us -= first_us;
            batches[at] = Span { first_read: at, head };
            reads[at] = read;
        }
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
