//! Compares random chains of indexing and view operations, random selections and random batches
//! with `ndarray` on the same data in memory, on every backend.
//!
//! Every element of the file holds its own position. So the model's array of elements is also the
//! array of their positions, and shows which selections are one range of the file.

// Clippy allows these in functions marked `#[test]`, but not in the helpers they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod chains;
mod model;
#[path = "../../src/fuzzing/python_slice.rs"]
mod python_slice;
mod reads;
#[path = "../support/mod.rs"]
mod support;

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::OnceLock;

use ndarray::{ArrayD, IxDyn};
use proptest::prelude::*;
use ringmain::{ContiguousMemmap, Engine, Index, Kind};
use tempfile::TempDir;

/// As many elements as a `u16` can number.
const ELEMENTS: usize = 1 << 16;
/// The bytes before the first element, so that nothing in the file is aligned.
const LEAD_BYTES: u64 = 3;

/// A file of `u16`s that count from 0, and an engine for every backend that can read it.
struct Fixture {
    _dir: TempDir,
    path: PathBuf,
    engines: Vec<Engine>,
    /// The same with the least possible memory, requests and descriptors.
    tight_engines: Vec<Engine>,
}

fn fixture() -> &'static Fixture {
    static FIXTURE: OnceLock<Fixture> = OnceLock::new();
    FIXTURE.get_or_init(|| {
        let dir = support::temp_dir();
        let path = dir.path().join("positions");
        let positions = (0..ELEMENTS).flat_map(|at| (at as u16).to_le_bytes());
        let bytes: Vec<u8> = [0xEE; LEAD_BYTES as usize].into_iter().chain(positions).collect();
        std::fs::write(&path, bytes).unwrap();
        let engines = support::engines_for(&path);
        let tight_engines = support::engines_with(&path, |builder| {
            builder.memory_limit_bytes(8192).depth_max(1).chunk_bytes(4096).open_files_max(1)
        });
        Fixture { _dir: dir, path, engines, tight_engines }
    })
}

/// An array of the file: its shape and the position of its first element.
#[derive(Clone, Debug)]
struct Spec {
    shape: Vec<usize>,
    start: usize,
}

impl Spec {
    fn open(&self, engine: &Engine) -> ContiguousMemmap {
        let offset = LEAD_BYTES + 2 * self.start as u64;
        engine.open_raw(&fixture().path, Kind::U16, &self.shape, offset).unwrap()
    }

    fn model(&self) -> ArrayD<u16> {
        let size: usize = self.shape.iter().product();
        let positions = (self.start..self.start + size).map(|at| at as u16).collect();
        ArrayD::from_shape_vec(IxDyn(&self.shape), positions).unwrap()
    }
}

fn spec() -> impl Strategy<Value = Spec> {
    let length = prop_oneof![1 => Just(0usize), 3 => Just(1), 16 => 2..=7usize];
    // At most 7⁵ elements, which the file has twice over.
    (prop::collection::vec(length, 0..=5), 0..ELEMENTS / 2)
        .prop_map(|(shape, start)| Spec { shape, start })
}

/// Returns arrays whose rows are more than a page apart, so that a selection of them takes many
/// reads, with or without scratch memory.
fn large_spec() -> impl Strategy<Value = Spec> {
    let shape = prop_oneof![
        (2..=14usize, 2200..=4500usize).prop_map(|(rows, columns)| vec![rows, columns]),
        (2..=7usize, 8200..=9000usize).prop_map(|(rows, columns)| vec![rows, columns]),
        (2..=7usize, 2..=3usize, 2200..=3000usize).prop_map(|(a, b, c)| vec![a, b, c]),
    ];
    (shape, 0..ELEMENTS - 63_000).prop_map(|(shape, start)| Spec { shape, start })
}

/// Returns numbers that are mostly near the lengths of the axes, on both sides.
fn number() -> impl Strategy<Value = i64> {
    prop_oneof![40 => -9..=9i64, 1 => Just(i64::MIN), 1 => Just(i64::MAX)]
}

fn slice() -> impl Strategy<Value = Index> {
    let end = || prop_oneof![1 => Just(None), 1 => number().prop_map(Some)];
    let step = prop_oneof![12 => Just(1i64), 6 => -3..=3i64, 1 => number()];
    (end(), end(), step).prop_map(|(start, stop, step)| Index::slice(start, stop, step))
}

fn index_part() -> impl Strategy<Value = Index> {
    prop_oneof![
        // Inside most axes, so that chains are not refused at once.
        4 => (-2..=1i64).prop_map(Index::At),
        1 => number().prop_map(Index::At),
        4 => slice(),
        4 => Just(Index::ALL),
        1 => Just(Index::Ellipsis),
        1 => Just(Index::NewAxis),
    ]
}

fn index_parts(count: RangeInclusive<usize>) -> impl Strategy<Value = Vec<Index>> {
    prop::collection::vec(index_part(), count)
}
