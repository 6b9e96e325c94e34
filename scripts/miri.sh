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
planner of device reads, short reads and the threads of async readers in `backends`; layouts, headers, conversions,
exca's infos and the orders of epochs in the engine; the blocks of the disk cache and their eviction in `object-store`.
The tests of `backends` alone took 13 minutes on a busy machine. It needs a nightly compiler with Miri, which it installs
with rustup.

Left out: what Miri does not support (io_uring, file mappings, forks, direct reads, the limits of a process), and tests
of many megabytes.
TEXT
}

case ${1:-} in
-h | --help) usage && exit 0 ;;
'') ;;
*) die "unknown argument '$1'; see --help" ;;
esac

# Installs Miri and the sources of the standard library, which Miri interprets. A nightly compiler that is there is
# not replaced by a newer one, which might have no Miri.
need_miri() {
    need_rust
    ! has_miri || return 0
    command -v rustup >/dev/null ||
        die "Miri is missing; install rustup, then run \`rustup toolchain install nightly --component miri,rust-src\`"
    if rustup run nightly rustc --version >/dev/null 2>&1; then
        rustup component add --toolchain nightly miri rust-src
    else
        rustup toolchain install nightly --profile minimal --component miri,rust-src
    fi
}

has_miri() {
    cargo +nightly miri --version >/dev/null 2>&1 &&
        [[ -d $(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library ]]
}

# The tests make folders for temporary files and ask for the time. Miri makes some reads short at random, and one test
# counts calls. It also changes the last digits of powers and the bits of NaNs at random, which the tests compare.
export MIRIFLAGS="${MIRIFLAGS:-} -Zmiri-disable-isolation -Zmiri-no-short-fd-operations -Zmiri-deterministic-floats"
# Miri takes a second where the processor takes some milliseconds.
export PROPTEST_CASES=${PROPTEST_CASES:-4}

backends() {
    # Left out: buffers of 40 MiB, a test in which the kernel must refuse memory, one that forks, and three that open a
    # backend, which asks for limits that Miri does not know.
    cargo +nightly miri test --locked --package ringmain-backends --no-default-features --features conformance,direct --lib -- \
        buffer:: device:: joined placement pool::tests read:: reader_threads retry:: stats \
        --skip memory_is_aligned --skip more_than_the_address --skip an_inherited \
        --skip ranges_of_several_files --skip a_range_that_ends_before --skip an_error_names_the_range
}

engine() {
    # Left out: headers of 65,536 entries, and the statistics of 80,000 permutations.
    cargo +nightly miri test --locked --package ringmain --no-default-features --features beton,exca,safetensors,serde --lib -- \
        array:: memory:: shards::batch shards::convert shards::header \
        beton::alloc beton::array beton::field beton::header beton::page_schedule beton::row beton::table \
        epochs:: weights::header weights::tensor \
        --skip selections_out_of_range --skip lists_are_read_up_to --skip every_position_is_equally_likely
}

object_store() {
    # Left out: a checksum for each bit of a block.
    cargo +nightly miri test --locked --package ringmain-object-store --no-default-features --lib -- \
        disk_cache::block disk_cache::eviction --skip every_flipped_bit
}

step set-up need_miri
step backends backends
step engine engine
step object-store object_store
