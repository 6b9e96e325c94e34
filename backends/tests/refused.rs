//! Restrictions by a container or a small limit: the caller still reads, or gets an error that says
//! why not.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

mod common;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringmain_backends::conformance::child::{child_dir, in_child};
use ringmain_backends::fault::Faults;
use ringmain_backends::probe::{auto_report, drop_cached};
use ringmain_backends::{
    Advice, AdvisedBackend, BackendKind, BackendOptions, Error, Read, ReadBackend, ReadBackendExt,
    open_backend,
};
use ringmain_surroundings::{Filter, Rule, give_up_root};

/// As container runtimes do by default.
fn refuse_io_uring() {
    refuse(libc::SYS_io_uring_setup);
}

/// Makes a system call fail with `EPERM` in this process from now on.
fn refuse(call: libc::c_long) {
    Filter::new([Rule::new(call, libc::EPERM)]).install().unwrap();
}

fn limit_locked_memory(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: `limit` is a valid `rlimit`.
    let failed = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) } != 0;
    assert!(!failed, "setrlimit: {}", io::Error::last_os_error());
}

/// A file in a directory that becomes the working one: a relative path needs no rights to the
/// directories above.
fn file_for_nobody() -> (tempfile::TempDir, Vec<u8>) {
    use std::os::unix::fs::PermissionsExt;

    let dir = tempfile::tempdir_in(child_dir().unwrap()).unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let contents: Vec<u8> = (0..300_001u32).map(|i| (i * 7 % 251) as u8).collect();
    std::fs::write(dir.path().join("data"), &contents).unwrap();
    std::env::set_current_dir(dir.path()).unwrap();
    (dir, contents)
}

/// Many small reads and a large one, aligned and not.
fn check_reads(backend: &dyn ReadBackend, contents: &[u8]) {
    let file = backend.open(Path::new("data")).unwrap();
    let mut memory = vec![0; 100 * 1000];
    let mut reads: Vec<_> = memory
        .chunks_exact_mut(1000)
        .enumerate()
        .map(|(at, dst)| Read::new(&file, at as u64 * 2900, dst))
        .collect();
    backend.read_batch(&mut reads).unwrap();
    for (at, bytes) in memory.chunks_exact(1000).enumerate() {
        assert!(bytes == &contents[at * 2900..][..1000], "read {at}");
    }
    assert!(backend.read_to_vec(&file, 4096, 200_000).unwrap() == contents[4096..204_096]);
}

/// False, and said so, where there is no such backend to be refused.
fn is_available(kind: BackendKind) -> bool {
    let opened = open_backend(kind, &BackendOptions::default());
    opened.map_err(|error| common::excuse(kind, &error)).is_ok()
}

#[test]
fn auto_reads_without_io_uring_and_says_why() {
    in_child("auto_reads_without_io_uring_and_says_why", || {
        let could_have_it = is_available(BackendKind::Uring);
        let (_dir, contents) = file_for_nobody();
        refuse_io_uring();
        let auto = open_backend(BackendKind::Auto, &BackendOptions::default()).unwrap();
        check_reads(&*auto, &contents);
        let report = auto_report(Path::new("data"), &BackendOptions::default()).unwrap();
        assert_ne!(report.choice, BackendKind::Uring);
        let rejected = report.rejected.iter().find(|it| it.what == BackendKind::Uring.name());
        let reason = &rejected.unwrap_or_else(|| panic!("{report:?}")).reason;
        if could_have_it {
            assert!(names_the_cause(reason), "{reason}");
            assert!(names_the_cause(&report.reason), "{report:?}");
        }
        let lost = auto.capabilities().degradations;
        assert!(lost.iter().any(|it| it.what == "uring" && it.reason == *reason), "{lost:?}");
    });
}

