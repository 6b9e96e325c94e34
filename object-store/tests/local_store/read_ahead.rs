//! Scans of cold files are read ahead of.

use std::fs::{self, File};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::executor::block_on;
use object_store::ObjectStore;
use ringmain_backends::{BackendKind, BackendOptions, open_backend};
use ringmain_object_store::local_store::RingmainStore;

use crate::watched::Watched;
use crate::{local, numbered, wait_until};

const MIB: u64 = 1 << 20;
const GROUP: u64 = 2 * MIB;
const GROUPS: u64 = 6;

struct Scan {
    dir: tempfile::TempDir,
    watched: Arc<Watched>,
    store: RingmainStore,
}

impl Scan {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let backend = open_backend(BackendKind::Pread, &BackendOptions::default()).unwrap();
        let watched = Watched::new(backend);
        let backend = Arc::clone(&watched) as _;
        let store = RingmainStore::builder().backend(backend).build(local(dir.path())).unwrap();
        let scan = Self { dir, watched, store };
        fs::write(scan.path(), scan.contents(0)).unwrap();
        scan
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("part")
    }

    fn contents(&self, seed: usize) -> Vec<u8> {
        numbered((GROUPS * GROUP) as usize, seed)
    }

    /// Asks for the columns of a row group, and checks them.
    fn read_group(&self, group: u64, expected: &[u8]) {
        let column = |at: u64| group * GROUP + at * MIB / 2..group * GROUP + (at + 1) * MIB / 2;
        let columns: Vec<Range<u64>> = (0..4).map(column).collect();
        let found = block_on(self.store.get_ranges(&"part".into(), &columns)).unwrap();
        for (range, found) in columns.iter().zip(found) {
            assert!(found == expected[range.start as usize..range.end as usize], "{range:?}");
        }
    }

    /// Waits until this number of batches has been read.
    fn wait_for(&self, batches: usize) {
        wait_until("nothing is read ahead", || {
            let counts = self.watched.counts();
            counts.batches >= batches && counts.running == 0
        });
        assert_eq!(self.watched.counts().batches, batches);
    }
}

#[test]
fn a_cold_scan_finds_each_group_read() {
    let scan = Scan::new();
    scan.watched.set_cold();
    let bytes = scan.contents(0);
    scan.read_group(0, &bytes);
    scan.wait_for(1);
    // The second group continues the first one: the third is read ahead, and so on.
    for group in 1..GROUPS - 1 {
        scan.read_group(group, &bytes);
        scan.wait_for(group as usize + 2);
    }
    scan.read_group(GROUPS - 1, &bytes);
    scan.wait_for(GROUPS as usize);
}

#[test]
fn a_warm_scan_is_not_read_ahead_of() {
    let scan = Scan::new();
    let bytes = scan.contents(0);
    for group in 0..GROUPS {
        scan.read_group(group, &bytes);
        scan.wait_for(group as usize + 1);
    }
}

/// The part that was read ahead belongs to the file as it was.
#[test]
fn a_file_that_changes_is_read_again() {
    for is_replaced in [false, true] {
        let scan = Scan::new();
        scan.watched.set_cold();
        let (old, new) = (scan.contents(0), scan.contents(1));
        (0..2).for_each(|group| scan.read_group(group, &old));
        scan.wait_for(3);
        if is_replaced {
            let fresh = scan.dir.path().join("fresh");
            fs::write(&fresh, &new).unwrap();
            fs::rename(fresh, scan.path()).unwrap();
        } else {
            fs::write(scan.path(), &new).unwrap();
        }
        // The clock of a filesystem may be coarse.
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(3600);
        File::options().write(true).open(scan.path()).unwrap().set_modified(time).unwrap();
        scan.read_group(2, &new);
    }
}
