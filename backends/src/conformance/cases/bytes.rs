//! Reads return the right bytes from any offset to any address, and no bytes past the end.

use crate::conformance::arena::{Want, check_batch, try_batch};
use crate::conformance::rig::{Rig, assert_past_end, open};
use crate::{Read, ReadBackendExt};

pub(in crate::conformance) fn empty_file(rig: &Rig<'_>) {
    let (backend, data) = (rig.backend(), rig.file("empty", 0));
    let file = open(&*backend, &data);
    assert_eq!(backend.len(&file).unwrap(), 0);
    check_batch(&*backend, &[Want::new(&file, &data, 0, 0)]);
    for (offset, len) in [(0, 1), (0, 4096), (1, 1), (4096, 100_000)] {
        let want = Want::new(&file, &data, offset, len);
        assert_past_end(&try_batch(&*backend, &[want]).unwrap_err(), &want, 0);
    }
}

pub(in crate::conformance) fn whole_file(rig: &Rig<'_>) {
    let backend = rig.backend();
    for len in [1, 511, 512, 513, 4095, 4096, 4097, 65_536, 1 << 20, (3 << 20) + 13] {
        let data = rig.file(&format!("{len}"), len);
        let file = open(&*backend, &data);
        assert_eq!(backend.len(&file).unwrap(), len);
        let len = usize::try_from(len).unwrap();
        check_batch(&*backend, &[Want::new(&file, &data, 0, len)]);
        check_batch(&*backend, &[Want::new(&file, &data, 0, len).placed(0)]);
        assert!(backend.read_to_vec(&file, 0, len).unwrap() == data.bytes(0, len), "{len}");
    }
}

pub(in crate::conformance) fn odd_lengths_at_odd_offsets(rig: &Rig<'_>) {
    let (backend, data) = (rig.backend(), rig.file("odd", 200_003));
    let file = open(&*backend, &data);
    let mut wants = Vec::new();
    for offset in [0, 1, 7, 511, 513, 4095, 4097, 65_537, 131_071, 195_906] {
        for len in [0, 1, 2, 511, 512, 513, 4095, 4096, 4097] {
            let want = Want::new(&file, &data, offset, len);
            check_batch(&*backend, &[want]);
            wants.push(want);
        }
    }
    check_batch(&*backend, &wants);
}

pub(in crate::conformance) fn unaligned_destinations(rig: &Rig<'_>) {
    let (backend, data) = (rig.backend(), rig.file("data", 50_001));
    let file = open(&*backend, &data);
    let mut wants = Vec::new();
    for place in [0, 1, 2, 3, 7, 8, 63, 64, 511, 512, 513, 1024, 4095] {
        // Both ends in the middle, aligned, and a tail up to an unaligned end of file.
        for (offset, len) in [(777, 9999), (4096, 8192), (45_056, 4945), (49_664, 337)] {
            let want = Want::new(&file, &data, offset, len).placed(place);
            check_batch(&*backend, &[want]);
            wants.push(want);
        }
    }
    check_batch(&*backend, &wants);
}

pub(in crate::conformance) fn ranges_at_across_and_past_the_end(rig: &Rig<'_>) {
    let backend = rig.backend();
    for len in [1, 512, 4096, 10_007, 1 << 20] {
        let data = rig.file(&format!("{len}"), len);
        let file = open(&*backend, &data);
        for back in [1, 2, 511, 512, 513, 4096, 5000] {
            let offset = len.saturating_sub(back);
            let to_end = usize::try_from(len - offset).unwrap();
            check_batch(&*backend, &[Want::new(&file, &data, offset, to_end)]);
            for beyond in [1, 2, 100, 512, 4096, 2 << 20] {
                let want = Want::new(&file, &data, offset, to_end + beyond);
                assert_past_end(&try_batch(&*backend, &[want]).unwrap_err(), &want, 0);
            }
        }
        for (gap, read_len) in [(0, 1), (0, 8192), (1, 1), (511, 512), (4096, 4096), (1 << 40, 3)] {
            let want = Want::new(&file, &data, len + gap, read_len).placed(0);
            assert_past_end(&try_batch(&*backend, &[want]).unwrap_err(), &want, 0);
        }
    }
}

pub(in crate::conformance) fn first_read_past_the_end_is_named(rig: &Rig<'_>) {
    let backend = rig.backend();
    let (data, other) = (rig.file("data", 10_000), rig.file("other", 5000));
    let (file, other_file) = (open(&*backend, &data), open(&*backend, &other));
    let good = Want::new(&file, &data, 100, 1000);
    // In the order of offsets, the second bad one would be met first.
    let (bad, earlier) = (Want::new(&file, &data, 9_999, 2), Want::new(&file, &data, 9_000, 4096));
    let beyond = Want::new(&file, &data, u64::MAX, 1);
    let in_other = Want::new(&other_file, &other, 4999, 2);
    for (wants, first) in [
        (vec![good, bad, good, earlier], 1),
        (vec![good, good, earlier, bad], 2),
        (vec![bad, in_other, good], 0),
        (vec![good, in_other, bad], 1),
        (vec![good, beyond, bad], 1),
        (vec![good, bad, beyond], 1),
        (vec![in_other, good, in_other], 0),
    ] {
        let error = try_batch(&*backend, &wants).unwrap_err();
        assert_past_end(&error, &wants[first], first);
    }
    check_batch(&*backend, &[good]);
}

