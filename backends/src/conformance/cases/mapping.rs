//! Ranges without a copy, for backends that can return them.

use std::ops::Range;

use crate::Error;
use crate::Unchanging;
use crate::conformance::rig::{Rig, open};

pub(in crate::conformance) fn zero_copy(rig: &Rig<'_>) {
    let (backend, data) = (rig.backend(), rig.file("data", 50_001));
    let file = open(&*backend, &data);
    if !backend.capabilities().zero_copy {
        assert!(backend.map(&file, 0..10).unwrap().is_none());
        return;
    }
    let mut kept = Vec::new();
    for (start, len) in [(0, 50_001), (0, 0), (50_001, 0), (1, 1), (4095, 4098), (49_999, 2)] {
        let mapped = backend.map(&file, start..start + len as u64).unwrap().unwrap();
        assert_eq!((mapped.len(), mapped.is_empty()), (len, len == 0));
        kept.push((mapped, start));
    }
    for (start, end) in [(0, 50_002), (50_001, 50_002), (60_000, 60_001), (9, 3), (0, u64::MAX)] {
        let error = backend.map(&file, Range { start, end }).unwrap_err();
        assert!(matches!(error, Error::PastEnd { .. }), "{start}..{end}: {error:?}");
        assert_eq!((error.path(), error.offset()), (Some(data.path()), Some(start)));
    }
    let data = data.grown_to(100_000);
    let grown = backend.map(&file, 50_000..100_000).unwrap().unwrap();
    kept.push((grown, 50_000));
    // The mapping belongs to the range, not to the backend.
    drop((backend, file));
    for (mapped, start) in &kept {
        let mut copy = vec![0; mapped.len()];
        assert!(mapped.copy_to(&mut copy));
        assert!(copy == data.bytes(*start, copy.len()), "{} bytes at {start}", copy.len());
        assert!(!mapped.copy_to(&mut vec![0; copy.len() + 1]), "another length was taken");
        // SAFETY: nothing writes to the file any more.
        assert!(mapped.as_slice(unsafe { Unchanging::promise() }) == copy);
    }
}

#[cfg(unix)]
pub(in crate::conformance) fn truncated_under_a_mapped_range(rig: &Rig<'_>) {
    rig.in_child(|rig| {
        let (backend, data) = (rig.backend(), rig.file("data", 50_001));
        let file = open(&*backend, &data);
        let Some(mapped) = backend.map(&file, 0..50_001).unwrap() else {
            return;
        };
        assert!(mapped.copy_to(&mut vec![0; 50_001]));
        data.truncated_to(10_000);
        assert!(!mapped.copy_to(&mut vec![0; 50_001]), "the end is gone");
        let mut last = [0; 1];
        assert!(!mapped.copy_blocks::<1>(|_, byte| last = *byte), "the end is gone");
        // Only that mapping is damaged: the backend still reads the rest of the file.
        let data = data.truncated_to(0).grown_to(20_000);
        let fresh = backend.map(&file, 0..20_000).unwrap().unwrap();
        let mut copy = vec![0; 20_000];
        assert!(fresh.copy_to(&mut copy) && copy == data.bytes(0, 20_000));
    });
}
