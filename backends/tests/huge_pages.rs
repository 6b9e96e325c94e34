//! Mappings with huge pages.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test may

use std::fs;
use std::path::Path;

use ringmain_backends::{BackendKind, BackendOptions, PageSize, ReadBackendExt, open_backend};

/// For each mapping of the file in this process: whether the kernel was asked for huge pages.
fn wishes(path: &Path) -> Vec<bool> {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let name = path.to_str().unwrap();
    let mut lines = smaps.lines();
    let mut wishes = Vec::new();
    while lines.by_ref().any(|line| line.ends_with(name)) {
        let flags = lines.by_ref().find_map(|line| line.strip_prefix("VmFlags:")).unwrap();
        wishes.push(flags.split_whitespace().any(|flag| flag == "hg"));
    }
    wishes
}

/// Copies and slices have mappings of their own, and both are to have huge pages.
#[test]
fn both_mappings_of_a_file_ask_for_huge_pages() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let bytes: Vec<u8> = (0..4 << 20).map(|at: u32| (at >> 8) as u8 ^ at as u8).collect();
    let has_huge_pages = Path::new("/sys/kernel/mm/transparent_hugepage").exists();
    for (name, page_size) in [("base", PageSize::Base), ("huge", PageSize::Huge)] {
        let path = dir.path().join(name);
        fs::write(&path, &bytes).unwrap();
        let options = BackendOptions { page_size, ..BackendOptions::default() };
        let backend = open_backend(BackendKind::Mmap, &options).unwrap();
        let file = backend.open(&path).unwrap();
        assert_eq!(backend.read_to_vec(&file, 1000, 3 << 20).unwrap(), bytes[1000..][..3 << 20]);
        let _slices = backend.map(&file, 0..4096).unwrap().unwrap();
        let is_asked = has_huge_pages && page_size == PageSize::Huge;
        assert_eq!(wishes(&path), [is_asked; 2], "{name}");
    }
}
