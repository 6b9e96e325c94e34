//! Pages that a mapping cannot have, because the file was truncated or the device fails: copies
//! report it, slices never show zeros in their place.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

mod common;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ringmain_backends::conformance::child::in_child;
use ringmain_backends::{
    BackendKind, BackendOptions, Error, FileMap, MappedRange, ReadBackend, ReadBackendExt,
    Unchanging, open_backend,
};
use tempfile::TempDir;

const FILE_BYTES: usize = 64 << 10;
/// A place in a page of its own, far from the end that a truncation leaves.
const LOST: usize = 40_000;
/// The exit code of a handler that a program has installed.
const OTHER_HANDLER: i32 = 42;

/// How a process ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Exit(i32),
    Signal(i32),
}

/// Runs `body` in a forked process, which exits with the byte that it loads.
fn end_of(body: impl FnOnce() -> u8) -> End {
    // SAFETY: called where no other thread works; the child loads a byte and leaves.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", io::Error::last_os_error());
    if pid == 0 {
        let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the limit is valid to read; the alarm ends a child that hangs.
        unsafe {
            libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
            libc::alarm(30);
        }
        let byte = body();
        // SAFETY: ends the process without the destructors that are the parent's.
        unsafe { libc::_exit(i32::from(byte)) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid to write to, and the child is this process's.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid, "waitpid: {}", io::Error::last_os_error());
    if libc::WIFSIGNALED(status) {
        End::Signal(libc::WTERMSIG(status))
    } else {
        End::Exit(libc::WEXITSTATUS(status))
    }
}

extern "C" fn exit_at_once(_signal: libc::c_int) {
    // SAFETY: async-signal-safe.
    unsafe { libc::_exit(OTHER_HANDLER) };
}

/// Installs a handler of `SIGBUS` that knows nothing of the others, as `faulthandler` of Python does.
fn replace_handler() {
    let handler: extern "C" fn(libc::c_int) = exit_at_once;
    // SAFETY: the handler only calls `_exit`.
    let old = unsafe { libc::signal(libc::SIGBUS, handler as libc::sighandler_t) };
    assert_ne!(old, libc::SIG_ERR);
}

fn promise() -> Unchanging {
    // SAFETY: no slice is held while a test changes its file.
    unsafe { Unchanging::promise() }
}

/// A file without a zero in it.
fn file() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    std::fs::write(&path, [7; FILE_BYTES]).unwrap();
    (dir, path)
}

fn truncate(path: &Path, len: u64) {
    File::options().write(true).open(path).unwrap().set_len(len).unwrap();
}

fn mmap_backend() -> Arc<dyn ReadBackend> {
    open_backend(BackendKind::Mmap, &BackendOptions::default()).unwrap()
}

fn mapped(backend: &dyn ReadBackend, path: &Path) -> MappedRange {
    let file = backend.open(path).unwrap();
    backend.map(&file, 0..FILE_BYTES as u64).unwrap().unwrap()
}

/// Lost bytes of a model were read as zeros, and only a check that programs may omit showed so. The
/// process ends instead, as every program with a mapping does.
#[test]
fn a_slice_never_shows_zeros_for_a_lost_page() {
    in_child("a_slice_never_shows_zeros_for_a_lost_page", || {
        let (_dir, path) = file();
        let (backend, map) = (mmap_backend(), FileMap::open(&path, promise()).unwrap());
        let range = mapped(&*backend, &path);
        let from_map = || map.as_slice()[LOST];
        let from_range = || range.as_slice(promise())[LOST];
        assert_eq!((end_of(from_map), end_of(from_range)), (End::Exit(7), End::Exit(7)));
        truncate(&path, 100);
        assert_eq!(end_of(from_map), End::Signal(libc::SIGBUS));
        assert_eq!(end_of(from_range), End::Signal(libc::SIGBUS));
        // Copies of the same pages report the loss, and leave nothing behind that a slice shows.
        assert!(!range.copy_to(&mut [0; FILE_BYTES]));
        assert!(!range.copy_blocks::<4096>(|_, _| {}));
        map.populate(0..FILE_BYTES).unwrap_err();
        let file = backend.open(&path).unwrap();
        let error = backend.read_to_vec(&file, LOST as u64, 1).unwrap_err();
        assert!(matches!(error, Error::PastEnd { file_len: 100, .. }), "{error:?}");
        assert_eq!(end_of(from_map), End::Signal(libc::SIGBUS));
        assert_eq!(end_of(from_range), End::Signal(libc::SIGBUS));
    });
}

/// A fault that no copy of this crate has caused belongs to the handler that was there before.
#[test]
fn faults_of_others_reach_the_handler_that_was_there_before() {
    in_child("faults_of_others_reach_the_handler_that_was_there_before", || {
        let (_dir, path) = file();
        replace_handler();
        let range = mapped(&*mmap_backend(), &path);
        truncate(&path, 100);
        assert!(!range.copy_to(&mut [0; FILE_BYTES]), "a copy is not the handler's business");
        assert_eq!(end_of(|| range.as_slice(promise())[LOST]), End::Exit(OTHER_HANDLER));
        let raised = || {
            // SAFETY: a plain call.
            unsafe { libc::raise(libc::SIGBUS) };
            0
        };
        assert_eq!(end_of(raised), End::Exit(OTHER_HANDLER));
    });
}

/// A handler that was installed after the first mapping made the next lost page deadly for the mappings
/// there were.
#[test]
fn reads_outlive_truncation_though_the_handler_was_replaced() {
    in_child("reads_outlive_truncation_though_the_handler_was_replaced", || {
        let ((_dir, path), backend) = (file(), mmap_backend());
        let file = backend.open(&path).unwrap();
        let range = mapped(&*backend, &path);
        assert_eq!(backend.read_to_vec(&file, LOST as u64, 1).unwrap(), [7]);
        replace_handler();
        // The handler is looked at again after 100 ms at the latest.
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(backend.read_to_vec(&file, LOST as u64, 1).unwrap(), [7]);
        truncate(&path, 100);
        let error = backend.read_to_vec(&file, LOST as u64, 1).unwrap_err();
        assert!(matches!(error, Error::PastEnd { file_len: 100, .. }), "{error:?}");
        assert!(!range.copy_to(&mut [0; FILE_BYTES]));
        assert!(!range.copy_blocks::<4096>(|_, _| {}));
    });
}

/// The device takes no reads any more: errors of copies say so, and slices show no zeros.
#[cfg(target_os = "linux")]
#[test]
fn a_device_error_is_never_zeros() {
    in_child("a_device_error_is_never_zeros", || {
        let image = match common::image::Image::formatted("ext4", 512) {
            Ok(image) => image,
            Err(why) => return common::filesystem_missing("ext4 on a failing device", &why),
        };
        let path = image.path().join("data");
        std::fs::write(&path, [7; FILE_BYTES]).unwrap();
        let backend = mmap_backend();
        let (file, range) = (backend.open(&path).unwrap(), mapped(&*backend, &path));
        let map = FileMap::open(&path, promise()).unwrap();
        image.fail_reads_of(&path);
        for _ in 0..2 {
            let error = backend.read_to_vec(&file, LOST as u64, 1).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error:?}");
            assert!(!range.copy_to(&mut [0; FILE_BYTES]));
            let error = map.populate(0..FILE_BYTES).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error:?}");
            assert_eq!(end_of(|| map.as_slice()[LOST]), End::Signal(libc::SIGBUS));
            let from_range = || range.as_slice(promise())[LOST];
            assert_eq!(end_of(from_range), End::Signal(libc::SIGBUS));
        }
    });
}
