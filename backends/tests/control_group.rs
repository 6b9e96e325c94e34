//! Data that others have cached stays cached while `auto` reads more data than its control group has memory.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test may

mod common;

use std::path::Path;
use std::process::Command;

use common::numbered::{BLOCK_BYTES, FILE_BYTES, NumberedFile, scattered};
use nix::unistd::Uid;
use ringmain_backends::{Access, BackendOptions, Expectation, ReadBackend, open_backend};
use ringmain_surroundings::ControlGroup;

/// Room for the other file, the test program and one file of the data, which may be kept because it fits.
const GROUP_BYTES: u64 = 128 << 20;
/// Twice the memory of the group.
const DATA_FILES: usize = 4;
const OTHER_BYTES: usize = 16 << 20;
/// Tell the process in the group which backend reads, and which group it is.
const BACKEND: &str = "RINGMAIN_TEST_BACKEND";
const GROUP: &str = "RINGMAIN_TEST_GROUP";

#[test]
fn data_that_does_not_fit_leaves_cached_files_cached() {
    if !Uid::effective().is_root() {
        return eprintln!("SKIPPED: only root can make control groups");
    }
    let limit_hits = |backend: &str| {
        let group = ControlGroup::new("page-cache", GROUP_BYTES)?;
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "reads_in_the_group", "--nocapture", "--test-threads=1"]);
        let output = command.env(BACKEND, backend).env(GROUP, group.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // The kernel may take pages back for other reasons too, so what is left does not tell.
        group.limit_hits().ok_or_else(|| "the kernel does not count".to_owned())
    };
    match (limit_hits("auto"), limit_hits("pread")) {
        (Ok(auto), Ok(pread)) => {
            assert_eq!(auto, 0, "the kernel had to take page cache back");
            assert!(pread > 0, "the data fits, so this test would notice nothing");
        }
        (auto, pread) => eprintln!("SKIPPED: no control group for memory: {auto:?}, {pread:?}"),
    }
}

/// The body of the test above, in a process of its own. Alone it does nothing.
#[test]
fn reads_in_the_group() {
    let (Ok(backend), Ok(group)) = (std::env::var(BACKEND), std::env::var(GROUP)) else { return };
    // Pages count for the group whose process brings them in.
    let data: Vec<_> = (0..DATA_FILES).map(|_| NumberedFile::new()).collect();
    data.iter().for_each(NumberedFile::make_cold);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let other = dir.path().join("other");
    ControlGroup::enter(Path::new(&group)).unwrap();
    std::fs::write(&other, vec![7; OTHER_BYTES]).unwrap();
    std::fs::File::open(&other).unwrap().sync_all().unwrap();
    let backend = open_backend(backend.parse().unwrap(), &BackendOptions::default()).unwrap();
    read_in_many_ways(&*backend, &data);
}

/// Reads as shuffled epochs do, as a reader who does not say that it reads again, and from front to back.
fn read_in_many_ways(backend: &dyn ReadBackend, data: &[NumberedFile]) {
    let blocks = FILE_BYTES / BLOCK_BYTES as u64;
    for reread_bytes in [Some(data.len() as u64 * FILE_BYTES), None] {
        for file in data {
            let handle = backend.open(file.path()).unwrap();
            let expectation = Expectation { access: Access::Random, reread_bytes };
            backend.expect(&[&handle], &expectation).unwrap();
            for _ in 0..2 {
                let order = scattered(blocks, 5);
                order.chunks(128).for_each(|batch| file.check(backend, &handle, batch));
            }
            let in_order: Vec<u64> = (0..blocks).collect();
            in_order.chunks(256).for_each(|batch| file.check(backend, &handle, batch));
        }
    }
}
