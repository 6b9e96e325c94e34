//! Batches of reads through the backend.

use std::fs::File;
#[cfg(feature = "conformance")]
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{FILE_BYTES, Fixture, backend, odd_ranges, pool, tight};
#[cfg(feature = "conformance")]
use crate::fault::Faults;
use crate::{BackendOptions, CachePolicy, Error, Read, ReadBackend, ReadBackendExt};

#[test]
fn odd_ranges_of_several_files_have_the_right_bytes() {
    let fixture = Fixture::new(3);
    let policies = [CachePolicy::Direct, CachePolicy::Buffered];
    for cache_policy in policies {
        for options in [BackendOptions::default(), tight()] {
            let options = BackendOptions { cache_policy, ..options };
            fixture.check(&backend(&options), &odd_ranges());
        }
    }
}

#[test]
fn uncached_reads_have_the_right_bytes_or_say_that_there_are_none() {
    let fixture = Fixture::new(1);
    let options = BackendOptions { cache_policy: CachePolicy::Uncached, ..Default::default() };
    let backend = backend(&options);
    match backend.open(&fixture.paths[0]) {
        Ok(_) => fixture.check(&backend, &odd_ranges()),
        Err(error) => assert!(error.is_unsupported(), "{error}"),
    }
}

#[test]
fn the_only_buffer_of_the_pool_may_be_the_destination() {
    let fixture = Fixture::new(1);
    let options = tight();
    let backend = backend(&options);
    let file = backend.open(&fixture.paths[0]).unwrap();
    let pool = options.pool.unwrap();
    let bytes = backend.read_to_buf(&pool, &file, 4096, 4096).unwrap();
    assert_eq!(bytes[..], fixture.contents[0][4096..8192]);
}

#[test]
fn the_first_read_past_the_end_is_named() {
    let fixture = Fixture::new(1);
    let backend = backend(&BackendOptions::default());
    let file = backend.open(&fixture.paths[0]).unwrap();
    let len = FILE_BYTES as u64;
    let (mut a, mut b, mut c) = ([0; 10], [0; 10], [0; 10]);
    let error = backend
        .read_batch(&mut [
            Read::new(&file, 5, &mut a),
            Read::new(&file, len - 9, &mut b),
            Read::new(&file, len + 70_000, &mut c),
        ])
        .unwrap_err();
    let Error::PastEnd { offset, len: read_len, index, file_len, path, .. } = error else {
        panic!("{error}");
    };
    assert_eq!((offset, read_len, index, file_len), (len - 9, 10, 1, len));
    assert_eq!(path, fixture.paths[0]);
}

#[cfg(feature = "conformance")]
#[test]
fn short_reads_and_interruptions_change_nothing() {
    let fixture = Fixture::new(2);
    for seed in 0..8 {
        let faults = Arc::new(Faults {
            seed,
            short_permille: 400,
            interrupt_permille: 300,
            ..Faults::default()
        });
        for options in [BackendOptions::default(), tight()] {
            fixture.check(&faults.below(|| backend(&options)), &odd_ranges());
        }
        assert!(faults.injected.load(std::sync::atomic::Ordering::Relaxed) > 10);
    }
}

#[cfg(feature = "conformance")]
#[test]
fn a_device_error_names_its_read_and_leaves_the_backend_usable() {
    let fixture = Fixture::new(1);
    let faults = Arc::new(Faults { eio_range: Some(200_000..200_001), ..Faults::default() });
    let backend = faults.below(|| backend(&BackendOptions::default()));
    let file = backend.open(&fixture.paths[0]).unwrap();
    let mut memory = vec![[0; 5000]; 60];
    let mut reads: Vec<Read<'_>> = (memory.iter_mut().enumerate())
        .map(|(at, dst)| Read::new(&file, at as u64 * 5000, dst))
        .collect();
    let error = backend.read_batch(&mut reads).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
    // Neighbours share a request, so an earlier read may be the first that lacks its bytes.
    assert!(error.offset().is_some_and(|offset| offset <= 200_000), "{error}");
    let bytes = backend.read_to_vec(&file, 100, 5000).unwrap();
    assert_eq!(bytes, fixture.contents[0][100..5100]);
}

#[test]
fn threads_share_the_runtime_and_a_small_pool() {
    let fixture = Fixture::new(4);
    for options in [
        BackendOptions::default(),
        BackendOptions { open_files_max: 2, depth_max: 3, pool: Some(pool(8192)), ..tight() },
        tight(),
    ] {
        let backend = backend(&options);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| fixture.check(&backend, &odd_ranges()));
            }
        });
    }
}

#[test]
fn a_file_that_shrinks_and_grows() {
    let fixture = Fixture::new(1);
    let backend = backend(&BackendOptions::default());
    let file = backend.open(&fixture.paths[0]).unwrap();
    let writer = File::options().write(true).open(&fixture.paths[0]).unwrap();
    writer.set_len(1000).unwrap();
    let error = backend.read_to_vec(&file, 500, 501).unwrap_err();
    assert!(matches!(error, Error::PastEnd { file_len: 1000, .. }), "{error}");
    writer.set_len(2_000_000).unwrap();
    assert_eq!(backend.read_to_vec(&file, 1_999_999, 1).unwrap(), [0]);
}

#[test]
fn a_batch_of_one_is_not_slow() {
    // 20 ms is the tick of the runtime's watch: a read that waits for it has missed its wake-up. Then the
    // next one begins right after a tick, and waits as long.
    let fixture = Fixture::new(1);
    let options = BackendOptions { cache_policy: CachePolicy::Buffered, ..Default::default() };
    let backend = backend(&options);
    let file = backend.open(&fixture.paths[0]).unwrap();
    let mut times: Vec<Duration> = (0..501)
        .map(|at| {
            let started = Instant::now();
            backend.read_to_vec(&file, at * 100, 100).unwrap();
            started.elapsed()
        })
        .collect();
    times.sort_unstable();
    assert!(times[250] < Duration::from_millis(10), "the median is {:?}", times[250]);
}
