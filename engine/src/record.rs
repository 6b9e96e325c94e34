//! A backend that records every read, so that the reads can be replayed on any other.
//!
//! The format is text, a line for each batch; `docs/formats.md` describes it.
//!
//! The original engine is not slowed at all. Recording a batch takes one lock and a line in a
//! buffer of 256 KiB: 0.15 µs, and 0.05 µs for each further read. If the file cannot be written any
//! more, the recording stops and `Recording::status` says so; reads never fail because of it. A
//! forked child does not record: two processes cannot share one buffer and one file.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ringmain_backends::{
    Capabilities, FileHandle, HomeProcess, MappedRange, Read, ReadBackend, Result, forward_to,
    thread_number,
};

use crate::Error;

/// The first line of a recording.
const HEAD: &[u8] = b"ringmain recording 1\n";

/// The size of the buffer before the file: some ten thousand reads, so that most batches make no
/// system call.
const BUFFER_BYTES: usize = 256 << 10;

/// The largest number of files. A recording of more files stops there.
const FILES_MAX: usize = 1 << 20;

/// Records the reads of another backend. Reads that fail are not recorded, nor are hints; a range
/// that is mapped counts as read.
///
/// A recording never fails a read: when it cannot go on (a full disk), it stops, and
/// [`Recording::status`] says why.
#[derive(Debug)]
pub(crate) struct RecordingBackend {
    inner: Arc<dyn ReadBackend>,
    recording: Recording,
}

impl RecordingBackend {
    /// Records the reads of `inner`.
    pub(crate) fn new(inner: Arc<dyn ReadBackend>, recording: Recording) -> Self {
        Self { inner, recording }
    }
}

/// A recording under way. Clones share it, and dropping the last one finishes it. In a child made
/// by `fork` it does nothing: the parent goes on recording.
#[derive(Clone, Debug)]
pub struct Recording {
    recorder: Arc<Recorder>,
}

/// The state of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingStatus {
    /// The file that it is written to.
    pub path: PathBuf,
    /// Batches recorded so far.
    pub batches: u64,
    /// Their reads.
    pub reads: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Nothing more will be recorded: it was finished, or it stopped.
    pub is_over: bool,
    /// Why it stopped before it was finished.
    pub stopped: Option<String>,
}

impl RecordingStatus {
    fn new(path: &Path) -> Self {
        let path = path.to_owned();
        Self { path, batches: 0, reads: 0, bytes: 0, is_over: false, stopped: None }
    }
}

#[derive(Debug)]
struct Recorder {
    path: PathBuf,
    started: Instant,
    /// The process that records.
    home: HomeProcess,
    state: Mutex<RecorderState>,
}

#[derive(Debug)]
struct RecorderState {
    status: RecordingStatus,
    /// `None` when it is over.
    file: Option<File>,
    /// Lines that are not written yet. Not a `BufWriter`: a forked child must be able to drop it
    /// without writing the parent's lines a second time.
    buffer: Vec<u8>,
    /// The line of the batch that is being recorded.
    line: Vec<u8>,
    /// Keyed by the bytes of the path: hashing a `Path` splits it into components, which is slower.
    files: HashMap<OsString, usize>,
    /// The file of the last read, and its number.
    last: Option<(FileHandle, usize)>,
}

/// Creates the file, or opens what is there if it is not a file.
fn create_file(path: &Path) -> io::Result<File> {
    let created = OpenOptions::new().write(true).create_new(true).open(path);
    let exists = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
    match created {
        Err(error) if exists(&error) => {}
        created => return created,
    }
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        return OpenOptions::new().write(true).open(path);
    }
    let message = "the file already exists; remove it or name another file";
    Err(io::Error::new(io::ErrorKind::AlreadyExists, message))
}

impl Recording {
    /// Begins a recording in a new file. A file that exists is refused, because it may be data. A device
    /// or a pipe is written to.
    pub fn create(path: &Path) -> crate::Result<Self> {
        let failed =
            |cause| Error::Io { path: path.to_owned(), action: "creating the recording", cause };
        let mut file = create_file(path).map_err(failed)?;
        file.write_all(HEAD).map_err(failed)?;
        let state = Mutex::new(RecorderState {
            status: RecordingStatus::new(path),
            file: Some(file),
            buffer: Vec::with_capacity(BUFFER_BYTES),
            line: Vec::new(),
            files: HashMap::new(),
            last: None,
        });
        let (started, home) = (Instant::now(), HomeProcess::current());
        let path = path.to_owned();
        Ok(Self { recorder: Arc::new(Recorder { path, started, home, state }) })
    }

