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

# The tests use strace to make system calls fail, Chromium to open the report, and fio for comparisons. The
# other packages make the filesystems that the tests mount as root. The packages of later steps are installed
# here too, with one call of the package manager, or one message for a user who cannot install packages.
set_up() {
    want_rust fmt clippy
    want_python
    want strace=strace xfsprogs=mkfs.xfs btrfs-progs=mkfs.btrfs squashfs-tools=mksquashfs \
        mount=losetup util-linux=setpriv chromium=chromium fio=fio
    want_portable
    install_wanted
    # The test of the supply chain looks at the packages of all platforms, and must not need the network.
    cargo fetch --locked
    need_component fmt rustfmt
    need_component clippy clippy
    # Independent programs that read the files that Ringmain writes, in their own environment.
    need_venv "$target/venv" 'hdrhistogram~=0.10.3' 'jsonschema~=4.20'
    export RINGMAIN_PYTHON=$target/venv/bin/python
    # NVIDIA's cuFile, for the test of its binding. Later versions never return from opening if there is no driver.
    need_venv "$target/venv" 'nvidia-cufile-cu12==1.14.1.1'
    RINGMAIN_CUFILE_LIBRARY=$(find "$target/venv" -name libcufile.so.0)
    # cuFile writes a log to the current directory otherwise.
    export RINGMAIN_CUFILE_LIBRARY CUFILE_LOGFILE_PATH=$target/cufile.log
}

# Builds the Python package in its own environment, with overflow checks like the Rust tests, and tests it.
python_tests() {
    local venv=$target/python
    build_python "$venv"
    need_venv "$venv" exca pytest hypothesis ml_dtypes mypy pandas pillow pyarrow safetensors
    need_engines "$venv"
    # Runs Python with few rights and small limits. Built with the features of the tests, whose libraries it shares.
    # `test-server` is the store of the tests of URLs.
    cargo build --locked --workspace --all-features --bin surroundings --bin test-server
    export RINGMAIN_SURROUNDINGS=$target/debug/surroundings RINGMAIN_TEST_SERVER=$target/debug/test-server
    # All of these work on a recent Linux. On other systems, set the variable to the backends that must work.
    RINGMAIN_REQUIRE_BACKENDS=${RINGMAIN_REQUIRE_BACKENDS-pread,mmap,direct,uring,tokio-uring} \
        "$venv/bin/python" -m pytest --quiet --hypothesis-seed=17 python/tests
}

# Torch takes several gigabytes, because the only wheel for Linux on x86-64 depends on the libraries of CUDA. So torch,
# torchdata and Ray are only installed if RINGMAIN_TEST_TORCH is 1; then no test that needs them may be skipped.
# Without it, the tests run that need what is installed, and pytest lists those that it skipped.
need_engines() {
    if [[ ${RINGMAIN_TEST_TORCH:-} == 1 ]]; then
        need_venv "$1" torch torchdata ray pandas
        return
    fi
    venv_has "$1" torch && venv_has "$1" torchdata && venv_has "$1" ray ||
        printf 'tests with torch, torchdata or Ray are left out; RINGMAIN_TEST_TORCH=1 installs them (6 GB, some minutes)\n'
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

# A test fails if it cannot find these programs, instead of passing without a check.
export RINGMAIN_REQUIRE_CHROMIUM=1 RINGMAIN_REQUIRE_PYTHON=1

step set-up set_up
step fmt cargo fmt --all --check
step clippy clippy
# Programs for Windows wait much of their time, and the tests of the Python package use one processor. So the portable
# checks run beside both.
start_beside "portable" "$target/portable.log" scripts/check-portable.sh macos windows linux
step tests native_tests
# Runs each of them once. `scripts/bench-micro.sh` measures them.
step "micro-benchmarks" cargo test --locked --workspace --all-features --bench hot_paths
step python python_tests
# A few schedules, the same each time; `scripts/schedules.sh` alone tries many.
step schedules scripts/schedules.sh --seed 17 500
# A minute that checks every byte while files change and processes fork; `scripts/soak.sh` alone is for hours.
step soak env RINGMAIN_SOAK_PROFILE=dev scripts/soak.sh 1 17
# The loader with all features was tested above. Without features it does not depend on Ringmain.
step "embedded loader, by itself" cargo test --locked --package embedded-loader
step rustdoc rustdoc
step "portable" finish_beside
