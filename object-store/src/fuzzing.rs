//! The fuzz targets of this crate: functions that take any bytes and check what the crate makes of them, for `fuzz/`, for
//! `tests/fuzzed.rs` and for `scripts/fuzz.sh`. They are not part of the public interface.
#![allow(missing_docs)]

use ringmain::fuzzing::Target;

use crate::{disk_cache, remote};

/// All targets of this crate.
pub const TARGETS: &[Target] = &[
    Target { name: "cache_block", run: disk_cache::fuzzing::cache_block, mutations: 20_000 },
    Target { name: "cache_names", run: disk_cache::fuzzing::cache_names, mutations: 50_000 },
    Target { name: "url", run: remote::fuzzing::url, mutations: 20_000 },
    Target { name: "answers", run: remote::fuzzing::answers, mutations: 20_000 },
];