    /// Its state.
    #[must_use]
    pub fn status(&self) -> RecordingStatus {
        if self.recorder.is_ours() {
            return self.recorder.lock().status.clone();
        }
        let stopped = Some("the parent process records".to_owned());
        RecordingStatus { is_over: true, stopped, ..RecordingStatus::new(&self.recorder.path) }
    }

    /// Ends the recording and writes the lines that are left. Later reads are not recorded.
    pub fn finish(&self) -> RecordingStatus {
        if self.recorder.is_ours() {
            self.recorder.lock().finish();
        }
        self.status()
    }

    /// Microseconds since the recording began; `None` in a child of the process that records.
    fn now_us(&self) -> Option<u64> {
        let us = || u64::try_from(self.recorder.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.recorder.is_ours().then(us)
    }

    fn add<'a>(&self, at_us: u64, reads: impl Iterator<Item = (&'a FileHandle, u64, u64)>) {
        let mut state = self.recorder.lock();
        if state.file.is_some() && state.add(at_us, reads).is_none() {
            state.stop(format!("more than {FILES_MAX} files"));
        }
    }
}

impl Recorder {
    /// Checked before taking the lock, which another thread may have held when this process was
    /// forked.
    fn is_ours(&self) -> bool {
        self.home.is_current()
    }

    fn lock(&self) -> MutexGuard<'_, RecorderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if self.is_ours() {
            self.lock().finish();
        }
    }
}

