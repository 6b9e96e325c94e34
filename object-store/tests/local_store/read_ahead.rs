//! Scans of cold files are read ahead of.

use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::executor::block_on;
use object_store::ObjectStore;
use ringmain_backends::{BackendKind, BackendOptions, ReadBackend, open_backend};
use ringmain_object_store::local_store::{RingmainStore, RingmainStoreBuilder};

use crate::watched::Watched;
use crate::{local, numbered, wait_until};

const MIB: u64 = 1 << 20;
const GROUP: u64 = 2 * MIB;
const GROUPS: u64 = 6;

/// Seconds after 1970.
const LONG_AGO: u64 = 3600;

fn set_modified(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

struct Scan {
    dir: tempfile::TempDir,
    watched: Arc<Watched>,
    store: RingmainStore,
}

impl Scan {
    fn new() -> Self {
        Self::with(|builder| builder)
    }

    fn with(options: impl FnOnce(RingmainStoreBuilder) -> RingmainStoreBuilder) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let backend = open_backend(BackendKind::Pread, &BackendOptions::default()).unwrap();
        let watched = Watched::new(backend);
        let builder = options(RingmainStore::builder().backend(Arc::clone(&watched) as _));
        let store = builder.build(local(dir.path())).unwrap();
        let scan = Self { dir, watched, store };
        fs::write(scan.path(), scan.contents(0)).unwrap();
        set_modified(&scan.path(), LONG_AGO);
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
        self.read_group_of("part", group, expected);
    }

    fn read_group_of(&self, file: &str, group: u64, expected: &[u8]) {
        let column = |at: u64| group * GROUP + at * MIB / 2..group * GROUP + (at + 1) * MIB / 2;
        let columns: Vec<Range<u64>> = (0..4).map(column).collect();
        let found = block_on(self.store.get_ranges(&file.into(), &columns)).unwrap();
        for (range, found) in columns.iter().zip(found) {
            assert!(found == expected[range.start as usize..range.end as usize], "{range:?}");
        }
    }

    /// Asks for ranges of these lengths, one after the other and each alone, in a file of zeros. Returns the bytes that were
    /// asked for, and those that were read.
    fn read_zeros(&self, lens: &[u64]) -> (u64, u64) {
        let path = self.dir.path().join("zeros");
        let wanted = lens.iter().sum();
        // The file is longer than the scan.
        File::create(&path).unwrap().set_len(2 * wanted).unwrap();
        set_modified(&path, LONG_AGO);
        let mut at = 0;
        for len in lens {
            let found = block_on(self.store.get_ranges(&"zeros".into(), &[at..at + len])).unwrap();
            assert_eq!(found[0].len() as u64, *len);
            at += len;
        }
        self.wait_for_readers();
        (wanted, self.watched.stats().device.bytes)
    }

    fn wait_for_readers(&self) {
        wait_until("a job does not end", || {
            let readers = self.store.reader_stats();
            readers.queued == 0 && readers.idle == readers.threads
        });
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
        set_modified(&scan.path(), 2 * LONG_AGO);
        scan.read_group(2, &new);
    }
}

/// A part of 16 MiB was read after each request, and served none of them.
#[test]
fn parts_that_serve_no_range_are_not_read_again_and_again() {
    for (lens, extra_max) in [
        // No part has a whole range of these.
        (vec![17 * MIB; 4], 0),
        // The first part has less than the next range.
        (vec![MIB, MIB, 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB], 2 * MIB),
    ] {
        let scan = Scan::new();
        scan.watched.set_cold();
        let (wanted, read) = scan.read_zeros(&lens);
        assert!(read <= wanted + extra_max, "{lens:?}: {read} bytes for {wanted}");
    }
}

/// The part of the first of nine scans was dropped, and read again.
#[test]
fn many_scans_at_once_are_read_ahead_of() {
    const SCANS: usize = 12;
    let scan = Scan::new();
    scan.watched.set_cold();
    let bytes = scan.contents(0);
    let names: Vec<_> = (0..SCANS).map(|number| number.to_string()).collect();
    for name in &names {
        fs::write(scan.dir.path().join(name), &bytes).unwrap();
        set_modified(&scan.dir.path().join(name), LONG_AGO);
    }
    // Each has a part before the next one begins.
    for name in &names {
        (0..2).for_each(|group| scan.read_group_of(name, group, &bytes));
    }
    for group in 2..GROUPS {
        names.iter().for_each(|name| scan.read_group_of(name, group, &bytes));
    }
    // Each byte was read once.
    scan.wait_for(SCANS * GROUPS as usize);
}

#[test]
fn the_parts_of_all_scans_share_a_limit() {
    // A part has a sixteenth more than a group.
    for (parts, limit) in [(0, 0), (1, GROUP + GROUP / 16), (2, 2 * (GROUP + GROUP / 16))] {
        let scan = Scan::with(|builder| builder.read_ahead_bytes_max(limit as usize));
        scan.watched.set_cold();
        let bytes = scan.contents(0);
        fs::copy(scan.path(), scan.dir.path().join("other")).unwrap();
        set_modified(&scan.dir.path().join("other"), LONG_AGO);
        for name in ["part", "other"] {
            (0..2).for_each(|group| scan.read_group_of(name, group, &bytes));
        }
        scan.wait_for(4 + parts);
    }
}

/// Old bytes were returned for new ones, as both writes had the same time.
#[test]
fn a_file_that_was_just_written_to_is_not_read_ahead_of() {
    let scan = Scan::new();
    scan.watched.set_cold();
    let in_an_hour = SystemTime::now() + Duration::from_secs(3600);
    let now = in_an_hour.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let (old, new) = (scan.contents(0), scan.contents(1));
    set_modified(&scan.path(), now);
    (0..2).for_each(|group| scan.read_group(group, &old));
    scan.wait_for_readers();
    fs::write(scan.path(), &new).unwrap();
    set_modified(&scan.path(), now);
    scan.read_group(2, &new);
}
