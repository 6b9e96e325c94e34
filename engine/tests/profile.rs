//! Profiles, as users of an engine see them.

// Clippy allows these in functions marked `#[test]`, but not in the helpers they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs;

use ringmain::{BackendKind, BackendOptions, Engine, Kind, Profile};

/// Returns the description of the engine after it read a file.
fn description(builder: ringmain::EngineBuilder) -> String {
    let dir = support::temp_dir();
    let path = dir.path().join("rows.bin");
    fs::write(&path, [7; 4000]).unwrap();
    let engine = builder.build().unwrap();
    let rows = engine.open_raw(&path, Kind::U8, &[4, 1000], 0).unwrap();
    assert_eq!(rows.at(2).unwrap().read_vec::<u8>().unwrap(), [7; 1000]);
    engine.describe().to_string()
}

#[test]
fn the_description_names_the_profile_in_use() {
    let dir = support::temp_dir();
    let path = dir.path().join("profile.toml");
    fs::write(&path, "version = 1\nbackend = \"mmap\"\nreason = \"twice pread\"\n").unwrap();
    let used = format!("profile {} (mmap: twice pread)", path.display());
    let text = description(Engine::builder().profile(&path));
    assert!(text.contains(&used), "{text}");
    // Setting the options of a backend keeps the profile.
    let text = description(Engine::builder().profile(&path).options(BackendOptions::default()));
    assert!(text.contains(&used), "{text}");
    let text = description(Engine::builder().profile(&path).ignore_profile());
    assert!(!text.contains("profile"), "{text}");
    // A backend chosen by name overrides the profile.
    let text = description(Engine::builder().profile(&path).backend("pread".parse().unwrap()));
    assert!(!text.contains("profile") && text.starts_with("backend pread"), "{text}");
}

#[test]
fn a_profile_that_cannot_be_used_is_named_and_nothing_fails() {
    let dir = support::temp_dir();
    let path = dir.path().join("profile.toml");
    let expect = |part: &str| {
        let text = description(Engine::builder().profile(&path));
        let named = format!("without profile: {}: ", path.display());
        assert!(text.contains(&named) && text.contains(part), "{part}: {text}");
    };
    expect("cannot be read");
    let cases: [(&[u8], &str); 6] = [
        (b"", "missing"),
        (b"\0\x01", "line 1"),
        (b"version = 9", "9 is not known"),
        (b"version = 1\nbackend = \"tape\"\n", "line 2: `backend`"),
        (&[b'#'; 1 << 20], "no profile"),
        (b"version = 1\nbackend = \"\xFF\"", "UTF-8"),
    ];
    for (bytes, part) in cases {
        fs::write(&path, bytes).unwrap();
        expect(part);
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    expect("not a regular file");
}

/// The limit compared the length that the system reports. A device reports none: `/dev/zero` was read
/// until no memory was left, and a pipe forever.
#[cfg(unix)]
#[test]
fn a_profile_that_is_not_a_regular_file_is_refused() {
    for path in ["/dev/null", "/dev/zero"] {
        let error = Profile::read(path.as_ref()).unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{path}: {error}");
    }
}

#[test]
fn a_profile_for_a_filesystem_that_is_gone_is_not_used() {
    let dir = support::temp_dir();
    let path = dir.path().join("profile.toml");
    let profile = Profile {
        measured_on: Some(dir.path().join("unmounted")),
        ..Profile::new(BackendKind::Mmap)
    };
    profile.save(&path).unwrap();
    let text = description(Engine::builder().profile(&path));
    assert!(text.contains("without profile") && text.contains("unmounted"), "{text}");
}
