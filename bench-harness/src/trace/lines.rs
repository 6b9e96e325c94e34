//! A text file as lines and words, with line and column for messages.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use crate::failure::Failure;

/// The longest line that is accepted: a batch of half a million reads.
const LINE_BYTES_MAX: u64 = 32 << 20;

/// An error in a trace, with its place.
#[derive(Debug)]
pub(crate) enum Fault {
    At { line: usize, column: usize, message: String },
    Whole(String),
    Io(io::Error),
}

impl Fault {
    pub(super) fn at(line: usize, column: usize, message: String) -> Self {
        Self::At { line, column, message }
    }

    pub(super) fn whole(message: String) -> Self {
        Self::Whole(message)
    }

    /// The message without a place.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::At { message, .. } | Self::Whole(message) => message.clone(),
            Self::Io(error) => error.to_string(),
        }
    }

    pub(crate) fn in_file(self, path: &Path) -> Failure {
        let path = path.to_owned();
        match self {
            Self::At { line, column, message } => {
                Failure::Trace { path, message: format!("line {line}, column {column}: {message}") }
            }
            Self::Whole(message) => Failure::Trace { path, message },
            Self::Io(source) => Failure::ReadFile { path, source },
        }
    }
}

/// Reads the lines of a file, one at a time into the same memory.
pub(super) struct Lines<R> {
    input: BufReader<R>,
    text: Vec<u8>,
    number: usize,
}

/// A line without its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    pub(super) text: &'a [u8],
    pub(super) number: usize,
    /// Whether it ended with a line end and not with the file.
    pub(super) is_whole: bool,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input: BufReader::new(input), text: Vec::new(), number: 0 }
    }

    /// Returns the next line; `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<Line<'_>>, Fault> {
        self.text.clear();
        self.number += 1;
        let number = self.number;
        let mut limited = (&mut self.input).take(LINE_BYTES_MAX);
        let len = limited.read_until(b'\n', &mut self.text).map_err(Fault::Io)?;
        if len == 0 {
            return Ok(None);
        }
        let is_whole = self.text.last() == Some(&b'\n');
        if !is_whole && len as u64 == LINE_BYTES_MAX {
            return Err(Fault::at(
                number,
                1,
                format!("the line has more than {LINE_BYTES_MAX} bytes"),
            ));
        }
        let end = if is_whole { len - 1 } else { len };
        let text = &self.text[..end];
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        Ok(Some(Line { text, number, is_whole }))
    }
}

impl<'a> Line<'a> {
    pub(super) fn words(self) -> Words<'a> {
        Words { line: self, at: 0 }
    }
}

/// The words of a line, from left to right.
#[derive(Clone, Debug)]
pub(super) struct Words<'a> {
    line: Line<'a>,
    at: usize,
}

/// A word and its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word<'a> {
    pub(super) text: &'a [u8],
    line: usize,
    column: usize,
}

impl<'a> Words<'a> {
    /// Returns the next word, or an error if the line ends.
    pub(super) fn expect(&mut self, what: &str) -> Result<Word<'a>, Fault> {
        self.next()
            .ok_or_else(|| self.fault_here(format!("the line ends where {what} is expected")))
    }

    /// Returns the next word as a whole number.
    pub(super) fn number(&mut self, what: &str) -> Result<u64, Fault> {
        let word = self.expect(what)?;
        let number = std::str::from_utf8(word.text).ok().filter(|text| !text.starts_with('+'));
        let number = number.and_then(|text| text.parse().ok());
        number.ok_or_else(|| word.fault(format!("expected {what}, found `{}`", word.shown())))
    }

    /// Returns an error if there are more words.
    pub(super) fn end(&mut self) -> Result<(), Fault> {
        match self.next() {
            None => Ok(()),
            Some(word) => {
                Err(word.fault(format!("expected the end of the line, found `{}`", word.shown())))
            }
        }
    }

    /// Returns the rest of the line after one space.
    pub(super) fn rest(&mut self) -> Word<'a> {
        let start = (self.at + 1).min(self.line.text.len());
        self.at = self.line.text.len();
        Word { text: &self.line.text[start..], line: self.line.number, column: start + 1 }
    }

    fn fault_here(&self, message: String) -> Fault {
        Fault::at(self.line.number, self.at + 1, message)
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = Word<'a>;

    fn next(&mut self) -> Option<Word<'a>> {
        let text = self.line.text;
        let is_gap = |byte: &u8| *byte == b' ' || *byte == b'\t';
        let start = self.at + text[self.at..].iter().position(|byte| !is_gap(byte))?;
        let len = text[start..].iter().position(is_gap).unwrap_or(text.len() - start);
        self.at = start + len;
        Some(Word { text: &text[start..self.at], line: self.line.number, column: start + 1 })
    }
}

impl Word<'_> {
    pub(super) fn fault(&self, message: String) -> Fault {
        Fault::at(self.line, self.column, message)
    }

    /// Returns the word for a message: cut, and without control characters.
    pub(super) fn shown(&self) -> String {
        let text = String::from_utf8_lossy(&self.text[..self.text.len().min(60)]);
        text.escape_debug().to_string()
    }
}

/// Converts bytes to a path; they need not be UTF-8 on this system.
#[cfg(unix)]
pub(super) fn path_from(bytes: Vec<u8>) -> Option<std::path::PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let is_path = !bytes.is_empty() && !bytes.contains(&0);
    is_path.then(|| std::ffi::OsString::from_vec(bytes).into())
}

/// Converts bytes to a path; they must be UTF-8 on this system.
#[cfg(not(unix))]
pub(super) fn path_from(bytes: Vec<u8>) -> Option<std::path::PathBuf> {
    let is_path = !bytes.is_empty() && !bytes.contains(&0);
    String::from_utf8(bytes).ok().filter(|_| is_path).map(Into::into)
}
