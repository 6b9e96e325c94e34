//! The reads that are made while calls fail.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringmain_backends::probe::drop_cached;
use ringmain_backends::{
    BackendKind, BackendOptions, Error, FileHandle, Read, ReadBackend, ReadBackendExt, Result,
    open_backend,
};

const FILE_LEN: usize = 300_001;
const FILES: [&str; 2] = ["first", "second"];
const BATCH_LEN: usize = 24;

/// How the reading went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Course {
    /// Every step gave the right bytes at once.
    Right,
    /// A step gave this error. The same step gave the right bytes at its second attempt.
    RightAfter(String),
    /// A step gave this error at both attempts.
    Failed(String),
    /// Wrong bytes, or an error that does not name its file.
    Wrong(String),
}

fn contents(name: &str) -> Vec<u8> {
    let salt = name.len();
    // No byte is zero, so that zeros in the place of bytes are seen.
    (0..FILE_LEN).map(|at| (at * 7 % 251 + salt % 4 + 1) as u8).collect()
}

pub(crate) fn make_files(dir: &Path) {
    for name in FILES {
        std::fs::write(dir.join(name), contents(name)).unwrap();
    }
}

/// The files and their bytes, in the page cache or not.
pub(crate) struct Scenario {
    kind: BackendKind,
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl Scenario {
    pub(crate) fn new(kind: BackendKind, dir: &Path) -> Self {
        let files: Vec<_> = FILES.iter().map(|name| (dir.join(name), contents(name))).collect();
        for (path, _) in &files {
            let file = File::open(path).unwrap();
            file.sync_all().unwrap();
            drop_cached(&file, 0..FILE_LEN as u64).unwrap();
        }
        Self { kind, files }
    }

    /// One open file at a time, so that a batch over two opens each again.
    pub(crate) fn run(&self) -> Course {
        let mut course = Course::Right;
        let options = BackendOptions { open_files_max: 1, ..BackendOptions::default() };
        let Some(backend) = self.attempt(&mut course, None, || open_backend(self.kind, &options))
        else {
            return course;
        };
        let mut handles = Vec::new();
        for (path, _) in &self.files {
            match self.attempt(&mut course, Some(path), || backend.open(path)) {
                Some(file) => handles.push(file),
                None => return course,
            }
        }
        let steps: [&dyn Fn() -> Result<bool>; 4] = [
            &|| self.read_one(&backend, &handles[0]),
            &|| self.read_batch(&backend, &handles),
            // Now from the page cache, where the backend has one.
            &|| self.read_batch(&backend, &handles),
            &|| Ok(backend.len(&handles[1])? == FILE_LEN as u64),
        ];
        for (at, step) in steps.into_iter().enumerate() {
            match self.attempt(&mut course, Some(&self.files[0].0), step) {
                Some(true) => {}
                Some(false) => return Course::Wrong(format!("step {at} gave wrong bytes")),
                None => return course,
            }
        }
        course
    }

    /// Makes a step, twice if it fails.
    fn attempt<T>(
        &self,
        course: &mut Course,
        path: Option<&Path>,
        step: impl Fn() -> Result<T>,
    ) -> Option<T> {
        let error = match step() {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        if let Some(complaint) = self.complaint(&error, path.is_some()) {
            *course = Course::Wrong(complaint);
            return None;
        }
        match step() {
            Ok(value) => {
                *course = Course::RightAfter(error.to_string());
                Some(value)
            }
            Err(error) => {
                *course = Course::Failed(error.to_string());
                None
            }
        }
    }

    /// Returns what is wrong with an error: that of a file has to name it.
    fn complaint(&self, error: &Error, is_of_a_file: bool) -> Option<String> {
        let names_a_file = self.files.iter().any(|(path, _)| error.path() == Some(path));
        let is_of_memory = matches!(error, Error::OutOfMemory { .. } | Error::Unavailable { .. });
        (is_of_a_file && !names_a_file && !is_of_memory)
            .then(|| format!("the error names no file: {error}"))
    }

    fn read_one(&self, backend: &Arc<dyn ReadBackend>, file: &FileHandle) -> Result<bool> {
        let got = backend.read_to_vec(file, 1001, 70_000)?;
        Ok(got[..] == self.files[0].1[1001..71_001])
    }

    fn read_batch(&self, backend: &Arc<dyn ReadBackend>, files: &[FileHandle]) -> Result<bool> {
        let place = |at: usize| (at % 2, at * 11_003, 3_000 + at * 97);
        let mut memory: Vec<_> = (0..BATCH_LEN).map(|at| vec![0; place(at).2]).collect();
        let mut reads: Vec<_> = memory
            .iter_mut()
            .enumerate()
            .map(|(at, dst)| Read::new(&files[place(at).0], place(at).1 as u64, dst))
            .collect();
        backend.read_batch(&mut reads)?;
        drop(reads);
        Ok(memory.iter().enumerate().all(|(at, got)| {
            let (file, offset, len) = place(at);
            got[..] == self.files[file].1[offset..offset + len]
        }))
    }
}