/// Only `open` was prepared for a filesystem that refuses: then every read failed.
#[test]
fn auto_reads_where_direct_reads_are_refused_after_open() {
    let dir = tempfile::tempdir().unwrap();
    let contents: Vec<u8> = (0..100_000u32).map(|i| (i * 7 % 251) as u8).collect();
    let paths = [0, 1, 2].map(|at| dir.path().join(format!("data-{at}")));
    for path in &paths {
        std::fs::write(path, &contents).unwrap();
        // Cached data would not be read from the device.
        let file = std::fs::File::open(path).unwrap();
        file.sync_all().unwrap();
        drop_cached(&file, 0..100_000).unwrap();
    }
    let faults = Arc::new(Faults { refuses_direct: true, ..Faults::default() });
    let auto =
        faults.below(|| open_backend(BackendKind::Auto, &BackendOptions::default()).unwrap());
    let files = paths.each_ref().map(|path| auto.open(path).unwrap());
    if files[0].alignment().block() == 1 {
        return common::say("auto: nothing is read past the page cache here");
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut memory = vec![0; 30 * 3000];
                let parts = memory.chunks_exact_mut(3000).enumerate();
                let mut reads: Vec<_> = parts
                    .map(|(at, dst)| Read::new(&files[at % 3], at as u64 * 3000, dst))
                    .collect();
                auto.read_batch(&mut reads).unwrap();
                assert!(memory == contents[..memory.len()]);
            });
        }
    });
    let lost = auto.capabilities().degradations;
    let told = lost.iter().find(|it| it.reason.contains("data-")).unwrap();
    assert!(told.reason.contains("pread"), "{told:?}");
    // They stay there.
    let injected = faults.injected.load(Ordering::Relaxed);
    assert!(injected > 0);
    for file in &files {
        assert_eq!(auto.len(file).unwrap(), 100_000);
        auto.prefetch(file, 0..5000).unwrap();
        assert!(auto.read_to_vec(file, 5, 1000).unwrap() == contents[5..1005]);
        auto.release(file, 0..5000).unwrap();
    }
    assert_eq!(faults.injected.load(Ordering::Relaxed), injected);
}

/// The backend that was advised reads until the filesystem refuses; then `pread` does.
#[test]
fn advice_gives_way_where_direct_reads_are_refused_after_open() {
    let dir = tempfile::tempdir().unwrap();
    let contents: Vec<u8> = (0..100_000u32).map(|i| (i * 7 % 251) as u8).collect();
    let path = dir.path().join("data");
    std::fs::write(&path, &contents).unwrap();
    let faults = Arc::new(Faults { refuses_direct: true, ..Faults::default() });
    let advised = AdvisedBackend {
        kind: BackendKind::Direct,
        options: Box::default(),
        measured_on: None,
        only_for: None,
        reason: "direct".into(),
    };
    let advice = Some(Advice { path: "profile.toml".into(), backend: Ok(advised) });
    let options = BackendOptions { advice, ..BackendOptions::default() };
    let auto = faults.below(|| open_backend(BackendKind::Auto, &options).unwrap());
    let file = auto.open(&path).unwrap();
    if file.alignment().block() == 1 {
        return common::say("auto: nothing is read past the page cache here");
    }
    assert!(auto.read_to_vec(&file, 5, 1000).unwrap() == contents[5..1005]);
    let (mut first, mut second) = ([0; 691], [0; 1000]);
    auto.read_batch(&mut [Read::new(&file, 9, &mut first), Read::new(&file, 50_000, &mut second)])
        .unwrap();
    assert!(first == contents[9..700] && second == contents[50_000..51_000]);
    assert_eq!(faults.injected.load(Ordering::Relaxed), 1, "it is asked once");
    assert_eq!(auto.stats().fallbacks, 1);
}

fn names_the_cause(text: &str) -> bool {
    text.contains("io_uring") && (text.contains("not permitted") || text.contains("EPERM"))
}

