//! The contract of every source: orders, partitions, batches, moves and states work the same for
//! the rows of shards and for the samples of datasets.

// Clippy allows these in functions marked `#[test]`, but not in the helpers they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
#[path = "../shards/corpus.rs"]
mod corpus;
mod elastic;
#[allow(dead_code)]
#[path = "../beton/made.rs"]
mod made;
mod model;
mod sources;
mod states;
#[path = "../support/mod.rs"]
mod support;
