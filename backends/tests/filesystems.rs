//! The whole suite on other filesystems than the one under the temporary directory.
//!
//! tmpfs is there on every machine; the others are made in image files and mounted through loop
//! devices, which takes root. Where that cannot be done the tests say so, and fail if `CI` is
//! `true` or `RINGMAIN_REQUIRE_FILESYSTEMS` is set.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

mod common;

use std::path::Path;

use common::filesystem_missing as missing;
use common::image::Image;
use common::subjects;
use ringmain_backends::conformance::{Subject, run_all};
use ringmain_backends::probe::auto_report;
use ringmain_backends::{
    BackendKind, BackendOptions, Error, ReadBackend, ReadBackendExt, open_backend,
};

/// Where a filesystem differs from the others.
#[derive(Default)]
struct Expectations {
    /// Backends that cannot read it, and why.
    refused: &'static [(&'static str, &'static str)],
    /// Backends that cannot read it with every kernel, and why.
    maybe_refused: &'static [(&'static str, &'static str)],
}

/// Every backend that reads files. The variants, such as `uring` through the page cache, are
/// left to the temporary directory.
fn all_subjects(expectations: &Expectations) -> Vec<Subject> {
    let kinds = BackendKind::ALL.into_iter().filter(|kind| *kind != BackendKind::Memory);
    kinds.map(|kind| subject(kind, expectations)).collect()
}

fn subject(kind: BackendKind, expectations: &Expectations) -> Subject {
    let mut subject = subjects::of(kind)
        .leaves_out("reads_over_2_gib", "the filesystem of the temporary directory has them")
        .with_child_test("child");
    for (_, reason) in expectations.refused.iter().filter(|(name, _)| *name == kind.name()) {
        subject = subject.refuses_here(reason);
    }
    for (_, reason) in expectations.maybe_refused.iter().filter(|(name, _)| *name == kind.name()) {
        subject = subject.may_refuse_here(reason);
    }
    subject
}

/// Where the cases' child processes begin. By itself it does nothing.
#[test]
fn child() {
    for subject in all_subjects(&Expectations::default()) {
        subject.run_child();
    }
}

fn run_everything(filesystem: &str, dir: &Path, expectations: &Expectations) {
    let mut reports = Vec::new();
    for subject in all_subjects(expectations) {
        let report = run_all(&subject, dir);
        let name = subject.name();
        common::say(&format!("{filesystem}, {name}: {} cases passed", report.passed()));
        reports.push((format!("{name} on {filesystem}"), report));
    }
    for (what, report) in reports {
        report.check(&what);
    }
}

#[test]
fn tmpfs() {
    let shm = Path::new("/dev/shm");
    let dir = match tempfile::tempdir_in(shm) {
        Ok(dir) => dir,
        Err(error) => return missing("tmpfs", &format!("/dev/shm: {error}")),
    };
    let expectations = Expectations {
        refused: &[("uncached", "tmpfs has no RWF_DONTCACHE: its pages are the file")],
        ..Expectations::default()
    };
    run_everything("tmpfs", dir.path(), &expectations);
}

#[test]
fn xfs() {
    match Image::formatted("xfs", 512) {
        Ok(image) => run_everything("xfs", image.path(), &Expectations::default()),
        Err(why) => missing("xfs", &why),
    }
}

#[test]
fn btrfs() {
    let expectations = Expectations {
        maybe_refused: &[("uncached", "btrfs has no RWF_DONTCACHE in Linux 6.18")],
        ..Expectations::default()
    };
    match Image::formatted("btrfs", 512) {
        Ok(image) => run_everything("btrfs", image.path(), &expectations),
        Err(why) => missing("btrfs", &why),
    }
}

/// On a device with blocks of 4096 bytes: direct reads of 512 bytes are refused there.
#[test]
fn ext4_with_large_sectors() {
    match Image::formatted("ext4", 4096) {
        Ok(image) => run_everything("ext4, 4096", image.path(), &Expectations::default()),
        Err(why) => missing("ext4", &why),
    }
}

/// Small inodes have no room for a time of birth, and ext4 gives the number of a deleted inode to the
/// next file: a file that was deleted and made again was read as the old one.
#[test]
fn ext4_without_birth_times() {
    match Image::formatted_with("ext4", 512, &["-q", "-I", "128"]) {
        Ok(image) => {
            let born = std::fs::metadata(image.path()).unwrap().created();
            assert!(born.is_err(), "it has a time of birth: {born:?}");
            run_everything("ext4, no birth times", image.path(), &Expectations::default());
        }
        Err(why) => common::filesystem_missing("ext4", &why),
    }
}

/// squashfs has no `O_DIRECT`: `auto` continues without, the others say why they cannot.
#[test]
fn squashfs_shows_the_fallback() {
    let contents: Vec<u8> = (0..100_003u32).map(|i| (i % 251) as u8).collect();
    let source = tempfile::tempdir().unwrap();
    std::fs::write(source.path().join("data"), &contents).unwrap();
    let image = match Image::squashed(source.path()) {
        Ok(image) => image,
        Err(why) => return missing("squashfs", &why),
    };
    let path = image.path().join("data");
    for kind in [BackendKind::Pread, BackendKind::Mmap, BackendKind::Auto] {
        let backend = open_backend(kind, &BackendOptions::default()).unwrap();
        let file = backend.open(&path).unwrap();
        assert!(backend.read_to_vec(&file, 1, 100_002).unwrap() == contents[1..], "{kind}");
    }
    for kind in [BackendKind::Direct, BackendKind::Uring, BackendKind::TokioUring] {
        match open_backend(kind, &BackendOptions::default()) {
            Ok(backend) => check_refusal(&*backend, &path),
            Err(error) => common::excuse(kind, &error),
        }
    }
    // The choice of `auto` for files that can be read past the page cache.
    let chosen = [BackendKind::Uring, BackendKind::Direct]
        .into_iter()
        .find(|kind| open_backend(*kind, &BackendOptions::default()).is_ok());
    let report = auto_report(&path, &BackendOptions::default()).unwrap();
    assert_eq!(report.choice, BackendKind::Pread, "{report:?}");
    if let Some(chosen) = chosen {
        let rejection = report.rejected.iter().find(|rejection| rejection.what == chosen.name());
        let reason = &rejection.unwrap_or_else(|| panic!("{report:?}")).reason;
        assert!(reason.contains("O_DIRECT"), "{reason}");
        assert!(report.reason.contains("O_DIRECT"), "{}", report.reason);
    }
}

/// The file cannot be opened, and the error says why and what to do.
fn check_refusal(backend: &dyn ReadBackend, path: &Path) {
    let Err(error) = backend.open(path) else {
        // `tokio-uring` may read through the page cache where there is nothing else.
        assert_eq!(backend.kind(), BackendKind::TokioUring, "squashfs took O_DIRECT");
        return;
    };
    assert!(matches!(error, Error::FileUnsupported { .. }), "{error:?}");
    assert_eq!(error.path(), Some(path));
    let text = error.to_string();
    assert!(text.contains("O_DIRECT") && text.contains("use `"), "no way out in: {text}");
}
