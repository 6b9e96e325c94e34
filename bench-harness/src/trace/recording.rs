//! Recordings of `Engine::record` and `ringmain record`. See `docs/formats.md`.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use ringmain::{BatchHead, ReadBy, RecordingText};

use super::lines::{Fault, Line, Lines, Word, Words, path_from};
use super::{Trace, TraceBuilder};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// Without processes, page faults, and how long a batch took.
    One,
    Two,
}

impl Version {
    /// The letters that a line may begin with.
    fn kinds(self) -> &'static str {
        match self {
            Self::One => "`f`, `b` or `e`",
            Self::Two => "`p`, `n`, `f`, `t`, `b`, `m` or `e`",
        }
    }
}

/// A file that has more notes was not written by this program.
const NOTES_MAX: usize = 100;

/// Lines are written in parts of this size.
const BUFFER_BYTES: usize = 1 << 20;

/// Writes a trace as a recording.
pub(super) fn write(trace: &Trace, file: &mut dyn Write) -> io::Result<()> {
    let mut text = RecordingText::new();
    if let Some(program) = &trace.program {
        text.name_program(program);
    }
    trace.notes.iter().take(NOTES_MAX).for_each(|note| text.note(note));
    for batch in trace.batches() {
        if let Some(process) = trace.process_of(batch.head.thread) {
            text.name_thread(batch.head.thread, process);
        }
        text.begin_batch(batch.head);
        for read in batch.reads {
            let path = &trace.files[read.file as usize].path;
            let too_many = || io::Error::other("the recording has too many files");
            let index = text.name_file(path).ok_or_else(too_many)?;
            text.read(index, read.offset, read.bytes);
        }
        text.end_batch();
        if text.pending().len() >= BUFFER_BYTES {
            file.write_all(text.pending())?;
            text.clear_pending();
        }
    }
    text.finish();
    file.write_all(text.pending())
}

/// Parses the lines after the first.
pub(super) fn parse(
    lines: &mut Lines<impl Read>,
    version: Version,
    builder: &mut TraceBuilder,
) -> Result<(), Fault> {
    let mut files: Vec<PathBuf> = Vec::new();
    let mut has_end = false;
    while let Some(line) = lines.next()? {
        if !line.is_whole {
            // The last number of a line that was cut off is wrong.
            break;
        }
        if has_end {
            return Err(Fault::at(line.number, 1, "there are lines after the end".into()));
        }
        let mut words = line.words();
        let kind = words.expect(version.kinds())?;
        match (kind.text, version) {
            (b"p", Version::Two) => program(&mut words, builder)?,
            (b"n", Version::Two) => note(&mut words, builder)?,
            (b"f", _) => files.push(file(&mut words, files.len())?),
            (b"t", Version::Two) => thread(&mut words, builder)?,
            (b"b", _) => batch(ReadBy::Call, version, &mut words, &files, builder)?,
            (b"m", Version::Two) => batch(ReadBy::Fault, version, &mut words, &files, builder)?,
            (b"e", _) => {
                end(line, &mut words, builder)?;
                has_end = true;
            }
            _ => {
                let (kinds, found) = (version.kinds(), kind.shown());
                return Err(kind.fault(format!("expected {kinds}, found `{found}`")));
            }
        }
    }
    if !has_end {
        builder.note("the recording has no end: the program stopped, or the disk was full".into());
    }
    Ok(())
}

/// Parses `p COMMAND`.
fn program(words: &mut Words<'_>, builder: &mut TraceBuilder) -> Result<(), Fault> {
    let command = words.rest();
    let is_first = builder.trace.program.is_none() && builder.trace.batches.is_empty();
    if !is_first {
        return Err(command.fault("the program must be named once, before the first batch".into()));
    }
    let bytes = unescape(&command)?;
    // A process may have no command line.
    let program = match bytes.is_empty() {
        true => Some(OsString::new()),
        false => path_from(bytes).map(PathBuf::into_os_string),
    };
    let not_text = || command.fault("this is not a command on this system".into());
    builder.trace.program = Some(program.ok_or_else(not_text)?);
    Ok(())
}

