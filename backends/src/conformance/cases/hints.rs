//! Hints may be about any range, and never change what reads return.

use std::ops::Range;

use crate::conformance::arena::{Want, check_batch};
use crate::conformance::rig::{Rig, open};

pub(in crate::conformance) fn odd_ranges(rig: &Rig<'_>) {
    let backend = rig.backend();
    for len in [0, 1, 10_000] {
        let data = rig.file(&format!("{len}"), len);
        let file = open(&*backend, &data);
        for (start, end) in [
            (0, 0),
            (5, 5),
            (9, 3),
            (u64::MAX, 0),
            (1, 2),
            (4095, 4097),
            (len, len + 1),
            (len + 1, len + 4096),
            (0, u64::MAX),
            (3, i64::MAX as u64),
            (i64::MAX as u64, u64::MAX),
            (u64::MAX - 1, u64::MAX),
            (u64::MAX, u64::MAX),
        ] {
            backend.prefetch(&file, Range { start, end }).unwrap();
            backend.release(&file, Range { start, end }).unwrap();
            let len = usize::try_from(len).unwrap();
            check_batch(&*backend, &[Want::new(&file, &data, 0, len)]);
        }
    }
}

pub(in crate::conformance) fn hints_change_no_bytes(rig: &Rig<'_>) {
    let (backend, data) = (rig.backend(), rig.file("data", 3 << 20));
    let file = open(&*backend, &data);
    for (start, len) in [(0, 3 << 20), (4096, 8192), (12_345, 1 << 20), ((3 << 20) - 9, 9)] {
        let range = start..start + len as u64;
        let want = Want::new(&file, &data, start, len);
        backend.prefetch(&file, range.clone()).unwrap();
        check_batch(&*backend, &[want]);
        backend.release(&file, range.clone()).unwrap();
        check_batch(&*backend, &[want]);
        backend.prefetch(&file, range.clone()).unwrap();
        backend.release(&file, range).unwrap();
        check_batch(&*backend, &[want]);
    }
}
