#!/usr/bin/env bash
# Runs all checks that a change must pass: format, lints, tests, documentation, and the portable checks.
# Stops at the first step that fails.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
trap 'report_end; stop_beside' EXIT

# `auto` must choose by what the machine can do, not by a profile that the user has saved.
export RINGMAIN_PROFILE=off
# Property tests try the same cases each time, so that a change is judged by what it changes. `scripts/flakes.sh`
# tries other cases in each run.
export PROPTEST_RNG_SEED=17

# The packages of later steps are installed here too, with one call of the package manager, or one message for a user
# who cannot install packages.
set_up() {
    want_rust fmt clippy
    want_all_features
    want_python
    want_test_programs
    want_portable
    install_wanted
    # The test of the supply chain looks at the packages of all platforms, and must not need the network.
    cargo fetch --locked
    need_component fmt rustfmt
    need_component clippy clippy
    need_test_programs
}

# Builds the Python package in its own environment, with overflow checks like the Rust tests, and tests it.
python_tests() {
    local venv=$target/python
    need_python_tests "$venv"
    # All of these work on a recent Linux. On other systems, set the variable to the backends that must work.
    RINGMAIN_REQUIRE_BACKENDS=${RINGMAIN_REQUIRE_BACKENDS-pread,mmap,direct,uring,tokio-uring} \
        "$venv/bin/python" -m pytest --quiet --hypothesis-seed=17 python/tests
}

# The library crates and the loader that others copy promise to build with an older compiler than the tests need.
# Clippy checks that they use nothing newer of the standard library.
clippy() {
    cargo clippy --locked --workspace --all-targets --all-features -- \
        -D warnings -A clippy::incompatible_msrv
    cargo clippy --locked --lib --all-features --package ringmain-backends --package ringmain \
        --package embedded-loader -- -D warnings
}

rustdoc() {
    RUSTDOCFLAGS="${RUSTDOCFLAGS:-} -D warnings" \
        cargo doc --locked --workspace --all-features --no-deps
}

# Two tests per processor, because many tests wait: for a device, a child process or the end of a delay.
native_tests() {
    RUST_TEST_THREADS=$((2 * $(nproc))) cargo test --locked --workspace --all-features
}

step set-up set_up
step fmt cargo fmt --all --check
step clippy clippy
# Two steps run beside others. Programs for Windows wait much of their time, and the tests of the Python package use one
# processor.
start_beside "portable" "$target/portable.log" scripts/check-portable.sh macos windows linux
step tests native_tests
# Runs each of them once. `scripts/bench-micro.sh` measures them.
step "micro-benchmarks" cargo test --locked --workspace --all-features --bench hot_paths
step "portable" finish_beside
start_beside "python" "$target/python.log" python_tests
# A few schedules, the same each time; `scripts/schedules.sh` alone tries many.
step schedules scripts/schedules.sh --seed 17 500
# A minute that checks every byte while files change and processes fork; `scripts/soak.sh` alone is for hours.
step soak env RINGMAIN_SOAK_PROFILE=dev scripts/soak.sh 1 17
# The loader with all features was tested above. Without features it does not depend on Ringmain.
step "embedded loader, by itself" cargo test --locked --package embedded-loader
step rustdoc rustdoc
step "python" finish_beside
