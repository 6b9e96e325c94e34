//! The surroundings of a case: a directory, and the backend under test.

use std::path::Path;
use std::sync::Arc;

use crate::{BackendOptions, Error, FileHandle, ReadBackend};

use super::arena::Want;
use super::data::DataFile;
use super::{Case, Subject, child, run};

pub(super) struct Rig<'a> {
    subject: &'a Subject,
    case: Case,
    dir: &'a Path,
}

impl<'a> Rig<'a> {
    pub(super) fn new(subject: &'a Subject, case: Case, dir: &'a Path) -> Self {
        Self { subject, case, dir }
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir
    }

    /// The backend with default options.
    #[track_caller]
    pub(super) fn backend(&self) -> Arc<dyn ReadBackend> {
        self.backend_with(&BackendOptions::default())
    }

    #[track_caller]
    pub(super) fn backend_with(&self, options: &BackendOptions) -> Arc<dyn ReadBackend> {
        match self.subject.open(options) {
            Ok(backend) => backend,
            Err(error) => panic!("the backend cannot be opened: {error}"),
        }
    }

    pub(super) fn subject(&self) -> &Subject {
        self.subject
    }

    /// A new file of `len` bytes.
    pub(super) fn file(&self, name: &str, len: u64) -> DataFile {
        DataFile::create(self.dir.join(name), len)
    }

    /// Several, of different lengths. Another count or length makes other files: one that is
    /// mapped cannot be made anew on Windows.
    pub(super) fn files(&self, count: u64, len: u64) -> Vec<DataFile> {
        (0..count).map(|i| self.file(&format!("{count}-{len}-{i}"), len + i * 531)).collect()
    }

    /// Runs the case's whole body in a process of its own, which must come to its end.
    pub(super) fn in_child(&self, body: impl FnOnce(&Self)) {
        let id = run::child_id(self.subject, &self.case);
        if child::is_child(&id) {
            body(self);
            child::say_done();
        } else {
            child::start(&id, &self.subject.entry(self.case.name()), self.dir);
        }
    }
}

/// Opens a test file.
#[track_caller]
pub(super) fn open(backend: &dyn ReadBackend, data: &DataFile) -> FileHandle {
    match backend.open(data.path()) {
        Ok(handle) => handle,
        Err(error) => panic!("{error}"),
    }
}

/// Opens all of them.
#[track_caller]
pub(super) fn open_all(backend: &dyn ReadBackend, files: &[DataFile]) -> Vec<FileHandle> {
    files.iter().map(|data| open(backend, data)).collect()
}

/// Panics unless the error is `PastEnd` and says everything about this read.
#[track_caller]
pub(super) fn assert_past_end(error: &Error, want: &Want<'_>, index: usize) {
    let Error::PastEnd { path, offset, len, index: named, file_len, .. } = error else {
        panic!("not the error of a read past the end: {error:?}");
    };
    let told = (path.as_path(), *offset, *len, *named, *file_len);
    let truth = (want.data.path(), want.offset, want.len, index, want.data.len());
    assert_eq!(told, truth, "{error}");
}

/// A few numbers that look random and are the same every time.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2).wrapping_add(1))
    }

    /// From 0 to `limit`, which is not reached.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        // Knuth's MMIX generator; its high bits are the good ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % limit
    }

    /// A range of at most `len_max` bytes that lies in the file.
    pub(super) fn range(&mut self, file_len: u64, len_max: u64) -> (u64, usize) {
        let offset = self.below(file_len);
        let len = self.below(len_max.min(file_len - offset) + 1);
        (offset, usize::try_from(len).expect("a small range"))
    }
}

/// Random ranges of random files.
pub(super) fn random_wants<'a>(
    dice: &mut Dice,
    handles: &'a [FileHandle],
    files: &'a [DataFile],
    count: usize,
    len_max: u64,
) -> Vec<Want<'a>> {
    let one = |_| {
        let which = usize::try_from(dice.below(files.len() as u64)).expect("few files");
        let (offset, len) = dice.range(files[which].len(), len_max);
        Want::new(&handles[which], &files[which], offset, len)
    };
    (0..count).map(one).collect()
}
