//! The contract of every source: orders, parts, batches, moves and states are the same for the rows of
//! shards and for the samples of datasets.

// These lints spare functions marked `#[test]`, but not what such functions share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
#[path = "../shards/corpus.rs"]
mod corpus;
#[allow(dead_code)]
#[path = "../beton/made.rs"]
mod made;
mod model;
mod sources;
mod states;
#[path = "../support/mod.rs"]
mod support;