/// Parses `n TEXT`.
fn note(words: &mut Words<'_>, builder: &mut TraceBuilder) -> Result<(), Fault> {
    let text = words.rest();
    if builder.trace.notes.len() == NOTES_MAX {
        return Err(text.fault(format!("there are more than {NOTES_MAX} notes")));
    }
    builder.note(String::from_utf8_lossy(&unescape(&text)?).into_owned());
    Ok(())
}

/// Parses `f INDEX PATH`.
fn file(words: &mut Words<'_>, index: usize) -> Result<PathBuf, Fault> {
    let mut place = words.clone();
    if words.number("the number of a file")? != index as u64 {
        let word = place.expect("the number of a file")?;
        return Err(
            word.fault(format!("expected {index}, the next file, found `{}`", word.shown()))
        );
    }
    let path = words.rest();
    unescape(&path).and_then(|bytes| {
        path_from(bytes).ok_or_else(|| path.fault("this is not a file name on this system".into()))
    })
}

/// Parses `t THREAD PROCESS`.
fn thread(words: &mut Words<'_>, builder: &mut TraceBuilder) -> Result<(), Fault> {
    let thread = small_number(words, "the number of a thread")?;
    let process = small_number(words, "the number of a process")?;
    words.end()?;
    builder.name_thread(thread, process);
    Ok(())
}

/// Parses a number of 32 bits.
fn small_number(words: &mut Words<'_>, what: &str) -> Result<u32, Fault> {
    let mut place = words.clone();
    u32::try_from(words.number(what)?)
        .or_else(|_| Err(place.expect(what)?.fault(format!("{what} is too large"))))
}

/// Parses `AT_US TOOK_US THREAD`, without the second in version 1, and three numbers for each read.
fn batch(
    by: ReadBy,
    version: Version,
    words: &mut Words<'_>,
    files: &[PathBuf],
    builder: &mut TraceBuilder,
) -> Result<(), Fault> {
    let at_us = words.number("the time in microseconds")?;
    let took_us = match version {
        Version::One => 0,
        Version::Two => words.number("a duration in microseconds")?,
    };
    let thread = small_number(words, "the number of a thread")?;
    builder.begin_batch(BatchHead { by, at_us, took_us, thread });
    loop {
        let mut place = words.clone();
        let index = words.number("the number of a file")?;
        let word = place.expect("the number of a file")?;
        let path = usize::try_from(index).ok().and_then(|index| files.get(index));
        let path = path.ok_or_else(|| word.fault(format!("no earlier line names file {index}")))?;
        let offset = words.number("an offset in bytes")?;
        let bytes = words.number("a length in bytes")?;
        builder.read(path, offset, bytes).map_err(|message| word.fault(message))?;
        if words.clone().next().is_none() {
            return Ok(());
        }
    }
}

/// Parses `e BATCHES READS BYTES`, which must match the lines before it.
fn end(line: Line<'_>, words: &mut Words<'_>, builder: &TraceBuilder) -> Result<(), Fault> {
    let names = ["the number of batches", "the number of reads", "the number of bytes"];
    let mut counted = [0; 3];
    for (counted, name) in counted.iter_mut().zip(names) {
        *counted = words.number(name)?;
    }
    words.end()?;
    let trace = &builder.trace;
    let found = [trace.batches.len() as u64, trace.reads.len() as u64, trace.total_bytes()];
    if counted == found {
        return Ok(());
    }
    let message = format!(
        "the last line counts {counted:?} batches, reads and bytes, but the recording has {found:?}"
    );
    Err(Fault::at(line.number, 1, message))
}

/// Undoes the escapes of a path.
fn unescape(path: &Word<'_>) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::with_capacity(path.text.len());
    let mut rest = path.text.iter().copied();
    let fault = || path.fault("a backslash must be followed by `\\`, `n`, `r` or `xHH`".into());
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next() {
            Some(b'\\') => b'\\',
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b'x') => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = digit().zip(digit()).ok_or_else(fault)?;
                u8::try_from(16 * high + low).map_err(|_| fault())?
            }
            _ => return Err(fault()),
        });
    }
    Ok(bytes)
}
