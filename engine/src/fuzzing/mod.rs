//! The fuzz targets of this crate: functions that take any bytes and check what the crate makes of them.
//! They are not part of the public interface and may change.
//!
//! Three callers use the same list, [`TARGETS`]: the programs of cargo-fuzz (`fuzz/`), the test
//! `tests/fuzzed.rs`, and the long runs of `scripts/fuzz.sh`.
//!
//! | file | content |
//! |---|---|
//! | `arrays.rs` | `.npy` headers and exca's infos |
//! | `indexing.rs`, `model.rs`, `python_slice.rs` | operations on views, and the model that they are compared with |
//! | `epochs.rs` | states of epochs; `job_place` is in `epochs/fuzzing.rs` |
//! | `shards.rs`, `beton.rs`, `weights.rs`, `profile.rs` | one format each; `jpeg` is in `beton/fuzzing.rs` |
//! | `faults.rs` | reads through a backend that fails |
//! | `pieces.rs` | a backend for large files that are mostly empty |
//! | `mutations.rs` | runs a target on its seeds and on mutations of them |
#![allow(
    clippy::incompatible_msrv,
    reason = "only tests use it, with the compiler of the workspace"
)]
#![allow(missing_docs)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a target reports what it finds by panicking"
)]

mod arrays;
mod beton;
mod epochs;
mod faults;
mod indexing;
mod model;
mod mutations;
mod pieces;
mod profile;
mod python_slice;
mod shards;
mod weights;

use std::sync::Arc;

use ringmain_backends::MemoryBackend;

use crate::Engine;
use crate::beton::fuzzing::jpeg;
use crate::epochs::fuzzing::job_place;

pub use mutations::explore_all;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of its cargo-fuzz program and of the folder of its seeds.
    pub name: &'static str,
    /// Panics if the bytes show a mistake of the crate.
    pub run: fn(&[u8]),
    /// The number of mutations that the test command tries: some seconds without optimisation.
    pub mutations: u64,
}

/// All targets of this crate.
pub const TARGETS: &[Target] = &[
    Target { name: "npy_header", run: arrays::npy_header, mutations: 200_000 },
    Target { name: "exca_infos", run: arrays::exca_infos, mutations: 20_000 },
    Target { name: "indexing", run: indexing::indexing, mutations: 20_000 },
    Target { name: "shard_header", run: shards::shard_header, mutations: 200_000 },
    Target { name: "beton_index", run: beton::beton_index, mutations: 20_000 },
    Target { name: "beton_samples", run: beton::beton_samples, mutations: 300 },
    Target { name: "jpeg", run: jpeg, mutations: 3_000 },
    Target { name: "safetensors_header", run: weights::safetensors_header, mutations: 20_000 },
    Target { name: "safetensors_index", run: weights::safetensors_index, mutations: 50_000 },
    Target { name: "safetensors_model", run: weights::safetensors_model, mutations: 5_000 },
    Target { name: "profile", run: profile::profile, mutations: 50_000 },
    Target { name: "epoch_state", run: epochs::epoch_state, mutations: 20_000 },
    Target { name: "job_place", run: job_place, mutations: 50_000 },
    Target { name: "faulty_reads", run: faults::faulty_reads, mutations: 5_000 },
];

/// Returns an engine that reads these files from memory.
fn engine_over(files: &[(&str, &[u8])]) -> Engine {
    let memory = MemoryBackend::new();
    for (name, bytes) in files {
        memory.insert(*name, *bytes);
    }
    Engine::builder().with_backend(Arc::new(memory)).build().expect("the default options work")
}
