//! The text of a recording, line by line. `docs/formats.md` describes it.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The first line of a recording.
const HEAD: &[u8] = b"ringmain recording 2\n";

/// The largest number of files. A recording of more files stops there.
const FILES_MAX: usize = 1 << 22;

/// How the reads of a batch were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadBy {
    /// By calls that read.
    Call,
    /// By page faults in a mapping.
    Fault,
}

/// The part of a batch's record that is not about single reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHead {
    /// How the reads were made.
    pub by: ReadBy,
    /// Microseconds from the start of the recording to the start of the batch.
    pub at_us: u64,
    /// The microseconds that the batch took.
    pub took_us: u64,
    /// A small number for the thread. [`RecordingText::name_thread`] names it first.
    pub thread: u32,
}

/// Makes the text of a recording, for programs that record the reads of others. [`crate::Engine`] records its own
/// reads with [`crate::EngineBuilder::record`].
///
/// ```
/// # use std::path::Path;
/// use ringmain::{BatchHead, ReadBy, RecordingText};
///
/// let mut text = RecordingText::new();
/// text.name_thread(0, 4711);
/// let file = text.name_file(Path::new("/data/a.bin")).expect("there are few files");
/// text.begin_batch(BatchHead { by: ReadBy::Call, at_us: 12, took_us: 80, thread: 0 });
/// text.read(file, 4096, 512);
/// text.end_batch();
/// text.finish();
/// # #[cfg(unix)]
/// assert_eq!(
///     String::from_utf8_lossy(text.pending()),
///     "ringmain recording 2\nt 0 4711\nf 0 /data/a.bin\nb 12 80 0 0 4096 512\ne 1 1 512\n"
/// );
/// ```
#[derive(Debug)]
pub struct RecordingText {
    /// Lines that the caller has not written yet.
    pending: Vec<u8>,
    /// The line of the batch that was begun. Lines that name its files come before it.
    batch: Vec<u8>,
    batch_reads: u64,
    batch_bytes: u64,
    /// Keyed by the bytes of the path: hashing a `Path` splits it into components, which is slower.
    files: HashMap<OsString, u64>,
    threads: HashSet<u32>,
    counts: RecordedCounts,
}

/// The numbers of batches, reads and bytes in a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordedCounts {
    /// Batches that were ended.
    pub batches: u64,
    /// Their reads.
    pub reads: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Default for RecordingText {
    fn default() -> Self {
        Self::new()
    }
}

impl RecordingText {
    /// Begins a recording. The first line is pending.
    #[must_use]
    pub fn new() -> Self {
        Self {
            pending: HEAD.to_vec(),
            batch: Vec::new(),
            batch_reads: 0,
            batch_bytes: 0,
            files: HashMap::new(),
            threads: HashSet::new(),
            counts: RecordedCounts::default(),
        }
    }

    /// Returns the number of the file, whose path is made absolute; `None` if there are too many files.
    pub fn name_file(&mut self, path: &Path) -> Option<u64> {
        if let Some(index) = self.files.get(path.as_os_str()) {
            return Some(*index);
        }
        if self.files.len() == FILES_MAX {
            return None;
        }
        let index = self.files.len() as u64;
        self.pending.push(b'f');
        put_numbers(&mut self.pending, [index]);
        self.pending.push(b' ');
        escape_path(&mut self.pending, path);
        self.files.insert(path.as_os_str().to_owned(), index);
        Some(index)
    }

    /// Says that this is all that a program read, and which program. A replay leaves out files that are gone.
    pub fn name_program(&mut self, command: &OsStr) {
        self.pending.extend_from_slice(b"p ");
        escape_line(&mut self.pending, command);
    }

    /// Adds a sentence for the user about what is missing or unusual.
    pub fn note(&mut self, note: &str) {
        self.pending.extend_from_slice(b"n ");
        escape_line(&mut self.pending, OsStr::new(note));
    }

    /// Says which process a thread belongs to, if that was not said before.
    pub fn name_thread(&mut self, thread: u32, process: u32) {
        if self.threads.insert(thread) {
            self.pending.push(b't');
            put_numbers(&mut self.pending, [thread.into(), process.into()]);
            self.pending.push(b'\n');
        }
    }