#[test]
fn uring_by_name_says_the_cause_and_the_way_out() {
    in_child("uring_by_name_says_the_cause_and_the_way_out", || {
        // Asked before the refusal.
        let mut kinds = vec![BackendKind::Uring, BackendKind::TokioUring];
        kinds.retain(|kind| is_available(*kind));
        refuse_io_uring();
        for kind in kinds {
            let error = open_backend(kind, &BackendOptions::default()).unwrap_err();
            let Error::Unavailable { backend, reason, way_out } = &error else {
                panic!("{error:?}");
            };
            assert_eq!(*backend, kind);
            assert!(names_the_cause(reason), "{reason}");
            // The cause of the refusal, and a way without io_uring.
            let suspects = ["seccomp", "io_uring_disabled", "container"];
            assert!(suspects.iter().any(|it| error.to_string().contains(it)), "{error}");
            assert!(
                way_out.contains("seccomp") && error.to_string().ends_with("or use `auto`"),
                "{error}"
            );
        }
    });
}

/// A ring that exists keeps working, and a new thread that gets none reads without.
#[test]
fn io_uring_refused_later() {
    in_child("io_uring_refused_later", || {
        if !is_available(BackendKind::Uring) {
            return;
        }
        let (_dir, contents) = file_for_nobody();
        let backend = open_backend(BackendKind::Uring, &BackendOptions::default()).unwrap();
        check_reads(&*backend, &contents);
        refuse_io_uring();
        check_reads(&*backend, &contents);
        let (in_thread, its_contents) = (Arc::clone(&backend), contents.clone());
        std::thread::spawn(move || check_reads(&*in_thread, &its_contents)).join().unwrap();
    });
}

/// The error was looked up in what an earlier, larger batch had left behind: a panic.
#[test]
fn io_uring_enter_refused_after_a_larger_batch() {
    in_child("io_uring_enter_refused_after_a_larger_batch", || {
        if !is_available(BackendKind::Uring) {
            return;
        }
        let (dir, _contents) = file_for_nobody();
        let backend = open_backend(BackendKind::Uring, &BackendOptions::default()).unwrap();
        let file = backend.open(Path::new("data")).unwrap();
        let mut memory = vec![0; 50 * 100];
        let parts = memory.chunks_exact_mut(100).enumerate();
        // Too far apart to share a request.
        let mut reads: Vec<_> =
            parts.map(|(at, dst)| Read::new(&file, at as u64 * 5500, dst)).collect();
        backend.read_batch(&mut reads).unwrap();
        refuse(libc::SYS_io_uring_enter);
        let error = backend.read_batch(&mut reads[7..9]).unwrap_err();
        assert!(matches!(error, Error::Read { index: 0, .. }), "{error:?}");
        assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error:?}");
        assert_eq!(error.path(), Some(dir.path().join("data").as_path()));
        assert_eq!(error.offset(), Some(7 * 5500));
    });
}

/// A ring takes some 20 KiB of locked memory, and nothing else does: users other than root often
/// have little of it.
#[test]
fn little_locked_memory_is_enough() {
    in_child("little_locked_memory_is_enough", || {
        if !is_available(BackendKind::Uring) {
            return;
        }
        let (_dir, contents) = file_for_nobody();
        let before = backend_degradations();
        limit_locked_memory(128 << 10);
        give_up_root().unwrap();
        let backend = open_backend(BackendKind::Uring, &BackendOptions::default()).unwrap();
        check_reads(&*backend, &contents);
        assert_eq!(backend.capabilities().degradations.len(), before);
    });
}

/// How much a ring lacks on this kernel.
fn backend_degradations() -> usize {
    let backend = open_backend(BackendKind::Uring, &BackendOptions::default()).unwrap();
    backend.capabilities().degradations.len()
}

#[test]
fn no_locked_memory_at_all_is_reported() {
    in_child("no_locked_memory_at_all_is_reported", || {
        if !is_available(BackendKind::Uring) {
            return;
        }
        let (_dir, contents) = file_for_nobody();
        limit_locked_memory(0);
        give_up_root().unwrap();
        match open_backend(BackendKind::Uring, &BackendOptions::default()) {
            // A kernel that does not count rings.
            Ok(backend) => check_reads(&*backend, &contents),
            Err(error) => {
                assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
                assert!(error.to_string().contains("RLIMIT_MEMLOCK"), "{error}");
            }
        }
        let auto = open_backend(BackendKind::Auto, &BackendOptions::default()).unwrap();
        check_reads(&*auto, &contents);
    });
}
