//! Bad requests: each is an error, of the same kind as that of the local store.

use futures::executor::block_on;
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt};
use tempfile::TempDir;

use crate::{local, store};

#[test]
fn missing_files_folders_and_impossible_ranges() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("data"), [1; 5000]).unwrap();
    std::fs::create_dir(dir.path().join("folder")).unwrap();
    let (ours, theirs) = (store(dir.path()), local(dir.path()));
    let files = ["missing", "folder", "data/below", "data#1", "data"].map(Path::from);
    let ranges = [0..10, 4999..5001, 5000..5001, 6000..6010, 5000..5000, 9999..9999];
    for file in &files {
        for range in &ranges {
            let ranges = [0..1, range.clone()];
            let (ours, theirs) = block_on(async {
                (ours.get_ranges(file, &ranges).await, theirs.get_ranges(file, &ranges).await)
            });
            assert_same(&format!("{file} {range:?}"), ours, theirs);
        }
        for range in ranges
            .iter()
            .cloned()
            .map(GetRange::Bounded)
            .chain([GetRange::Suffix(3), GetRange::Offset(5000)])
        {
            let options = GetOptions::new().with_range(Some(range));
            let (ours, theirs) = block_on(async {
                let ours = match ours.get_opts(file, options.clone()).await {
                    Ok(result) => result.bytes().await,
                    Err(error) => Err(error),
                };
                let theirs = match theirs.get_opts(file, options.clone()).await {
                    Ok(result) => result.bytes().await,
                    Err(error) => Err(error),
                };
                (ours, theirs)
            });
            assert_same(&format!("{file} {options:?}"), ours, theirs);
        }
        let heads = block_on(async { (ours.head(file).await, theirs.head(file).await) });
        assert_same(file.as_ref(), heads.0, heads.1);
        if *file != files[1] {
            let (ours, theirs) = block_on(async {
                (ours.get_ranges(file, &[]).await, theirs.get_ranges(file, &[]).await)
            });
            assert_same(file.as_ref(), ours, theirs);
        }
    }
    // The local store opens a folder, and only reads of it fail. No ranges of a folder are nothing there, and an error
    // here.
    assert!(block_on(ours.get_ranges(&files[1], &[])).is_err());
}

/// The local store ends the process: it takes memory for the range before it looks at the file.
#[test]
fn a_range_that_is_larger_than_all_memory_is_an_error() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("data"), [1; 5000]).unwrap();
    let outcome = block_on(store(dir.path()).get_ranges(&Path::from("data"), &[0..1 << 50]));
    let text = outcome.unwrap_err().to_string();
    assert!(text.contains("data") && text.contains("5000 bytes"), "{text}");
}

/// The local store panics.
#[test]
fn an_inverted_range_is_an_error_that_names_it() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("data"), [1; 5000]).unwrap();
    #[expect(clippy::reversed_empty_ranges, reason = "this is what is refused")]
    let ranges = [0..10, 30..20];
    let error = block_on(store(dir.path()).get_ranges(&Path::from("data"), &ranges)).unwrap_err();
    assert!(matches!(error, Error::Generic { .. }));
    let text = error.to_string();
    assert!(text.contains("data") && text.contains("30..20"), "{text}");
}

#[cfg(unix)]
#[test]
fn a_pipe_is_an_error_and_no_endless_wait() {
    let dir = TempDir::new().unwrap();
    let status =
        std::process::Command::new("mkfifo").arg(dir.path().join("pipe")).status().unwrap();
    assert!(status.success());
    let outcome = block_on(store(dir.path()).get_ranges(&Path::from("pipe"), &[0..1]));
    let text = outcome.unwrap_err().to_string();
    assert!(text.contains("pipe"), "{text}");
}

/// Both succeed with the same, or fail with the same kind of error.
pub(crate) fn assert_same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    ours: object_store::Result<T>,
    theirs: object_store::Result<T>,
) {
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => assert!(ours == theirs, "{what}: other bytes"),
        (Err(ours), Err(theirs)) => {
            let is_same = std::mem::discriminant(&ours) == std::mem::discriminant(&theirs);
            assert!(is_same, "{what}: {ours:?}, and the local store: {theirs:?}");
        }
        (ours, theirs) => panic!("{what}: {ours:?}, and the local store: {theirs:?}"),
    }
}
