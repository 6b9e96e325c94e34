//! Many reads at once, in every order, including reads that a planner may merge.

use crate::conformance::arena::{Want, check_batch};
use crate::conformance::rig::{Dice, Rig, open, open_all, random_wants};
use crate::{BackendOptions, Read};

pub(in crate::conformance) fn duplicate_ranges(rig: &Rig<'_>) {
    let (backend, data) = (rig.backend(), rig.file("data", 100_000));
    let file = open(&*backend, &data);
    for (offset, len) in [(0, 4096), (1000, 5000), (4096, 4096), (99_999, 1)] {
        check_batch(&*backend, &vec![Want::new(&file, &data, offset, len); 20]);
        check_batch(&*backend, &vec![Want::new(&file, &data, offset, len).placed(0); 20]);
    }
}

pub(in crate::conformance) fn overlapping_ranges(rig: &Rig<'_>) {
    let (backend, data) = (rig.backend(), rig.file("data", 100_000));
    let file = open(&*backend, &data);
    let sliding: Vec<_> = (0..60).map(|i| Want::new(&file, &data, i * 1500, 4000)).collect();
    check_batch(&*backend, &sliding);
    let nested: Vec<_> =
        (0..40).map(|i| Want::new(&file, &data, i * 1000, 100_000 - 2000 * i as usize)).collect();
    check_batch(&*backend, &nested);
}

pub(in crate::conformance) fn reversed_ranges(rig: &Rig<'_>) {
    let (backend, data) = (rig.backend(), rig.file("data", 300_000));
    let file = open(&*backend, &data);
    for (step, len) in [(4096, 4096), (1000, 1000), (3000, 2000)] {
        let from_end = |i: u64| Want::new(&file, &data, 295_900 - i * step, len);
        check_batch(&*backend, &(0..70).map(from_end).collect::<Vec<_>>());
    }
}

pub(in crate::conformance) fn shuffled_ranges(rig: &Rig<'_>) {
    let (backend, files) = (rig.backend(), [rig.file("data", 1 << 20)]);
    let handles = open_all(&*backend, &files);
    let mut dice = Dice::new(1);
    for len_max in [10, 600, 5000, 100_000] {
        check_batch(&*backend, &random_wants(&mut dice, &handles, &files, 60, len_max));
    }
}

pub(in crate::conformance) fn adjacent_small_reads(rig: &Rig<'_>) {
    let (backend, data) = (rig.backend(), rig.file("data", 200_000));
    let file = open(&*backend, &data);
    // Touching, and with a hole of one byte or of a block between them.
    for gap in [0, 1, 512] {
        let (mut offset, mut wants) = (3, Vec::new());
        for i in 0..300 {
            let len = 1 + (i * 37) % 130;
            wants.push(Want::new(&file, &data, offset, len));
            offset += len as u64 + gap;
        }
        check_batch(&*backend, &wants);
    }
    // Into memory that touches too.
    let mut bytes = vec![0; 50_000];
    let parts = bytes.chunks_mut(100).zip((0..).step_by(100));
    let mut reads: Vec<_> = parts.map(|(dst, offset)| Read::new(&file, offset, dst)).collect();
    backend.read_batch(&mut reads).unwrap();
    assert!(bytes == data.bytes(0, 50_000));
}

pub(in crate::conformance) fn several_files(rig: &Rig<'_>) {
    let (backend, files) = (rig.backend(), rig.files(12, 20_000));
    let handles = open_all(&*backend, &files);
    let same_place: Vec<_> = (0..36)
        .map(|i| Want::new(&handles[i % 12], &files[i % 12], 5000 + i as u64, 3000))
        .collect();
    check_batch(&*backend, &same_place);
    check_batch(&*backend, &random_wants(&mut Dice::new(2), &handles, &files, 200, 9000));
    // Two handles of one file work like one.
    let again = open_all(&*backend, &files);
    let both: Vec<_> = (0..24)
        .map(|i| if i % 2 == 0 { &handles[i / 2] } else { &again[i / 2] })
        .enumerate()
        .map(|(i, handle)| Want::new(handle, &files[i / 2], 11, 17_000))
        .collect();
    check_batch(&*backend, &both);
}

pub(in crate::conformance) fn a_batch_larger_than_the_ring(rig: &Rig<'_>) {
    let options = BackendOptions { depth_max: 4, ..BackendOptions::default() };
    let (backend, files) = (rig.backend_with(&options), rig.files(2, 1 << 20));
    let handles = open_all(&*backend, &files);
    let mut dice = Dice::new(3);
    check_batch(&*backend, &random_wants(&mut dice, &handles, &files, 1000, 1000));
    // Blocks that cannot be merged into few requests.
    let blocks: Vec<_> = (0..1000)
        .map(|i| Want::new(&handles[0], &files[0], (i * 77 % 128) * 8192, 4096).placed(0))
        .collect();
    check_batch(&*backend, &blocks);
}

pub(in crate::conformance) fn one_batch_of_every_size(rig: &Rig<'_>) {
    let (backend, data) = (rig.backend(), rig.file("data", 5 << 20));
    let file = open(&*backend, &data);
    let sizes = [1, 513, 4096, 70_000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (3 << 20) + 5];
    let mut wants = Vec::new();
    for (i, len) in sizes.into_iter().enumerate() {
        wants.push(Want::new(&file, &data, 1000 * i as u64, len));
        wants.push(Want::new(&file, &data, 4096 * i as u64, len).placed(0));
    }
    check_batch(&*backend, &wants);
}
