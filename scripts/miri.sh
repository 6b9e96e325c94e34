#!/usr/bin/env bash
# Runs tests under Miri, an interpreter that finds undefined behaviour: memory that is read before it is written or
# after it is freed, broken aliasing rules, misaligned accesses.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
trap report_end EXIT

usage() {
    cat <<'TEXT'
Usage: scripts/miri.sh

Runs the unit tests under Miri that need nothing of the kernel but files and anonymous memory: buffers, the pool, the
planner of device reads and short reads in `backends`; layouts, headers, conversions and the orders of epochs in the
engine. It takes some minutes and needs a nightly compiler with Miri (rustup toolchain install nightly --component miri,rust-src).

Left out: what Miri does not support (io_uring, file mappings, forks, direct reads), and tests of many megabytes.
TEXT
}

case ${1:-} in
-h | --help) usage && exit 0 ;;
'') ;;
*) die "unknown argument '$1'; see --help" ;;
esac

need_rust
cargo +nightly miri --version >/dev/null 2>&1 ||
    die "Miri is missing; install it with: rustup toolchain install nightly --component miri,rust-src"

# The tests make folders for temporary files and ask for the time. Miri makes some reads short at random, and one test
# counts calls. It also changes the last digits of powers and the bits of NaNs at random, which the tests compare.
export MIRIFLAGS="${MIRIFLAGS:-} -Zmiri-disable-isolation -Zmiri-no-short-fd-operations -Zmiri-deterministic-floats"
# Miri takes a second where the processor takes some milliseconds.
export PROPTEST_CASES=${PROPTEST_CASES:-4}

backends() {
    # Left out: buffers of 40 MiB, and a test in which the kernel must refuse memory.
    cargo +nightly miri test --locked --package ringmain-backends --no-default-features --features conformance,direct --lib -- \
        buffer:: device:: joined placement pool::tests read:: retry:: stats \
        --skip memory_is_aligned --skip more_than_the_address
}

engine() {
    # Left out: headers of 65,536 entries, and the statistics of 80,000 permutations.
    cargo +nightly miri test --locked --package ringmain --no-default-features --features beton,safetensors --lib -- \
        array:: memory:: shards::batch shards::convert shards::header \
        beton::alloc beton::array beton::field beton::header beton::page_schedule beton::row beton::table \
        epochs:: weights::header weights::tensor \
        --skip selections_out_of_range --skip lists_are_read_up_to --skip every_position_is_equally_likely
}

step backends backends
step engine engine
