//! A forked child and its parent both continue to read.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::conformance::arena::check_batch;
use crate::conformance::data::DataFile;
use crate::conformance::process::fork;
use crate::conformance::rig::{Dice, Rig, open_all, random_wants};
use crate::{FileHandle, ReadBackend};

/// Every third batch is large enough that a backend may share it among threads.
fn read_some(
    backend: &dyn ReadBackend,
    handles: &[FileHandle],
    files: &[DataFile],
    seed: u64,
    rounds: u64,
) {
    let mut dice = Dice::new(seed);
    for round in 0..rounds {
        let read_bytes_max = if round % 3 == 0 { 60_000 } else { 20_000 };
        check_batch(backend, &random_wants(&mut dice, handles, files, 24, read_bytes_max));
    }
}

pub(in crate::conformance) fn parent_and_child_both_read(rig: &Rig<'_>) {
    rig.in_child(|rig| {
        let (backend, files) = (rig.backend(), rig.files(3, 300_000));
        let handles = open_all(&*backend, &files);
        read_some(&*backend, &handles, &files, 1, 5);
        let children = [2, 3].map(|seed| {
            let (backend, handles, files) = (backend.clone(), &handles, &files);
            fork(move || {
                read_some(&*backend, handles, files, seed, 10);
                // A child may have children, threads and files of its own.
                let grandchild = fork(|| read_some(&*backend, handles, files, seed, 5));
                std::thread::scope(|scope| {
                    scope.spawn(|| read_some(&*backend, handles, files, seed + 10, 5));
                });
                let again = open_all(&*backend, files);
                read_some(&*backend, &again, files, seed, 5);
                grandchild.join();
                drop(backend);
            })
        });
        read_some(&*backend, &handles, &files, 4, 20);
        for child in children {
            child.join();
        }
        // The parent is in the middle of a batch when the child finds its state to be inherited:
        // letting go of it must not disturb the parent.
        for seed in 0..60 {
            let child = fork(|| read_some(&*backend, &handles, &files, seed, 1));
            // This one lets go of it by ending: its thread's storage goes with it.
            let leaver = fork(|| std::process::exit(0));
            read_some(&*backend, &handles, &files, seed, 3);
            child.join();
            leaver.join();
        }
        // One that only lets go of what it inherited.
        let backend_of_third = backend.clone();
        let third = fork(move || drop(backend_of_third));
        read_some(&*backend, &handles, &files, 4, 5);
        third.join();
        read_some(&*backend, &handles, &files, 5, 5);
        // The last owner in a child: everything the parent made is dropped there.
        fork(move || drop((backend, handles))).join();
    });
}

/// Whatever lock another thread holds at that moment, the child must not wait for it.
pub(in crate::conformance) fn fork_while_threads_read(rig: &Rig<'_>) {
    rig.in_child(|rig| {
        let (backend, files) = (rig.backend(), rig.files(3, 200_000));
        let handles = open_all(&*backend, &files);
        let (stop, batches) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (backend, handles, files) = (&backend, &handles, &files);
                let (stop, batches) = (&stop, &batches);
                scope.spawn(move || {
                    let mut seed = thread;
                    while !stop.load(Ordering::Relaxed) {
                        read_some(&**backend, handles, files, seed, 1);
                        drop(open_all(&**backend, files));
                        batches.fetch_add(1, Ordering::Relaxed);
                        seed += 10;
                    }
                });
            }
            let forks = || {
                // A busy machine may run the readers late, and then the forks would disturb nothing.
                let started = Instant::now();
                while batches.load(Ordering::Relaxed) == 0 {
                    assert!(started.elapsed() < Duration::from_secs(120), "no thread reads");
                    std::thread::yield_now();
                }
                let started = Instant::now();
                for seed in 0..40 {
                    if started.elapsed() > Duration::from_millis(1500) {
                        break;
                    }
                    fork(|| {
                        read_some(&*backend, &handles, &files, seed, 2);
                        let again = open_all(&*backend, &files);
                        read_some(&*backend, &again, &files, seed, 1);
                    })
                    .join();
                }
            };
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(forks));
            // The readers must end before the assertion: a panic here would wait for them forever.
            stop.store(true, Ordering::Relaxed);
            outcome.unwrap();
        });
        read_some(&*backend, &handles, &files, 99, 3);
    });
}
