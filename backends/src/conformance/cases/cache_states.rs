//! Reads return the same bytes no matter which parts of the files are in the page cache.

use std::fs::OpenOptions;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::conformance::arena::{Want, check_batch, try_batch};
use crate::conformance::data::DataFile;
use crate::conformance::rig::{Dice, Rig, assert_past_end, open, open_all, random_wants};
use crate::{Access, Expectation, FileHandle, ReadBackend, sys};

/// Long enough for `auto` to have several estimates of each.
const FILE_BYTES: u64 = 5 << 20;

/// Which parts of a file are in the page cache.
#[derive(Clone, Copy, Debug)]
enum CacheState {
    Cached,
    Dropped,
    HalfDropped,
}

impl CacheState {
    const ALL: [Self; 3] = [Self::Cached, Self::Dropped, Self::HalfDropped];

    /// Brings a file into the state. Only the bytes of reads are judged, so it does not matter if
    /// the kernel keeps or drops some pages of its own accord.
    fn impose(self, data: &DataFile) {
        // Windows flushes a file only for a handle that may write it.
        let file = OpenOptions::new().read(true).write(true).open(data.path()).unwrap();
        file.sync_all().unwrap(); // Only clean pages can be dropped.
        match self {
            Self::Cached => drop(std::fs::read(data.path()).unwrap()),
            Self::Dropped => sys::release_cached(&file, 0..data.len()).unwrap(),
            Self::HalfDropped => {
                // In pieces smaller and larger than a read.
                for at in (0..data.len()).step_by(96 << 10) {
                    sys::release_cached(&file, at..at + (48 << 10)).unwrap();
                }
            }
        }
    }
}

/// Batches, reads by themselves, and a stream.
fn check_reads(
    backend: &dyn ReadBackend,
    dice: &mut Dice,
    handles: &[FileHandle],
    files: &[DataFile],
) {
    for len_max in [3000, 60_000, 700_000] {
        check_batch(backend, &random_wants(dice, handles, files, 24, len_max));
        for want in random_wants(dice, handles, files, 3, len_max) {
            check_batch(backend, &[want]);
        }
    }
    let (mut at, len) = (dice.below(FILE_BYTES / 2), 5000);
    for _ in 0..10 {
        check_batch(backend, &[Want::new(&handles[0], &files[0], at, len)]);
        at += len as u64;
    }
}

pub(in crate::conformance) fn cached_dropped_and_half_dropped(rig: &Rig<'_>) {
    let (backend, files) = (rig.backend(), rig.files(2, FILE_BYTES));
    let handles = open_all(&*backend, &files);
    let mut dice = Dice::new(7);
    for round in 0..6 {
        for (at, data) in files.iter().enumerate() {
            CacheState::ALL[(round + at) % 3].impose(data);
        }
        check_reads(&*backend, &mut dice, &handles, &files);
    }
}

/// A batch goes several ways where a part of a file is cached. Whichever way the first failing read
/// goes, the error names it.
pub(in crate::conformance) fn first_failure_among_cached_and_dropped(rig: &Rig<'_>) {
    let (backend, data) = (rig.backend(), rig.file("half", FILE_BYTES));
    let file = open(&*backend, &data);
    let inside = |at: u64| Want::new(&file, &data, at * 61_441 % (FILE_BYTES - 5000), 5000);
    let past_end = |at: u64| Want::new(&file, &data, FILE_BYTES - 100 + at, 5000);
    for failing in [&[7, 20][..], &[30], &[0, 1, 2], &[63]] {
        CacheState::HalfDropped.impose(&data);
        let want = |at: u64| if failing.contains(&at) { past_end(at) } else { inside(at) };
        let wants: Vec<_> = (0..64).map(want).collect();
        let first = usize::try_from(failing[0]).unwrap();
        assert_past_end(&try_batch(&*backend, &wants).unwrap_err(), &wants[first], first);
    }
}

/// `auto` chooses the ways of 4096 reads at a time.
pub(in crate::conformance) fn failure_far_behind_in_a_batch(rig: &Rig<'_>) {
    let (backend, data) = (rig.backend(), rig.file("long", 1 << 20));
    let file = open(&*backend, &data);
    let mut wants: Vec<_> = (0..5000).map(|at| Want::new(&file, &data, at * 199, 50)).collect();
    check_batch(&*backend, &wants);
    wants[4500] = Want::new(&file, &data, (1 << 20) - 10, 50);
    assert_past_end(&try_batch(&*backend, &wants).unwrap_err(), &wants[4500], 4500);
}

pub(in crate::conformance) fn expected_in_every_way(rig: &Rig<'_>) {
    let (backend, files) = (rig.backend(), rig.files(2, FILE_BYTES));
    let handles = open_all(&*backend, &files);
    let every: Vec<_> = handles.iter().collect();
    let mut dice = Dice::new(8);
    for access in [Access::Random, Access::Sequential, Access::AsItComes] {
        for reread_bytes in [Some(2 * FILE_BYTES), Some(u64::MAX), None] {
            backend.expect(&every, &Expectation { access, reread_bytes }).unwrap();
            CacheState::Dropped.impose(&files[0]);
            check_reads(&*backend, &mut dice, &handles, &files);
        }
    }
}

pub(in crate::conformance) fn dropped_while_being_read(rig: &Rig<'_>) {
    let (backend, files) = (rig.backend(), rig.files(2, FILE_BYTES));
    let handles = open_all(&*backend, &files);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                CacheState::ALL[round % 3].impose(&files[round % 2]);
            }
        });
        let readers = [1, 2].map(|seed| {
            let (backend, handles, files) = (&*backend, &handles, &files);
            scope.spawn(move || {
                let mut dice = Dice::new(seed);
                (0..3).for_each(|_| check_reads(backend, &mut dice, handles, files));
            })
        });
        let outcomes = readers.map(|reader| reader.join());
        is_over.store(true, Ordering::Relaxed);
        outcomes.into_iter().for_each(|outcome| outcome.unwrap());
    });
}
