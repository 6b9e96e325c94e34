//! Every method from many threads at once.

use std::ops::Range;
use std::sync::{Barrier, mpsc};

use crate::conformance::arena::check_batch;
use crate::conformance::data::DataFile;
use crate::conformance::rig::{Dice, Rig, open_all, random_wants};
use crate::{BackendOptions, ReadBackend};

use super::bounds::smallest_options;

const READ_BYTES_MAX: u64 = 8000;

fn read_in_threads(backend: &dyn ReadBackend, files: &[DataFile], threads: u64, rounds: u64) {
    read_up_to_in_threads(READ_BYTES_MAX, backend, files, threads, rounds);
}

/// Each thread opens the files for itself, and all read at the same time.
fn read_up_to_in_threads(
    read_bytes_max: u64,
    backend: &dyn ReadBackend,
    files: &[DataFile],
    threads: u64,
    rounds: u64,
) {
    let start = Barrier::new(usize::try_from(threads).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                let mut dice = Dice::new(100 + thread);
                let handles = open_all(backend, files);
                for _ in 0..rounds {
                    let wants = random_wants(&mut dice, &handles, files, 16, read_bytes_max);
                    check_batch(backend, &wants);
                }
            });
        }
    });
}

pub(in crate::conformance) fn eight_threads(rig: &Rig<'_>) {
    let (backend, files) = (rig.backend(), rig.files(6, 200_000));
    read_in_threads(&*backend, &files, 8, 20);
    // Batches that a backend may share among threads of its own.
    read_up_to_in_threads(100_000, &*backend, &files, 4, 4);
}

pub(in crate::conformance) fn eight_threads_with_little_of_everything(rig: &Rig<'_>) {
    let (backend, files) = (rig.backend_with(&smallest_options()), rig.files(4, 50_000));
    read_in_threads(&*backend, &files, 8, 4);
}

pub(in crate::conformance) fn more_threads_than_rings(rig: &Rig<'_>) {
    let options = BackendOptions { rings_max: 2, ..BackendOptions::default() };
    let (backend, files) = (rig.backend_with(&options), rig.files(2, 100_000));
    read_in_threads(&*backend, &files, 8, 10);
    // The first threads are gone, and so are theirs.
    read_in_threads(&*backend, &files, 2, 10);
}

pub(in crate::conformance) fn hints_while_others_read(rig: &Rig<'_>) {
    let (backend, files) = (rig.backend(), rig.files(2, 500_000));
    let handles = open_all(&*backend, &files);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (backend, handles, files) = (&backend, &handles, &files);
            scope.spawn(move || {
                let mut dice = Dice::new(thread);
                for _ in 0..200 {
                    let which = usize::try_from(dice.below(2)).unwrap();
                    let (offset, len) = dice.range(files[which].len(), 500_000);
                    let range: Range<u64> = offset..offset + len as u64;
                    backend.prefetch(&handles[which], range.clone()).unwrap();
                    backend.release(&handles[which], range).unwrap();
                }
            });
        }
        read_in_threads(&*backend, &files, 4, 20);
    });
}

/// Threads that have used it may end before or after it is dropped.
pub(in crate::conformance) fn dropped_after_its_threads(rig: &Rig<'_>) {
    let files = rig.files(2, 100_000);
    for _ in 0..5 {
        let backend = rig.backend();
        let (used, until_used) = mpsc::channel();
        let (go, until_dropped) = mpsc::channel::<()>();
        let lasting = {
            let (backend, files) = (backend.clone(), files.clone());
            std::thread::spawn(move || {
                read_in_threads(&*backend, &files, 1, 2);
                let handles = open_all(&*backend, &files);
                check_batch(&*backend, &random_wants(&mut Dice::new(5), &handles, &files, 9, 999));
                drop(backend);
                used.send(()).unwrap();
                let _ = until_dropped.recv();
                handles.len()
            })
        };
        read_in_threads(&*backend, &files, 3, 2);
        until_used.recv().unwrap();
        drop(backend);
        drop(go);
        // The thread has handles of a backend that is gone, and ends after it.
        assert_eq!(lasting.join().unwrap(), 2);
    }
}
