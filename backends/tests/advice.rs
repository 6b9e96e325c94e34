//! `auto` with advice: followed, not for this file, not possible, or missing.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringmain_backends::probe::auto_report;
use ringmain_backends::{
    Advice, AdvisedBackend, AutoReport, BackendKind, BackendOptions, Capabilities, ReadBackend,
    ReadBackendExt, Residency, open_backend,
};
use tempfile::TempDir;

const ADVICE_FILE: &str = "/home/someone/profile.toml";

/// A file of 100 000 bytes to read.
fn data() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = dir.path().join("data.bin");
    std::fs::write(&file, (0..=255).cycle().take(100_000).collect::<Vec<u8>>()).unwrap();
    (dir, file)
}

/// The advice to take a backend, measured on the filesystem of a path.
fn take(kind: BackendKind, measured_on: Option<&Path>) -> AdvisedBackend {
    AdvisedBackend {
        kind,
        options: Box::default(),
        measured_on: measured_on.map(Path::to_owned),
        only_for: None,
        reason: format!("{kind}: 3 times pread"),
    }
}

fn options_with(backend: Result<AdvisedBackend, String>) -> BackendOptions {
    let advice = Some(Advice { path: ADVICE_FILE.into(), backend });
    BackendOptions { advice, ..BackendOptions::default() }
}

/// `auto` with these options, and its report about a file, some of which it has read.
fn auto_after_read(options: &BackendOptions, path: &Path) -> (Arc<dyn ReadBackend>, AutoReport) {
    let auto = open_backend(BackendKind::Auto, options).unwrap();
    let file = auto.open(path).unwrap();
    assert_eq!(auto.read_to_vec(&file, 256, 3).unwrap(), [0, 1, 2]);
    (auto, auto_report(path, options).unwrap())
}

/// Panics unless `auto` chose as it does without advice, and says that and why it was not followed.
fn expect_not_followed(backend: Result<AdvisedBackend, String>, path: &Path, part: &str) {
    let (auto, report) = auto_after_read(&options_with(backend), path);
    assert_eq!(report.choice, auto_report(path, &BackendOptions::default()).unwrap().choice);
    assert!(report.reason.contains(ADVICE_FILE), "{}", report.reason);
    let advice = report.profile.unwrap();
    assert!(!advice.is_used && advice.reason.contains(part), "{advice:?}");
    // Advice that holds for other files is in use.
    let Capabilities { features, degradations, .. } = auto.capabilities();
    if !features.iter().any(|feature| feature.contains(ADVICE_FILE)) {
        let named = degradations.iter().find(|lacking| lacking.what == "profile").unwrap();
        assert!(named.reason.contains(part), "{named:?}");
    }
}

#[test]
fn advice_is_followed_on_its_filesystem() {
    let (dir, path) = data();
    let mut advised = take(BackendKind::Mmap, Some(dir.path()));
    advised.options.residency = Residency::Release;
    let options = options_with(Ok(advised));
    let (auto, report) = auto_after_read(&options, &path);
    assert_eq!(report.choice, BackendKind::Mmap);
    assert!(report.reason.contains("3 times pread"), "{}", report.reason);
    // Only `mmap` has ranges without a copy.
    let file = auto.open(&path).unwrap();
    assert!(auto.map(&file, 0..10).unwrap().is_some());
    assert_eq!(auto.len(&file).unwrap(), 100_000);
    assert!(auto.capabilities().features.iter().any(|feature| feature.contains(ADVICE_FILE)));
    assert!(auto.open(Path::new("/no/such/file")).is_err());
    assert!(auto_report(Path::new("/no/such/file"), &options).is_err());
}

#[test]
fn advice_without_a_place_holds_everywhere() {
    let (_dir, path) = data();
    let options = options_with(Ok(take(BackendKind::Mmap, None)));
    assert_eq!(auto_after_read(&options, &path).1.choice, BackendKind::Mmap);
}

/// Files on both filesystems are read in one batch, each in its own way.
#[cfg(target_os = "linux")]
#[test]
fn advice_does_not_hold_on_other_filesystems() {
    let (_dir, path) = data();
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    let other = elsewhere.path().join("other.bin");
    std::fs::write(&other, [9; 1000]).unwrap();
    let advised = take(BackendKind::Mmap, Some(elsewhere.path()));
    expect_not_followed(Ok(advised.clone()), &path, "another filesystem");
    let options = options_with(Ok(advised));
    assert_eq!(auto_report(&other, &options).unwrap().choice, BackendKind::Mmap);
    let auto = open_backend(BackendKind::Auto, &options).unwrap();
    let (here, there) = (auto.open(&path).unwrap(), auto.open(&other).unwrap());
    assert!(auto.map(&there, 0..10).unwrap().is_some());
    assert!(auto.map(&here, 0..10).unwrap().is_none());
    let (mut a, mut b, mut c) = ([0; 4], [0; 4], [0; 4]);
    let reads = &mut [
        ringmain_backends::Read::new(&here, 5, &mut a),
        ringmain_backends::Read::new(&there, 5, &mut b),
        ringmain_backends::Read::new(&here, 7, &mut c),
    ];
    auto.read_batch(reads).unwrap();
    assert_eq!((a, b, c), ([5, 6, 7, 8], [9; 4], [7, 8, 9, 10]));
}