pub(in crate::conformance) fn reads_of_nothing(rig: &Rig<'_>) {
    let (backend, data) = (rig.backend(), rig.file("data", 10_000));
    let file = open(&*backend, &data);
    backend.read_batch(&mut []).unwrap();
    let offsets = [0, 1, 9_999, 10_000, 10_001, i64::MAX as u64, (1 << 63) + 1, u64::MAX];
    for offset in offsets {
        backend.read_batch(&mut [Read::new(&file, offset, &mut [])]).unwrap();
    }
    let mut wants: Vec<_> = offsets.map(|offset| Want::new(&file, &data, offset, 0)).into();
    check_batch(&*backend, &wants);
    wants.insert(3, Want::new(&file, &data, 123, 4567));
    check_batch(&*backend, &wants);
}

pub(in crate::conformance) fn offsets_beyond_any_file(rig: &Rig<'_>) {
    let (backend, data) = (rig.backend(), rig.file("data", 10_000));
    let file = open(&*backend, &data);
    let max = i64::MAX as u64;
    for offset in [max - 5000, max - 4096, max - 511, max - 1, max, max + 1, u64::MAX - 4096] {
        for len in [1, 4096, 10_000] {
            let want = Want::new(&file, &data, offset, len).placed(0);
            assert_past_end(&try_batch(&*backend, &[want]).unwrap_err(), &want, 0);
        }
    }
    for (offset, len) in [(u64::MAX, 1), (u64::MAX, 2), (u64::MAX - 9, 10), (u64::MAX - 9, 11)] {
        let want = Want::new(&file, &data, offset, len);
        assert_past_end(&try_batch(&*backend, &[want]).unwrap_err(), &want, 0);
    }
    check_batch(&*backend, &[Want::new(&file, &data, 0, 10_000)]);
}

/// Linux moves at most 0x7fff_f000 bytes with one call (read(2)), and an `i32` has room for no
/// more. There are marks around that, and around 1, 2 and 4 GiB. The holes between them are read into
/// memory that is mapped again and again: this case was killed where 2 GiB of memory were left.
#[cfg(all(unix, target_pointer_width = "64"))]
pub(in crate::conformance) fn reads_over_2_gib(rig: &Rig<'_>) {
    use std::os::unix::fs::FileExt;

    use crate::conformance::aliased::{AliasedMemory, BLOCK_BYTES};
    use crate::conformance::data::{Pattern, assert_same};

    const GIB: u64 = 1 << 30;
    const OFFSET: u64 = 12_345;
    const READ_LEN: usize = (2 << 30) + 98_765;
    const MARK_LEN: usize = 9_000;
    const FILLING: u8 = 0xA6;

    let path = rig.dir().join("sparse");
    let disk = std::fs::File::create(&path).unwrap();
    disk.set_len(4 * GIB + 50_000).unwrap();
    let pattern = Pattern::new(2);
    let read_end = OFFSET + READ_LEN as u64;
    let call_end = OFFSET + 0x7fff_f000;
    let inside = [
        OFFSET,
        GIB - 4500,
        call_end - 4500,
        2 * GIB - 4500,
        2 * GIB + 4500,
        read_end - MARK_LEN as u64,
    ];
    let outside = [4 * GIB - 4500, 4 * GIB + 41_000];
    for mark in inside.iter().chain(&outside) {
        disk.write_all_at(&pattern.bytes(*mark, MARK_LEN), *mark).unwrap();
    }

    let backend = rig.backend();
    let file = backend.open(&path).unwrap();
    let places = inside.map(|mark| {
        let start = (mark - OFFSET) as usize;
        start..start + MARK_LEN
    });
    let mut memory = AliasedMemory::new(READ_LEN + BLOCK_BYTES, &places, FILLING);
    let dst = &mut memory.bytes_mut()[..READ_LEN];
    backend.read_exact_at(&file, OFFSET, dst).unwrap();

    // Blocks with a mark have memory of their own: every byte is compared.
    let mut expected = vec![0; BLOCK_BYTES];
    for start in (0..READ_LEN).step_by(BLOCK_BYTES) {
        let block = start..(start + BLOCK_BYTES).min(READ_LEN);
        expected.fill(0);
        for place in &places {
            let (from, to) = (place.start.max(block.start), place.end.min(block.end));
            if from < to {
                let marked = &mut expected[from - block.start..to - block.start];
                pattern.fill(OFFSET + from as u64, marked);
            }
        }
        let what = format!("{} bytes read from {}", block.len(), OFFSET + start as u64);
        assert_same(&dst[block.clone()], &expected[..block.len()], &what);
    }
    for mark in inside.iter().chain(&outside) {
        let bytes = backend.read_to_vec(&file, *mark, MARK_LEN).unwrap();
        assert_same(&bytes, &pattern.bytes(*mark, MARK_LEN), &format!("the mark at {mark} again"));
    }
}
