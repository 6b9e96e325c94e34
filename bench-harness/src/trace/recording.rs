//! Recordings of `Engine::record`. See `docs/formats.md`.

use std::io::Read;
use std::path::PathBuf;

use super::TraceBuilder;
use super::lines::{Fault, Line, Lines, Word, Words, path_from};

/// Parses the lines after the first.
pub(super) fn parse(lines: &mut Lines<impl Read>, builder: &mut TraceBuilder) -> Result<(), Fault> {
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
        let kind = words.expect("`f`, `b` or `e`")?;
        match kind.text {
            b"f" => files.push(file(&mut words, files.len())?),
            b"b" => batch(&mut words, &files, builder)?,
            b"e" => {
                end(line, &mut words, builder)?;
                has_end = true;
            }
            _ => {
                let found = kind.shown();
                return Err(kind.fault(format!("expected `f`, `b` or `e`, found `{found}`")));
            }
        }
    }
    if !has_end {
        builder.note("the recording has no end: the program stopped, or the disk was full".into());
    }
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

/// Parses `b AT_US THREAD` and three numbers for each read.
fn batch(
    words: &mut Words<'_>,
    files: &[PathBuf],
    builder: &mut TraceBuilder,
) -> Result<(), Fault> {
    let at_us = words.number("the time in microseconds")?;
    let mut place = words.clone();
    let thread = words.number("the number of a thread")?;
    let thread = u32::try_from(thread).or_else(|_| {
        Err(place
            .expect("the number of a thread")?
            .fault("the number of the thread is too large".into()))
    })?;
    builder.begin_batch(at_us, thread);
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
