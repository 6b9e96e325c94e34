//! The program of every target: it runs the target of its own name.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use ringmain::fuzzing::Target;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let mut targets = ringmain::fuzzing::TARGETS
        .iter()
        .chain(ringmain_bench::fuzzing::TARGETS)
        .chain(ringmain_object_store::fuzzing::TARGETS);
    *targets.find(|target| target.name == env!("CARGO_BIN_NAME")).expect("the target is in a list")
});

fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
