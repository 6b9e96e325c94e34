#!/usr/bin/env bash
# Runs the locks, queues and caches under chosen schedules, to find deadlocks and races.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

usage() {
    cat <<'TEXT'
Usage: scripts/schedules.sh [--seed SEED] [--test NAME] [SCHEDULES]
       scripts/schedules.sh --test NAME --replay SCHEDULE

Runs each scenario under SCHEDULES random schedules, and under as many of the PCT scheduler (50000 by default,
which takes some minutes). A schedule that fails is printed.

  --seed SEED         tries the same schedules as another run with this seed
  --test NAME         runs only the scenarios whose name contains NAME
  --replay SCHEDULE   runs one schedule, as it was printed

Examples:
  scripts/schedules.sh                            a long exploration, with a new seed
  scripts/schedules.sh --test pool:: 1000000      only the pool, twenty times as long
TEXT
}

seed=$((RANDOM << 15 | RANDOM)) name=schedules:: schedules=50000
read_arguments() {
    while (($#)); do
        case $1 in
        -h | --help) usage && exit 0 ;;
        --seed)
            seed=$(number "${2:-}")
            shift
            ;;
        --test) name=${2:-} && shift ;;
        --replay) export RINGMAIN_SCHEDULE=${2:-} && shift ;;
        *) schedules=$(number "$1") ;;
        esac
        shift
    done
    ((schedules > 1)) || die "SCHEDULES must be at least 2"
}

number() {
    [[ $1 =~ ^[0-9]+$ ]] || die "'$1' is not a number; see --help"
    echo $((10#$1))
}

# The files are kept apart from those of the usual builds, because the flag changes every crate. Many
# schedules are worth an optimised build; the checks of debug builds stay. For a few, compiling takes most of the
# time, and the packages that the tests of this system optimise are not optimised here.
explore() {
    local package settings=()
    if ((schedules >= 10000)); then
        export CARGO_PROFILE_DEV_OPT_LEVEL=2 CARGO_PROFILE_DEV_DEBUG_ASSERTIONS=true
    else
        for package in ringmain-backends ringmain-fault-fs fuser; do
            settings+=(--config "profile.dev.package.$package.opt-level=0")
        done
    fi
    RUSTFLAGS="${RUSTFLAGS:-} --cfg ringmain_shuttle" RUST_BACKTRACE=${RUST_BACKTRACE:-0} \
        RINGMAIN_SCHEDULES=$schedules RINGMAIN_SCHEDULES_SEED=$seed \
        cargo test "${settings[@]}" --locked --quiet --package ringmain-backends --package ringmain --features ringmain/safetensors,ringmain/async \
        --lib --target-dir "$target/schedules" -- "$name"
}

read_arguments "$@"
need_rust
if [[ ! ${RINGMAIN_SCHEDULE:-} ]]; then
    printf 'each scenario: %d random schedules and %d of PCT, seed %d\n' "$schedules" "$schedules" "$seed"
fi
explore
