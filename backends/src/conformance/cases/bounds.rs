//! Every bound at its smallest value.

use std::time::Duration;

use crate::conformance::arena::{Want, check_batch};
use crate::conformance::rig::{Dice, Rig, open, open_all, random_wants};
use crate::{BackendOptions, BufferPool, Error, PoolOptions, ReadBackend, WhenSpent};

/// A pool that holds one buffer of one page.
pub(super) fn smallest_pool() -> BufferPool {
    // Threads get the buffer in no fair order, so one may wait for all the others. Only a deadlock lasts
    // this long.
    let when_spent = WhenSpent::Wait { timeout: Duration::from_secs(300) };
    BufferPool::new(PoolOptions { limit_bytes: 4096, when_spent }).unwrap()
}

pub(super) fn smallest_options() -> BackendOptions {
    BackendOptions {
        open_files_max: 1,
        depth_max: 1,
        threads_max: 1,
        rings_max: 1,
        chunk_bytes: 4096,
        pool: Some(smallest_pool()),
        ..BackendOptions::default()
    }
}

/// Small and large, aligned and not, from several files.
fn check_mixture(rig: &Rig<'_>, backend: &dyn ReadBackend) {
    let files = rig.files(3, 300_000);
    let handles = open_all(backend, &files);
    let mut dice = Dice::new(4);
    check_batch(backend, &random_wants(&mut dice, &handles, &files, 40, 2000));
    check_batch(backend, &random_wants(&mut dice, &handles, &files, 10, 200_000));
    for place in [0, 1, 512] {
        let wants: Vec<_> = (0..12)
            .map(|i| Want::new(&handles[i % 3], &files[i % 3], 8192 * i as u64, 65_536))
            .map(|want| want.placed(place))
            .collect();
        check_batch(backend, &wants);
        let whole = Want::new(&handles[1], &files[1], 0, 300_531).placed(place);
        check_batch(backend, &[whole]);
    }
}

pub(in crate::conformance) fn queue_depth_one(rig: &Rig<'_>) {
    let options = BackendOptions { depth_max: 1, threads_max: 1, ..BackendOptions::default() };
    check_mixture(rig, &*rig.backend_with(&options));
}

pub(in crate::conformance) fn one_open_file(rig: &Rig<'_>) {
    let options = BackendOptions { open_files_max: 1, ..BackendOptions::default() };
    let backend = rig.backend_with(&options);
    check_mixture(rig, &*backend);
    let files = rig.files(20, 6000);
    let handles = open_all(&*backend, &files);
    // No two neighbours of one file.
    let wants: Vec<_> = (0..200)
        .map(|i| Want::new(&handles[i * 7 % 20], &files[i * 7 % 20], i as u64 * 20, 1999))
        .collect();
    check_batch(&*backend, &wants);
}

pub(in crate::conformance) fn pool_of_one_buffer(rig: &Rig<'_>) {
    let options = BackendOptions { pool: Some(smallest_pool()), ..BackendOptions::default() };
    let backend = rig.backend_with(&options);
    check_mixture(rig, &*backend);
    let files = rig.files(2, 100_000);
    let handles = open_all(&*backend, &files);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (backend, files, handles) = (&backend, &files, &handles);
            scope.spawn(move || {
                let mut dice = Dice::new(thread);
                for _ in 0..10 {
                    check_batch(&**backend, &random_wants(&mut dice, handles, files, 8, 9000));
                }
            });
        }
    });
}

/// The requests of one read took each other's buffers: a pool that does not wait was spent.
pub(in crate::conformance) fn pool_that_does_not_wait(rig: &Rig<'_>) {
    let data = rig.file("data", 8 << 20);
    for limit_bytes in [4096, 256 << 10, 512 << 10, 1 << 20] {
        let options = PoolOptions { limit_bytes, when_spent: WhenSpent::Fail };
        let pool = Some(BufferPool::new(options).unwrap());
        let backend = rig.backend_with(&BackendOptions { pool, ..BackendOptions::default() });
        let file = open(&*backend, &data);
        for _ in 0..5 {
            check_batch(&*backend, &[Want::new(&file, &data, 1, (8 << 20) - 1).placed(7)]);
        }
    }
}

pub(in crate::conformance) fn smallest_chunk(rig: &Rig<'_>) {
    let options = BackendOptions { chunk_bytes: 4096, ..BackendOptions::default() };
    check_mixture(rig, &*rig.backend_with(&options));
}

pub(in crate::conformance) fn everything_at_its_smallest(rig: &Rig<'_>) {
    check_mixture(rig, &*rig.backend_with(&smallest_options()));
}

pub(in crate::conformance) fn impossible_options_are_refused(rig: &Rig<'_>) {
    let good = BackendOptions::default;
    for (option, options) in [
        ("open_files_max", BackendOptions { open_files_max: 0, ..good() }),
        ("depth_max", BackendOptions { depth_max: 0, ..good() }),
        ("threads_max", BackendOptions { threads_max: 0, ..good() }),
        ("rings_max", BackendOptions { rings_max: 0, ..good() }),
        ("chunk_bytes", BackendOptions { chunk_bytes: 0, ..good() }),
        ("chunk_bytes", BackendOptions { chunk_bytes: 5000, ..good() }),
        ("depth_max", BackendOptions { depth_max: usize::MAX, ..good() }),
    ] {
        match rig.subject().open(&options) {
            Err(Error::InvalidOption { option: named, .. }) => assert_eq!(named, option),
            outcome => panic!("{option}: {outcome:?}"),
        }
    }
}