    /// Begins a batch. One that was begun and not ended is forgotten.
    pub fn begin_batch(&mut self, head: BatchHead) {
        let BatchHead { by, at_us, took_us, thread } = head;
        self.batch.clear();
        (self.batch_reads, self.batch_bytes) = (0, 0);
        self.batch.push(match by {
            ReadBy::Call => b'b',
            ReadBy::Fault => b'm',
        });
        put_numbers(&mut self.batch, [at_us, took_us, thread.into()]);
    }

    /// Adds a read to the batch. `file` is a number from [`Self::name_file`].
    pub fn read(&mut self, file: u64, offset: u64, bytes: u64) {
        put_numbers(&mut self.batch, [file, offset, bytes]);
        self.batch_reads += 1;
        self.batch_bytes = self.batch_bytes.saturating_add(bytes);
    }

    /// Ends the batch.
    pub fn end_batch(&mut self) {
        self.batch.push(b'\n');
        self.pending.extend_from_slice(&self.batch);
        self.counts.batches += 1;
        self.counts.reads += self.batch_reads;
        self.counts.bytes = self.counts.bytes.saturating_add(self.batch_bytes);
    }

    /// Ends the recording with a line that counts what it has.
    pub fn finish(&mut self) {
        let RecordedCounts { batches, reads, bytes } = self.counts;
        self.pending.push(b'e');
        put_numbers(&mut self.pending, [batches, reads, bytes]);
        self.pending.push(b'\n');
    }

    /// The lines that were not written yet.
    #[must_use]
    pub fn pending(&self) -> &[u8] {
        &self.pending
    }

    /// Forgets the pending lines, because the caller has written them.
    pub fn clear_pending(&mut self) {
        self.pending.clear();
    }

    /// Returns what was recorded so far.
    #[must_use]
    pub fn counts(&self) -> RecordedCounts {
        self.counts
    }
}

/// Writes a space and a number, for each. By hand: formatting is most of the cost of recording a
/// read.
fn put_numbers<const N: usize>(buffer: &mut Vec<u8>, numbers: [u64; N]) {
    for mut number in numbers {
        let mut digits = [0; 20];
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        buffer.push(b' ');
        buffer.extend_from_slice(&digits[first..]);
    }
}

/// Writes the path, made absolute, as one line.
pub(super) fn escape_path(buffer: &mut Vec<u8>, path: &Path) {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    escape_line(buffer, absolute.as_os_str());
}

/// Writes a text as one line: a backslash escapes itself, `\n` and `\r` are line ends, and `\xHH` is a byte that is not
/// text.
fn escape_line(buffer: &mut Vec<u8>, text: &OsStr) {
    for chunk in text.as_encoded_bytes().utf8_chunks() {
        for byte in chunk.valid().bytes() {
            match byte {
                b'\\' => buffer.extend_from_slice(b"\\\\"),
                b'\n' => buffer.extend_from_slice(b"\\n"),
                b'\r' => buffer.extend_from_slice(b"\\r"),
                byte => buffer.push(byte),
            }
        }
        for byte in chunk.invalid() {
            buffer.extend_from_slice(format!("\\x{byte:02X}").as_bytes());
        }
    }
    buffer.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_was_not_ended_is_not_counted() {
        let mut text = RecordingText::new();
        for bytes in [100, 7] {
            text.begin_batch(BatchHead { by: ReadBy::Call, at_us: 0, took_us: 0, thread: 0 });
            text.read(0, 0, bytes);
        }
        text.end_batch();
        assert_eq!(text.counts(), RecordedCounts { batches: 1, reads: 1, bytes: 7 });
    }

    #[cfg(unix)]
    #[test]
    fn an_odd_path_is_one_line() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;
        let cases: [(&[u8], &str); 2] =
            [(b"/a \\b\nc\r", "/a \\\\b\\nc\\r\n"), (b"/\xFFa\xC3\xA9", "/\\xFFa\u{e9}\n")];
        for (path, expected) in cases {
            let mut line = Vec::new();
            escape_path(&mut line, Path::new(OsStr::from_bytes(path)));
            assert_eq!(String::from_utf8(line).unwrap(), expected);
        }
    }
}
