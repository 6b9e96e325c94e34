//! Every fuzz target on its seeds, and on a bounded number of mutations of them, with stable Rust.
//! `scripts/fuzz.sh` runs the targets for longer, with cargo-fuzz if it can.

use std::path::Path;

use ringmain::fuzzing::explore_all;
use ringmain_object_store::fuzzing::TARGETS;

#[test]
fn the_targets_hold_on_their_seeds_and_on_mutations() {
    explore_all(TARGETS, Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/seeds")));
}