impl RecorderState {
    /// `None` when there are too many files.
    fn add<'a>(
        &mut self,
        at_us: u64,
        reads: impl Iterator<Item = (&'a FileHandle, u64, u64)>,
    ) -> Option<()> {
        self.line.clear();
        self.line.push(b'b');
        put_numbers(&mut self.line, [at_us, u64::from(thread_number())]);
        for (file, offset, len) in reads {
            let index = self.index_of(file)?;
            put_numbers(&mut self.line, [index as u64, offset, len]);
            self.status.reads += 1;
            self.status.bytes += len;
        }
        self.line.push(b'\n');
        self.buffer.extend_from_slice(&self.line);
        self.status.batches += 1;
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush();
        }
        Some(())
    }

    /// The number of the file. A new file gets a line, which comes before that of the batch.
    fn index_of(&mut self, file: &FileHandle) -> Option<usize> {
        if let Some((_, index)) = self.last.as_ref().filter(|(last, _)| last.is_clone_of(file)) {
            return Some(*index);
        }
        let name = file.path().as_os_str();
        let index = match self.files.get(name) {
            Some(index) => *index,
            None if self.files.len() == FILES_MAX => return None,
            None => {
                let index = self.files.len();
                self.buffer.push(b'f');
                put_numbers(&mut self.buffer, [index as u64]);
                self.buffer.push(b' ');
                escape_path(&mut self.buffer, file.path());
                self.files.insert(name.to_owned(), index);
                index
            }
        };
        self.last = Some((file.clone(), index));
        Some(index)
    }

    fn flush(&mut self) {
        let Some(file) = &mut self.file else { return };
        if let Err(error) = file.write_all(&self.buffer) {
            self.stop(error.to_string());
        }
        self.buffer.clear();
    }

    fn stop(&mut self, reason: String) {
        self.end();
        self.status.stopped = Some(reason);
    }

    fn finish(&mut self) {
        if self.file.is_some() {
            let RecordingStatus { batches, reads, bytes, .. } = self.status;
            self.buffer.push(b'e');
            put_numbers(&mut self.buffer, [batches, reads, bytes]);
            self.buffer.push(b'\n');
            self.flush();
        }
        self.end();
    }

    /// Frees everything that a recording holds.
    fn end(&mut self) {
        (self.file, self.last) = (None, None);
        (self.buffer, self.line, self.files) = (Vec::new(), Vec::new(), HashMap::new());
        self.status.is_over = true;
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

/// The path, made absolute, as one line: a backslash escapes itself, `\n` and `\r` are line ends,
/// and `\xHH` is a byte that is not text.
fn escape_path(buffer: &mut Vec<u8>, path: &Path) {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for chunk in absolute.as_os_str().as_encoded_bytes().utf8_chunks() {
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

impl ReadBackend for RecordingBackend {
    forward_to!(inner: kind, open, len, prefetch, release, expect, version, explain, stats);

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.inner.capabilities();
        let path = self.recording.recorder.path.display();
        capabilities.features.push(format!("recording to {path}"));
        capabilities
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        let at_us = self.recording.now_us();
        self.inner.read_batch(reads)?;
        if let Some(at_us) = at_us.filter(|_| reads.iter().any(|read| !read.is_empty())) {
            let with_bytes = reads.iter().filter(|read| !read.is_empty());
            let parts = with_bytes.map(|read| (read.file(), read.offset(), read.len() as u64));
            self.recording.add(at_us, parts);
        }
        Ok(())
    }

    fn map(&self, file: &FileHandle, range: Range<u64>) -> Result<Option<MappedRange>> {
        let (start, len) = (range.start, range.end.saturating_sub(range.start));
        let at_us = self.recording.now_us();
        let mapped = self.inner.map(file, range)?;
        if let (Some(at_us), Some(_), true) = (at_us, &mapped, len > 0) {
            self.recording.add(at_us, std::iter::once((file, start, len)));
        }
        Ok(mapped)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use ringmain_backends::conformance::{self, Subject};
    use ringmain_backends::{BackendKind, BackendOptions, ReadBackendExt, open_backend};

    use super::*;

    fn recorded(dir: &Path, log: &Path) -> (RecordingBackend, FileHandle) {
        let data = dir.join("data.bin");
        std::fs::write(&data, vec![7; 100_000]).unwrap();
        let inner = open_backend(BackendKind::Pread, &BackendOptions::default()).unwrap();
        let backend = RecordingBackend::new(inner, Recording::create(log).unwrap());
        let file = backend.open(&data).unwrap();
        (backend, file)
    }

    #[test]
    fn a_line_for_each_batch() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let (backend, file) = recorded(dir.path(), &log);
        backend.gather(&file, &[0..10, 5000..5000, 90..100]).unwrap();
        backend.read_to_vec(&file, 7, 3).unwrap();
        assert!(backend.read_to_vec(&file, 99_999, 2).is_err());
        backend.read_to_vec(&file, 7, 0).unwrap();
        let status = backend.recording.finish();
        assert_eq!((status.batches, status.reads, status.bytes), (2, 3, 23));
        assert!(status.is_over && status.stopped.is_none());
        backend.read_to_vec(&file, 0, 1).unwrap();
        drop(backend);
        let text = std::fs::read_to_string(&log).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
        assert_eq!(lines[0], ["ringmain", "recording", "1"]);
        let mut named = b"f 0 ".to_vec();
        escape_path(&mut named, &dir.path().join("data.bin"));
        assert_eq!(lines[1].join(" "), String::from_utf8(named).unwrap().trim_end());
        assert_eq!(lines[2][3..], ["0", "0", "10", "0", "90", "10"]);
        assert_eq!(lines[3][3..], ["0", "7", "3"]);
        assert_eq!(lines[4], ["e", "2", "3", "23"]);
        assert_eq!(lines.len(), 5);
    }

    /// A recording to the path of a data file replaced the data by the recording.
    #[test]
    fn a_file_that_exists_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data.bin");
        std::fs::write(&data, [7; 1000]).unwrap();
        let error = Recording::create(&data).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        let shown = error.to_string();
        assert!(shown.contains("data.bin: creating the recording"), "{shown}");
        assert!(shown.contains("remove it or name another file"), "{shown}");
        assert_eq!(std::fs::read(&data).unwrap(), [7; 1000]);
        assert!(Recording::create(dir.path()).is_err());
    }

    /// `/dev/full` fails the first write, as a full disk does.
    #[cfg(unix)]
    #[test]
    fn a_full_disk_stops_the_recording_and_not_the_reads() {
        if !Path::new("/dev/full").exists() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let error = Recording::create(Path::new("/dev/full")).unwrap_err().to_string();
        assert!(error.contains("/dev/full: creating the recording"), "{error}");
        let (backend, file) = recorded(dir.path(), &dir.path().join("log"));
        backend.recording.recorder.lock().file =
            Some(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
        for at in 0..40_000 {
            assert_eq!(backend.read_to_vec(&file, at, 1).unwrap(), [7]);
        }
        let status = backend.recording.status();
        assert!(status.is_over && status.stopped.unwrap().contains("No space left"));
        assert_eq!(backend.recording.recorder.lock().buffer.capacity(), 0);
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

    /// In the folder for temporary files: a case that gives up its privileges can write there too.
    fn scratch_path() -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        std::env::temp_dir().join(format!("ringmain-{process}-{number}.rec"))
    }

    fn record_all(options: &BackendOptions) -> ringmain_backends::Result<Arc<dyn ReadBackend>> {
        let inner = open_backend(BackendKind::Pread, options)?;
        let path = scratch_path();
        let recording = Recording::create(&path).expect("a recording among the temporary files");
        // Windows keeps a name as long as the file is open.
        let _ = std::fs::remove_file(path);
        Ok(Arc::new(RecordingBackend::new(inner, recording)))
    }

    conformance::suite! {
        mod recorded = Subject::new("pread", record_all)
            .variant("recorded")
            .leaves_out("reads_over_2_gib", "seconds, and split like those of the backend itself");
    }
}
