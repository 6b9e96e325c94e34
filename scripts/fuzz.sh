#!/usr/bin/env bash
# Runs the fuzz targets for longer than the tests do.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

usage() {
    cat <<'TEXT'
Usage: scripts/fuzz.sh [--executions COUNT] [TARGET] [SECONDS]

Runs one fuzz target, or all of them one after the other, for SECONDS each (60 by default). fuzz/README.md lists the
targets. With a nightly compiler and cargo-fuzz the inputs are guided by coverage. Without them the script says what
is missing, and the targets run with the compiler at hand on mutations that do not look at the coverage.

  --executions COUNT   runs each target COUNT times, however long that takes (needs cargo-fuzz)

Examples:
  scripts/fuzz.sh                                     every target for a minute
  scripts/fuzz.sh npy_header 600                      one target for ten minutes
  scripts/fuzz.sh --executions 10000000 npy_header    one target ten million times

Inputs that reach new code go to fuzz/corpus/, and inputs that fail to fuzz/artifacts/; git ignores both. The exit
code is not 0 if an input failed.
TEXT
}

# The package of the targets lists each as a program.
mapfile -t targets < <(sed -n '/^\[\[bin\]\]/,/^$/ s/^name = "\(.*\)"/\1/p' fuzz/Cargo.toml)
chosen=all seconds=60 executions=

read_arguments() {
    while (($#)); do
        case $1 in
        -h | --help) usage && exit 0 ;;
        --executions)
            executions=$(positive "${2:-}")
            shift
            ;;
        -*) die "unknown option '$1'; see --help" ;;
        *[!0-9]*) chosen=$1 ;;
        *) seconds=$(positive "$1") ;;
        esac
        shift
    done
    [[ $chosen != all ]] || return 0
    [[ " ${targets[*]} " == *" $chosen "* ]] || die "there is no target '$chosen'; there are: ${targets[*]}"
    targets=("$chosen")
}

positive() {
    [[ $1 =~ ^[0-9]+$ && $((10#$1)) -gt 0 ]] || die "'$1' is not a whole number above 0; see --help"
    echo $((10#$1))
}

with_coverage() {
    local name limit=-max_total_time=$seconds
    [[ ! $executions ]] || limit=-runs=$executions
    for name in "${targets[@]}"; do
        echo "== $name"
        mkdir -p "fuzz/corpus/$name"
        cargo +nightly fuzz run "$name" "fuzz/corpus/$name" "fuzz/seeds/$name" -- \
            "$limit" -max_len=4096 -print_final_stats=1
    done
}

# `--nocapture` shows the number of executions.
without_coverage() {
    need_all_features
    [[ $chosen == all ]] || export RINGMAIN_FUZZ_TARGET=$chosen
    RINGMAIN_FUZZ_SECONDS=$seconds cargo test --release --locked --package ringmain --package ringmain-bench \
        --package ringmain-object-store --all-features --test fuzzed -- --nocapture
}

read_arguments "$@"
installs='rustup toolchain install nightly; cargo install cargo-fuzz'
if cargo +nightly fuzz --version >/dev/null 2>&1; then
    with_coverage
elif [[ $executions ]]; then
    die "--executions needs a nightly compiler and cargo-fuzz ($installs)"
else
    echo "no nightly compiler with cargo-fuzz ($installs): the mutations do not look at the coverage" >&2
    without_coverage
fi
