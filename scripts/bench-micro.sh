#!/usr/bin/env bash
# Measures hot paths that need no device, in nanoseconds: cached reads, plans of device reads, the cache of open files,
# buffers, views, conversions, orders, headers, and the instruments of the benchmark.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

usage() {
    cat <<'TEXT'
Usage: scripts/bench-micro.sh [--quick] [--save NAME | --against NAME] [FILTER]

Runs the benchmarks of criterion (`hot_paths` in backends/, engine/ and bench-harness/), on a machine that should do
nothing else. There are about 60, and each takes nine seconds.

  --quick         about one second for each: shows large differences only
  --save NAME     keep the results as a baseline of this name, in the target folder
  --against NAME  compare with this baseline
  FILTER          only benchmarks whose name matches this regular expression

Examples:
  scripts/bench-micro.sh --save before          on the tree before a change
  scripts/bench-micro.sh --against before       after it
  scripts/bench-micro.sh "a window"
TEXT
}

# has_baseline NAME: tells whether any benchmark has a baseline of this name.
has_baseline() {
    compgen -G "${CRITERION_HOME:-$target/criterion}/*/*/$1" >/dev/null
}

# `auto` must choose by what the machine can do, not by a profile that the user has saved.
export RINGMAIN_PROFILE=off

baseline=() speed=()
while (($#)); do
    case $1 in
    -h | --help) usage && exit 0 ;;
    --quick) speed=(--warm-up-time 0.2 --measurement-time 0.5 --sample-size 20) ;;
    --save | --against)
        [[ ${2:-} =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ ]] ||
            die "$1 needs a name of letters, digits, '.', '_' and '-' that begins with a letter or a digit"
        # Folders of criterion itself, beside those of the baselines.
        [[ ! $2 =~ ^(new|base|change|report)$ ]] || die "criterion uses the name '$2' itself; choose another one"
        ((${#baseline[@]} == 0)) || die "name only one of --save and --against"
        [[ $1 == --save ]] || has_baseline "$2" || die "there is no baseline '$2'; --save '$2' makes one"
        # --baseline would fail for a benchmark that the baseline does not have.
        [[ $1 == --save ]] && baseline=(--save-baseline "$2") || baseline=(--baseline-lenient "$2")
        shift
        ;;
    -*) die "unknown option '$1'; see --help" ;;
    *) break ;;
    esac
    shift
done
(($# <= 1)) || die "name only one filter, after the options; see --help"
trap report_end EXIT

step set-up need_all_features
step benchmarks cargo bench --locked --package ringmain-backends --package ringmain --package ringmain-bench \
    --all-features --bench hot_paths -- "${speed[@]}" "${baseline[@]}" "$@"
