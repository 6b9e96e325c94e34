#!/usr/bin/env bash
# Runs the fuzz targets for longer than the tests do: scripts/fuzz.sh [TARGET] [SECONDS]
#
# Without a target it runs all of them, one after the other, for SECONDS each (60 by default). With a nightly
# compiler and cargo-fuzz it uses those, and says otherwise what is missing; the targets then run with the
# compiler at hand, on mutations that do not look at the coverage.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

target=${1:-all}
seconds=${2:-60}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { echo "the number of seconds must be a whole number, not $seconds" >&2; exit 2; }
mapfile -t targets < <(sed -n '/^\[\[bin\]\]/,/^$/ s/^name = "\(.*\)"/\1/p' fuzz/Cargo.toml)
if [[ $target != all ]]; then
    [[ " ${targets[*]} " == *" $target "* ]] || { echo "no target $target; there are: ${targets[*]}" >&2; exit 2; }
    targets=("$target")
fi

# Inputs that reach new code go to fuzz/corpus/, and those that fail to fuzz/artifacts/; git ignores both.
with_coverage() {
    local name
    for name in "${targets[@]}"; do
        echo "== $name"
        mkdir -p "fuzz/corpus/$name"
        cargo +nightly fuzz run "$name" "fuzz/corpus/$name" "fuzz/seeds/$name" -- \
            -max_total_time="$seconds" -max_len=4096 -print_final_stats=1
    done
}

# `--nocapture` shows the number of executions.
without_coverage() {
    [[ $target == all ]] || export RINGMAIN_FUZZ_TARGET=$target
    RINGMAIN_FUZZ_SECONDS=$seconds cargo test --release --locked --package ringmain --package ringmain-bench \
        --all-features --test fuzzed -- --nocapture
}

if cargo +nightly fuzz --version >/dev/null 2>&1; then
    with_coverage
else
    echo "no nightly compiler with cargo-fuzz (rustup toolchain install nightly; cargo install cargo-fuzz):" \
        "the mutations do not look at the coverage" >&2
    without_coverage
fi
