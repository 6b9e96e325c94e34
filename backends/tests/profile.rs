//! `auto` under a profile: followed, not for this file, not possible, broken, or switched off.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::{Path, PathBuf};

use ringmain_backends::{
    AutoBackend, AutoReport, BackendKind, BackendOptions, Profile, ProfileSource, ReadBackend,
    ReadBackendExt, Residency,
};
use tempfile::TempDir;

struct Place {
    dir: TempDir,
    file: PathBuf,
    profile: PathBuf,
}

/// A file, and a place for a profile beside it.
fn place() -> Place {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = dir.path().join("data.bin");
    std::fs::write(&file, (0..=255).cycle().take(100_000).collect::<Vec<u8>>()).unwrap();
    let profile = dir.path().join("profile.toml");
    Place { dir, file, profile }
}

fn auto_with(profile: ProfileSource) -> AutoBackend {
    AutoBackend::new(&BackendOptions { profile, ..BackendOptions::default() }).unwrap()
}

/// What `auto` makes of the profile, after it read the file.
fn report(place: &Place) -> (AutoBackend, AutoReport) {
    let auto = auto_with(ProfileSource::File(place.profile.clone()));
    let file = auto.open(&place.file).unwrap();
    assert_eq!(auto.read_to_vec(&file, 256, 3).unwrap(), [0, 1, 2]);
    let report = auto.report_for(&place.file).unwrap();
    (auto, report)
}

/// It chose as it does without, says that it was not followed, and why.
fn expect_not_followed(place: &Place, part: &str) {
    let (auto, report) = report(place);
    let without = auto_with(ProfileSource::Off).report_for(&place.file).unwrap();
    assert_eq!(report.choice, without.choice);
    let profile = report.profile.unwrap();
    assert!(!profile.is_used && profile.reason.contains(part), "{profile:?}");
    assert!(report.reason.contains(&place.profile.display().to_string()), "{}", report.reason);
    if !auto.report().profile.as_ref().unwrap().is_used {
        let degradations = auto.capabilities().degradations;
        let told = degradations.iter().find(|lacking| lacking.feature == "profile").unwrap();
        assert!(told.reason.contains(part), "{told:?}");
    }
}

#[test]
fn it_is_followed_on_its_filesystem() {
    let place = place();
    let profile = Profile {
        residency: Some(Residency::Release),
        measured_on: Some(place.dir.path().to_owned()),
        reason: Some("3 times pread".into()),
        ..Profile::new(BackendKind::Mmap)
    };
    profile.save(&place.profile).unwrap();
    let (auto, report) = report(&place);
    assert_eq!(report.choice, BackendKind::Mmap);
    assert!(report.reason.contains("3 times pread"), "{}", report.reason);
    // Only `mmap` has ranges without a copy.
    let file = auto.open(&place.file).unwrap();
    assert!(auto.map(&file, 0..10).unwrap().is_some());
    assert_eq!(auto.len(&file).unwrap(), 100_000);
    assert!(auto.capabilities().features.iter().any(|feature| feature.contains("profile.toml")));
    assert!(auto.open(Path::new("/no/such/file")).is_err());
    assert!(auto.report_for(Path::new("/no/such/file")).is_err());
}

#[test]
fn without_a_place_it_holds_everywhere() {
    let place = place();
    Profile::new(BackendKind::Mmap).save(&place.profile).unwrap();
    assert_eq!(report(&place).1.choice, BackendKind::Mmap);
}

/// Files on both sides of it are read in one batch, each its own way.
#[cfg(target_os = "linux")]
#[test]
fn it_is_not_for_other_filesystems() {
    let place = place();
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    let other = elsewhere.path().join("other.bin");
    std::fs::write(&other, [9; 1000]).unwrap();
    let profile = Profile {
        measured_on: Some(elsewhere.path().to_owned()),
        ..Profile::new(BackendKind::Mmap)
    };
    profile.save(&place.profile).unwrap();
    expect_not_followed(&place, "another filesystem");
    let auto = auto_with(ProfileSource::File(place.profile.clone()));
    assert_eq!(auto.report_for(&other).unwrap().choice, BackendKind::Mmap);
    let (here, there) = (auto.open(&place.file).unwrap(), auto.open(&other).unwrap());
    assert!(
        auto.map(&there, 0..10).unwrap().is_some() && auto.map(&here, 0..10).unwrap().is_none()
    );
    let (mut a, mut b, mut c) = ([0; 4], [0; 4], [0; 4]);
    let reads = &mut [
        ringmain_backends::Read::new(&here, 5, &mut a),
        ringmain_backends::Read::new(&there, 5, &mut b),
        ringmain_backends::Read::new(&here, 7, &mut c),
    ];
    auto.read_batch(reads).unwrap();
    assert_eq!((a, b, c), ([5, 6, 7, 8], [9; 4], [7, 8, 9, 10]));
}

#[test]
fn a_place_that_is_gone_is_no_place() {
    let place = place();
    let profile = Profile {
        measured_on: Some(place.dir.path().join("unmounted")),
        ..Profile::new(BackendKind::Mmap)
    };
    profile.save(&place.profile).unwrap();
    expect_not_followed(&place, "unmounted");
}

/// Options that no backend takes stand for any reason why one cannot be opened.
#[test]
fn a_backend_that_cannot_be_opened_is_not_followed() {
    let place = place();
    let profile = Profile { chunk_bytes: Some(5), ..Profile::new(BackendKind::Mmap) };
    profile.save(&place.profile).unwrap();
    expect_not_followed(&place, "`mmap` cannot be used");
}

#[cfg(not(feature = "direct"))]
#[test]
fn a_backend_of_another_build_is_not_followed() {
    let place = place();
    Profile::new(BackendKind::Direct).save(&place.profile).unwrap();
    expect_not_followed(&place, "feature `direct`");
}

#[test]
fn a_broken_one_is_no_error() {
    let place = place();
    expect_not_followed(&place, "cannot be read");
    for (text, part) in
        [("", "missing"), ("\u{0}\u{1}", "line 1"), ("version = 9", "9 is not known")]
    {
        std::fs::write(&place.profile, text).unwrap();
        expect_not_followed(&place, part);
    }
    std::fs::write(&place.profile, vec![b'#'; 1 << 20]).unwrap();
    expect_not_followed(&place, "no profile");
    std::fs::write(&place.profile, b"version = 1\nbackend = \"\xFF\"").unwrap();
    expect_not_followed(&place, "UTF-8");
    std::fs::remove_file(&place.profile).unwrap();
    std::fs::create_dir(&place.profile).unwrap();
    expect_not_followed(&place, "cannot be read");
}

#[test]
fn nobody_looks_for_it_unasked() {
    let auto = AutoBackend::new(&BackendOptions::default()).unwrap();
    assert_eq!(auto.report().profile, None);
    assert_eq!(BackendOptions::default().profile, ProfileSource::Off);
}