/// A profile held for every file of a filesystem, which is often the only one of a machine.
#[test]
fn advice_for_a_folder_does_not_hold_beside_it() {
    let (dir, path) = data();
    let folder = dir.path().join("train");
    std::fs::create_dir_all(folder.join("deep")).unwrap();
    let inside = folder.join("deep/data.bin");
    std::fs::copy(&path, &inside).unwrap();
    let advised = |place: &Path| AdvisedBackend {
        only_for: Some(place.to_owned()),
        ..take(BackendKind::Mmap, Some(dir.path()))
    };
    for place in [&folder, &inside] {
        let options = options_with(Ok(advised(place)));
        assert_eq!(auto_after_read(&options, &inside).1.choice, BackendKind::Mmap);
        expect_not_followed(Ok(advised(place)), &path, "it is only for ");
    }
    // A name that begins in the same way is another folder.
    let other = dir.path().join("train2");
    std::fs::create_dir(&other).unwrap();
    std::fs::copy(&path, other.join("data.bin")).unwrap();
    expect_not_followed(Ok(advised(&folder)), &other.join("data.bin"), "it is only for ");
    expect_not_followed(Ok(advised(&dir.path().join("gone"))), &path, "gone");
    #[cfg(unix)]
    {
        let link = dir.path().join("link.bin");
        std::os::unix::fs::symlink(&inside, &link).unwrap();
        let options = options_with(Ok(advised(&folder)));
        assert_eq!(auto_after_read(&options, &link).1.choice, BackendKind::Mmap);
    }
}

#[test]
fn advice_for_a_filesystem_that_is_gone_is_not_followed() {
    let (dir, path) = data();
    let unmounted = dir.path().join("unmounted");
    expect_not_followed(Ok(take(BackendKind::Mmap, Some(&unmounted))), &path, "unmounted");
}

/// The `auto` inside did not know the handles, and read everything with `pread`.
#[test]
fn auto_does_not_take_itself() {
    let (_dir, path) = data();
    expect_not_followed(Ok(take(BackendKind::Auto, None)), &path, "`auto` cannot take itself");
}

/// Options that no backend takes stand for any reason why one cannot be opened.
#[test]
fn a_backend_that_cannot_be_opened_is_not_taken() {
    let (_dir, path) = data();
    let mut advised = take(BackendKind::Mmap, None);
    advised.options.chunk_bytes = 5;
    expect_not_followed(Ok(advised), &path, "`mmap` cannot be used");
}

#[cfg(not(feature = "direct"))]
#[test]
fn a_backend_of_another_build_is_not_taken() {
    let (_dir, path) = data();
    expect_not_followed(Ok(take(BackendKind::Direct, None)), &path, "feature `direct`");
}

#[test]
fn advice_that_could_not_be_read_is_no_error() {
    let (_dir, path) = data();
    expect_not_followed(Err("line 3 is no advice".into()), &path, "line 3 is no advice");
}

#[test]
fn without_advice_none_is_reported() {
    let (_dir, path) = data();
    let report = auto_report(&path, &BackendOptions::default()).unwrap();
    assert_eq!(report.profile, None);
}

/// The third of the small reads in a row went through `pread`, which opens the file by its path, and failed
/// although the advised backend has it open.
#[cfg(target_os = "linux")]
#[test]
fn a_deleted_file_is_read_in_order_by_the_advised_backend() {
    let (_dir, path) = data();
    let options = options_with(Ok(take(BackendKind::Mmap, None)));
    let auto = open_backend(BackendKind::Auto, &options).unwrap();
    let file = auto.open(&path).unwrap();
    let mut bytes = [0; 1000];
    auto.read_exact_at(&file, 50_000, &mut bytes).unwrap();
    std::fs::remove_file(&path).unwrap();
    for at in 0..10 {
        auto.read_exact_at(&file, at * 1000, &mut bytes).unwrap();
    }
    assert_eq!(auto.stats().cache.reads, 0);
}
