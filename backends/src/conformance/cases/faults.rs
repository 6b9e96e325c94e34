//! Faults below the backend: reads that can be retried succeed, other faults are reported.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aligned_vec::{AVec, ConstAlign};

use crate::conformance::arena::{Want, check_batch, try_batch};
use crate::conformance::data::DataFile;
use crate::conformance::rig::{Dice, Rig, assert_past_end, open, open_all, random_wants};
use crate::fault::Faults;
use crate::{BackendOptions, Error, Read, ReadBackend, ReadBackendExt};

fn backend_with(rig: &Rig<'_>, faults: Faults) -> (Arc<dyn ReadBackend>, Arc<Faults>) {
    let faults = Arc::new(faults);
    (faults.below(|| rig.backend()), faults)
}

/// Reads of all kinds, all of which must succeed although faults struck.
fn check_nothing_shows(rig: &Rig<'_>, faults: Faults) {
    let (backend, faults) = backend_with(rig, faults);
    let files = rig.files(2, 1 << 20);
    let handles = open_all(&*backend, &files);
    let mut dice = Dice::new(9);
    for len_max in [100, 5000, 300_000] {
        let mut wants = random_wants(&mut dice, &handles, &files, 40, len_max);
        check_batch(&*backend, &wants);
        wants.iter_mut().for_each(|want| want.place = Some(0));
        check_batch(&*backend, &wants);
    }
    check_batch(&*backend, &[Want::new(&handles[0], &files[0], 0, 1 << 20).placed(0)]);
    check_batch(&*backend, &[Want::new(&handles[1], &files[1], 0, (1 << 20) + 531)]);
    let past = Want::new(&handles[0], &files[0], 1 << 19, 1 << 20);
    let error = try_batch(&*backend, &[past]).unwrap_err();
    assert!(matches!(error, Error::PastEnd { .. }), "{error:?}");
    let injected = faults.injected.load(Ordering::Relaxed);
    assert!(injected > 10, "only {injected} faults were injected: nothing was tested");
}

pub(in crate::conformance) fn short_reads_change_nothing(rig: &Rig<'_>) {
    check_nothing_shows(rig, Faults { seed: 1, short_permille: 500, ..Faults::default() });
}

/// A short read in mid-block was an error for backends that must read whole blocks.
pub(in crate::conformance) fn ragged_reads_change_nothing(rig: &Rig<'_>) {
    check_nothing_shows(rig, Faults { seed: 3, ragged_permille: 500, ..Faults::default() });
    let both = Faults { short_permille: 300, ragged_permille: 300, ..Faults::default() };
    check_nothing_shows(rig, both);
}

pub(in crate::conformance) fn interruptions_change_nothing(rig: &Rig<'_>) {
    check_nothing_shows(rig, Faults { seed: 2, interrupt_permille: 300, ..Faults::default() });
    let both = Faults { short_permille: 500, interrupt_permille: 300, ..Faults::default() };
    check_nothing_shows(rig, both);
}

/// In a child, because a backend that retries forever cannot be stopped otherwise.
pub(in crate::conformance) fn endless_interruption_ends(rig: &Rig<'_>) {
    rig.in_child(|rig| {
        let faults = Faults { interrupt_permille: 1000, ..Faults::default() };
        let (backend, data) = (backend_with(rig, faults).0, rig.file("data", 10_000));
        let file = open(&*backend, &data);
        let error = try_batch(&*backend, &[Want::new(&file, &data, 5000, 100)]).unwrap_err();
        assert!(matches!(error, Error::Read { index: 0, .. }), "{error:?}");
        assert_eq!((error.path(), error.offset()), (Some(data.path()), Some(5000)));
    });
}

/// Panics unless the error is the device's and speaks of that read.
#[track_caller]
fn assert_device_error(error: &Error, data: &DataFile, want: &Want<'_>, expected_index: usize) {
    let Error::Read { offset, len, index, source, .. } = error else { panic!("{error:?}") };
    assert_eq!((*offset, *len, *index), (want.offset, want.len, expected_index), "{error}");
    assert_eq!(error.path(), Some(data.path()));
    #[cfg(unix)]
    assert_eq!(source.raw_os_error(), Some(libc::EIO), "{error}");
    let text = error.to_string();
    assert!(text.contains(&data.path().display().to_string()), "{text}");
    assert!(text.contains(&want.offset.to_string()), "{text}");
    let _ = source;
}

const BAD: u64 = 2 << 20;

fn bad_block() -> Faults {
    Faults { eio_range: Some(BAD..BAD + 512), ..Faults::default() }
}

pub(in crate::conformance) fn device_error_surfaces(rig: &Rig<'_>) {
    let ((backend, faults), data) = (backend_with(rig, bad_block()), rig.file("data", 4 << 20));
    let file = open(&*backend, &data);
    // Far enough from each other that nothing merges them.
    let far = |i: u64| Want::new(&file, &data, i << 19, 3000);
    let bad = Want::new(&file, &data, BAD + 100, 200);
    for place in [None, Some(0), Some(100)] {
        let bad = Want { place, ..bad };
        let error = try_batch(&*backend, &[bad]).unwrap_err();
        assert_device_error(&error, &data, &bad, 0);
        let error = try_batch(&*backend, &[far(0), far(1), bad, far(7)]).unwrap_err();
        assert_device_error(&error, &data, &bad, 2);
        // In the middle of a long one.
        let long = Want { offset: 4096, len: 3 << 20, ..bad };
        let error = try_batch(&*backend, &[far(7), long]).unwrap_err();
        assert_device_error(&error, &data, &long, 1);
        // The rest of the file can still be read.
        check_batch(&*backend, &[far(0), far(1), far(3), far(5), far(7)]);
    }
    assert!(faults.injected.load(Ordering::Relaxed) >= 9);
}

