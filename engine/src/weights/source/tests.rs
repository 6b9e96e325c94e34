//! Tests the choice of a way for machines other than the one that runs the tests.

use super::*;

fn file() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weights.bin");
    std::fs::write(&path, b"0123456789").unwrap();
    (dir, path)
}

fn refused(path: &Path) -> Error {
    let source = std::io::Error::from(std::io::ErrorKind::Other);
    let path = path.to_owned();
    let error =
        BackendError::Mapping { operation: "map", path: path.clone(), offset: 0, len: 10, source };
    Error::backend(&path, error)
}

#[test]
fn available_gds_is_passed_over_and_reported() {
    let (_dir, path) = file();
    let found = GdsProbe::Available { devices: 1 };
    let source = WeightSource::mapped_or_read(&path, Some(&found), || Err(refused(&path))).unwrap();
    assert!(!source.is_gds());
    let reason = &source.passed_over()[0].reason;
    assert!(reason.contains("`Gds` reads into a GPU"), "{reason}");
}

#[test]
fn a_file_that_cannot_be_mapped_is_read() {
    let (_dir, path) = file();
    let found = GdsProbe::NoDevice { reason: "none".into() };
    let source = WeightSource::mapped_or_read(&path, Some(&found), || Err(refused(&path))).unwrap();
    assert_eq!(source.kind(), SourceKind::Backend);
    assert_eq!(&*source.get_tensor_bytes(3, 4).unwrap(), b"3456");
    let passed_over: Vec<_> = source.passed_over().iter().map(|lacking| lacking.what).collect();
    assert_eq!(passed_over, ["gds", "mmap"]);
    let text = source.to_string();
    for part in
        ["weights.bin by backend", "not by gds: cuFile is there", "not by mmap: mmap: cannot"]
    {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
}

#[test]
fn a_missing_file_is_not_tried_in_other_ways() {
    let (_dir, path) = file();
    let missing = || {
        let (backend, source) = (BackendKind::Mmap, std::io::ErrorKind::NotFound.into());
        Err(Error::backend(&path, BackendError::Open { backend, path: path.clone(), source }))
    };
    WeightSource::mapped_or_read(&path, None, missing).unwrap_err();
}
