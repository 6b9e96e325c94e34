//! A backend that records every read, so that the reads can be replayed on any other.
//!
//! The format is text, a line for each batch; `docs/formats.md` describes it.
//!
//! The engine whose `record` was called does not become slower. To record a batch, the clock is read twice, a lock is
//! taken and a line is written to a buffer of 256 KiB. With one reading of the clock that took 0.15 µs, and 0.05 µs
//! for each further read. If the file cannot be written any more, the recording stops and `Recording::status` says
//! so; reads never fail because of it. A forked child does not record: two processes cannot share one buffer and one
//! file.

mod text;

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

pub use text::{BatchHead, ReadBy, RecordedCounts, RecordingText};

/// The size of the buffer before the file: some ten thousand reads, so that most batches make no
/// system call.
const BUFFER_BYTES: usize = 256 << 10;

/// Records the reads of another backend. Reads that fail are not recorded, nor are hints; a range
/// that is mapped counts as read.
///
/// A recording never fails a read: when it cannot continue (a full disk), it stops, and
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
/// by `fork` it does nothing: the parent keeps recording.
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
    /// Not written by a `BufWriter`: a forked child must be able to drop it without writing the parent's lines
    /// a second time.
    text: RecordingText,
    /// The file of the last read, and its number.
    last: Option<(FileHandle, u64)>,
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
        let mut text = RecordingText::new();
        // A recording that was just begun is a file that readers recognise.
        file.write_all(text.pending()).map_err(failed)?;
        text.clear_pending();
        let status = RecordingStatus::new(path);
        let state = Mutex::new(RecorderState { status, file: Some(file), text, last: None });
        let (started, home) = (Instant::now(), HomeProcess::current());
        let path = path.to_owned();
        Ok(Self { recorder: Arc::new(Recorder { path, started, home, state }) })
    }

    /// Its state.
    #[must_use]
    pub fn status(&self) -> RecordingStatus {
        if self.recorder.is_ours() {
            return self.recorder.lock().status();
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
        let took_us = self.now_us().map_or(0, |now_us| now_us.saturating_sub(at_us));
        let (by, thread) = (ReadBy::Call, thread_number());
        let head = BatchHead { by, at_us, took_us, thread };
        let mut state = self.recorder.lock();
        if state.file.is_some() && state.add(head, reads).is_none() {
            state.stop("there are too many files".into());
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
        head: BatchHead,
        reads: impl Iterator<Item = (&'a FileHandle, u64, u64)>,
    ) -> Option<()> {
        self.text.name_thread(head.thread, std::process::id());
        self.text.begin_batch(head);
        for (file, offset, len) in reads {
            let index = self.index_of(file)?;
            self.text.read(index, offset, len);
        }
        self.text.end_batch();
        if self.text.pending().len() >= BUFFER_BYTES {
            self.flush();
        }
        Some(())
    }

    /// The number of the file.
    fn index_of(&mut self, file: &FileHandle) -> Option<u64> {
        if let Some((_, index)) = self.last.as_ref().filter(|(last, _)| last.is_clone_of(file)) {
            return Some(*index);
        }
        let index = self.text.name_file(file.path())?;
        self.last = Some((file.clone(), index));
        Some(index)
    }

    fn flush(&mut self) {
        let Some(file) = &mut self.file else { return };
        if let Err(error) = file.write_all(self.text.pending()) {
            self.stop(error.to_string());
        }
        self.text.clear_pending();
    }

    fn stop(&mut self, reason: String) {
        self.end();
        self.status.stopped = Some(reason);
    }

    fn finish(&mut self) {
        if self.file.is_some() {
            self.text.finish();
            self.flush();
        }
        self.end();
    }

    /// Frees everything that a recording holds.
    fn end(&mut self) {
        self.status = self.status();
        (self.file, self.last, self.text) = (None, None, RecordingText::default());
        self.status.is_over = true;
    }

    fn status(&self) -> RecordingStatus {
        let RecordingStatus { path, is_over, stopped, .. } = self.status.clone();
        if is_over {
            return self.status.clone();
        }
        let RecordedCounts { batches, reads, bytes } = self.text.counts();
        RecordingStatus { path, batches, reads, bytes, is_over, stopped }
    }
}

impl ReadBackend for RecordingBackend {
    forward_to!(inner: kind, open, len, prefetch, release, expect, version, explain, stats, list);

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
        let (mut first, mut last) = ([0; 10], [0; 10]);
        backend
            .read_batch(&mut [
                Read::new(&file, 0, &mut first),
                Read::new(&file, 5000, &mut []),
                Read::new(&file, 90, &mut last),
            ])
            .unwrap();
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
        assert_eq!(lines[0], ["ringmain", "recording", "2"]);
        let mut named = b"f 0 ".to_vec();
        text::escape_path(&mut named, &dir.path().join("data.bin"));
        assert_eq!(lines[1][0], "t");
        assert_eq!(lines[1][2], std::process::id().to_string());
        assert_eq!(lines[2].join(" "), String::from_utf8(named).unwrap().trim_end());
        assert_eq!(lines[3][4..], ["0", "0", "10", "0", "90", "10"]);
        assert_eq!(lines[4][4..], ["0", "7", "3"]);
        assert_eq!(lines[5], ["e", "2", "3", "23"]);
        assert_eq!(lines.len(), 6);
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
        // Only the first line of a recording that could begin.
        assert!(backend.recording.recorder.lock().text.pending().len() < 100);
    }

    /// A case that gives up its privileges may not write to the folder for temporary files, which can belong to root
    /// alone. Every user may write to the null device. Windows has neither such cases nor that device.
    fn recording_path() -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let null_device = Path::new("/dev/null");
        if null_device.exists() {
            return null_device.to_owned();
        }
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        std::env::temp_dir().join(format!("ringmain-{process}-{number}.rec"))
    }

    fn record_all(options: &BackendOptions) -> ringmain_backends::Result<Arc<dyn ReadBackend>> {
        let inner = open_backend(BackendKind::Pread, options)?;
        let path = recording_path();
        let recording = Recording::create(&path).expect("a new recording");
        if path.is_file() {
            // Windows keeps a name as long as the file is open.
            let _ = std::fs::remove_file(path);
        }
        Ok(Arc::new(RecordingBackend::new(inner, recording)))
    }

    conformance::suite! {
        mod recorded = Subject::new("pread", record_all)
            .variant("recorded")
            .leaves_out("reads_over_2_gib", "seconds, and split like those of the backend itself");
    }
}