/// A range that is read with the blocks around it: the error named the blocks.
pub(in crate::conformance) fn placed_reads_name_the_range_that_failed(rig: &Rig<'_>) {
    let (backend, data) = (backend_with(rig, bad_block()).0, rig.file("data", 4 << 20));
    let file = open(&*backend, &data);
    let bad = Want::new(&file, &data, BAD + 100, 200);
    let error = backend.read_to_own_buf(&file, bad.offset, bad.len).unwrap_err();
    assert_device_error(&error, &data, &bad, 0);
    let past = Want::new(&file, &data, (4 << 20) - 100, 101);
    let error = backend.read_to_own_buf(&file, past.offset, past.len).unwrap_err();
    assert_past_end(&error, &past, 0);
}

/// Reads that a planner merges with a bad one. The error may name any of them, but with the place of the one it names.
pub(in crate::conformance) fn device_error_among_neighbours(rig: &Rig<'_>) {
    let (backend, data) = (backend_with(rig, bad_block()).0, rig.file("data", 4 << 20));
    let file = open(&*backend, &data);
    let wants: Vec<_> =
        (0..40).map(|i| Want::new(&file, &data, BAD - 2000 + i * 100, 100)).collect();
    let error = try_batch(&*backend, &wants).unwrap_err();
    let Error::Read { index, .. } = error else { panic!("{error:?}") };
    assert_device_error(&error, &data, &wants[index], index);
    let good: Vec<_> = wants.into_iter().filter(|want| want.offset < BAD - 1000).collect();
    assert!(good.len() > 5);
    check_batch(&*backend, &good);
}

pub(in crate::conformance) fn first_device_error_is_named(rig: &Rig<'_>) {
    let data = rig.file("data", 4 << 20);
    // Whatever is read first, and whether or not others are in flight then.
    for in_flight_max in [1, 8] {
        let faults = Faults { eio_range: Some(BAD..u64::MAX), ..Faults::default() };
        let options = BackendOptions {
            depth_max: in_flight_max,
            threads_max: in_flight_max,
            ..BackendOptions::default()
        };
        let backend = Arc::new(faults).below(|| rig.backend_with(&options));
        let file = open(&*backend, &data);
        let at = |offset: u64| Want::new(&file, &data, offset, 3000);
        let (good, bad, worse) = (at(100_000), at(BAD + 900_000), at(BAD + 100_000));
        for (wants, first) in [
            (vec![good, bad, worse], 1),
            (vec![worse, bad, good], 0),
            (vec![good, at(500_000), bad, at(1_000_000), worse, bad], 2),
        ] {
            for _ in 0..20 {
                let error = try_batch(&*backend, &wants).unwrap_err();
                assert_device_error(&error, &data, &wants[first], first);
            }
        }
    }
}

/// After an error the caller has the memory back: nothing writes to it any more. The bad block is
/// the first, in the middle and the last that a backend meets, while others are under way.
pub(in crate::conformance) fn nothing_in_flight_after_an_error(rig: &Rig<'_>) {
    const LARGE_BYTES: usize = 128 << 10;
    let data = rig.file("data", 6 << 20);
    // The device writes straight into it.
    let mut memory: AVec<u8, ConstAlign<4096>> = AVec::new(4096);
    memory.resize(READS_IN_FLIGHT * LARGE_BYTES, 0);
    // Slow reads one by one, and large ones that take their time together.
    for (delay_ms, read_len) in [(1, 4096), (0, LARGE_BYTES)] {
        let memory = &mut memory[..READS_IN_FLIGHT * read_len];
        for bad in [0, 1 << 20, 5 << 20] {
            let faults = Faults {
                eio_range: Some(bad..bad + 512),
                delay: Duration::from_millis(delay_ms),
                ..Faults::default()
            };
            let options = BackendOptions { depth_max: 8, ..BackendOptions::default() };
            let backend = Arc::new(faults).below(|| rig.backend_with(&options));
            check_nothing_in_flight(&*backend, &data, bad, memory);
        }
    }
}

const READS_IN_FLIGHT: usize = 32;

fn check_nothing_in_flight(
    backend: &dyn ReadBackend,
    data: &DataFile,
    bad: u64,
    memory: &mut [u8],
) {
    let file = open(backend, data);
    let read_len = memory.len() / READS_IN_FLIGHT;
    let offset = |at: usize| match at {
        7 => bad,
        _ => 200_704 + at as u64 * 147_456,
    };
    for _ in 0..3 {
        let mut reads: Vec<_> = memory
            .chunks_exact_mut(read_len)
            .enumerate()
            .map(|(at, dst)| Read::new(&file, offset(at), dst))
            .collect();
        let error = backend.read_batch(&mut reads).unwrap_err();
        drop(reads);
        memory.fill(0x42);
        assert!(matches!(error, Error::Read { .. }), "{error}");
        std::thread::sleep(Duration::from_millis(20));
        // Each byte is equal to the next. Compared as slices, because iterators are slow in a debug build.
        let strays = memory[0] != 0x42 || memory[1..] != memory[..memory.len() - 1];
        assert!(!strays, "bytes were written after the batch had failed");
    }
    backend.read_exact_at(&file, 1 << 19, &mut memory[..100_000]).unwrap();
}
