//! An evicted file is closed: its space is free once it is deleted, and its filesystem can be
//! unmounted.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

mod common;

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ringmain_backends::conformance::child::in_child;
use ringmain_backends::{BackendKind, BackendOptions, Read, ReadBackend};

const FILE_BYTES: usize = 64 << 10;

/// Whether anyone but this function has the file open: the kernel grants a write lease only to
/// the one opener of a file.
fn is_open_elsewhere(path: &Path) -> bool {
    let file = File::open(path).unwrap();
    // SAFETY: the descriptor is open; the call touches no memory.
    let outcome = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) };
    let error = io::Error::last_os_error();
    assert!(outcome == 0 || error.raw_os_error() == Some(libc::EAGAIN), "F_SETLEASE: {error}");
    outcome != 0
}

fn two_files(dir: &Path) -> [PathBuf; 2] {
    ["first", "second"].map(|name| {
        let path = dir.join(name);
        std::fs::write(&path, vec![7; FILE_BYTES]).unwrap();
        path
    })
}

/// Some batches: a ring may treat a file that is used again differently.
fn read_often(backend: &dyn ReadBackend, path: &Path) {
    let file = backend.open(path).unwrap();
    for _ in 0..4 {
        let mut memory = [[0; 600]; 4];
        let mut at = 0;
        let mut reads = memory.each_mut().map(|dst| {
            at += 9_001;
            Read::new(&file, at, dst.as_mut_slice())
        });
        backend.read_batch(&mut reads).unwrap();
        assert_eq!(memory, [[7; 600]; 4]);
    }
}

/// Whether the file is open elsewhere for longer than the kernel may need to let go of it after its last read.
fn stays_open_elsewhere(path: &Path) -> bool {
    let started = Instant::now();
    while is_open_elsewhere(path) {
        if started.elapsed() > Duration::from_secs(30) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// Runs `check` for every backend with a cache of one file.
fn for_each_backend(mut check: impl FnMut(std::sync::Arc<dyn ReadBackend>)) {
    for kind in BackendKind::ALL {
        let options = BackendOptions { open_files_max: 1, ..BackendOptions::default() };
        if let Some(backend) = common::open_or_excuse(kind, &options) {
            check(backend);
        }
    }
}

/// The ring of a thread that reads no more kept the files that were registered with it.
#[test]
fn an_evicted_file_is_closed_while_its_reader_idles() {
    in_child("an_evicted_file_is_closed_while_its_reader_idles", || {
        let dir = tempfile::tempdir().unwrap();
        let [first, second] = two_files(dir.path());
        for_each_backend(|backend| {
            let (end, until_end) = mpsc::channel::<()>();
            let (used, until_used) = mpsc::channel();
            std::thread::scope(|scope| {
                let (backend, first) = (&*backend, &first);
                scope.spawn(move || {
                    read_often(backend, first);
                    used.send(()).unwrap();
                    let _ = until_end.recv();
                });
                until_used.recv().unwrap();
                read_often(backend, &second);
                let is_open = stays_open_elsewhere(first);
                drop(end); // The scope waits for the thread, also after a panic.
                assert!(!is_open, "{}: the file is open still", backend.kind());
            });
        });
    });
}

/// A forked child has the rings of its parent's threads for as long as it lives.
#[test]
fn a_forked_child_keeps_no_file_of_its_parents_threads() {
    in_child("a_forked_child_keeps_no_file_of_its_parents_threads", || {
        let dir = tempfile::tempdir().unwrap();
        let [first, second] = two_files(dir.path());
        for_each_backend(|backend| {
            let (end, until_end) = mpsc::channel::<()>();
            let (used, until_used) = mpsc::channel();
            let reader = {
                let (backend, first) = (backend.clone(), first.clone());
                std::thread::spawn(move || {
                    read_often(&*backend, &first);
                    drop(backend);
                    used.send(()).unwrap();
                    let _ = until_end.recv();
                })
            };
            until_used.recv().unwrap();
            let kind = backend.kind();
            let child = Child::start(|| read_often(&*backend, &second));
            drop(end);
            reader.join().unwrap();
            drop(backend);
            let is_open = stays_open_elsewhere(&first);
            child.end();
            assert!(!is_open, "{kind}: the file is open still");
        });
    });
}

/// A forked child that has done something and waits for its end.
struct Child {
    pid: libc::pid_t,
}

impl Child {
    /// Returns when the child has done `body`.
    fn start(body: impl FnOnce()) -> Self {
        let (mut done, says_done) = io::pipe().unwrap();
        // SAFETY: the other threads of this process wait on a channel, and the child only does
        // what the backends promise to do in a forked child.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork: {}", io::Error::last_os_error());
        if pid == 0 {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            if outcome.is_ok() {
                let _ = io::Write::write_all(&mut &says_done, b"x");
            }
            drop(says_done);
            loop {
                // SAFETY: a plain call; the parent ends this process.
                unsafe { libc::pause() };
            }
        }
        drop(says_done);
        let mut said = Vec::new();
        done.read_to_end(&mut said).unwrap();
        assert_eq!(said, b"x", "the forked child failed");
        Self { pid }
    }

    fn end(self) {
        // SAFETY: the child is this process's and was not awaited.
        let pid = unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0)
        };
        assert_eq!(pid, self.pid, "waitpid: {}", io::Error::last_os_error());
    }
}
