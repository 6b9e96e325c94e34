#!/usr/bin/env bash
# Looks for tests that sometimes fail: runs the test suite again and again, on an idle machine, on a busy
# one and on one with little free memory, and prints which tests failed and how often.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

usage() {
    cat <<'TEXT'
Usage: scripts/flakes.sh [--part native|python] [RUNS]

Runs the test suite RUNS times (20 by default) and prints which tests failed, how often, and under
which condition. It continues after a failure. Of every four runs
  two run side by side, so that every core is busy,
  one has the machine as it is,
  one has 2 GiB of free memory.

  --part native   only the programs that `cargo test` runs
  --part python   only the tests of the Python package

Examples:
  scripts/flakes.sh                   runs all tests 20 times
  scripts/flakes.sh --part native 4   runs the native tests under each condition

The logs of failed runs stay in target/flakes. The exit code is 1 if any test failed.
TEXT
}

free_bytes_wanted=$((2 << 30))
conditions=(busy busy idle scarce)

part=all runs=20
read_arguments() {
    while (($#)); do
        case $1 in
        -h | --help) usage && exit 0 ;;
        --part)
            [[ ${2:-} == native || ${2:-} == python ]] || die "--part must be native or python"
            part=$2
            shift
            ;;
        *[!0-9]* | '') die "unknown argument '$1'; see --help" ;;
        *) runs=$((10#$1)) ;;
        esac
        shift
    done
    ((runs > 0)) || die "RUNS must be at least 1"
}

# Each run tries other random cases. A case that failed is in the log; kept in the sources, it would fail in every
# later run too.
export PROPTEST_DISABLE_FAILURE_PERSISTENCE=1
# The same settings as in scripts/test.sh.
export RINGMAIN_PROFILE=off RUST_TEST_THREADS=$((2 * $(nproc)))
export RINGMAIN_REQUIRE_BACKENDS=${RINGMAIN_REQUIRE_BACKENDS-pread,mmap,direct,uring,tokio-uring}

logs=$target/flakes
results=$logs/results
python=$target/python

set_up() {
    need_rust
    want stress-ng=stress-ng
    want_all_features
    want_python
    want_test_programs
    install_wanted
    need_test_programs
    rm -rf -- "$logs"
    mkdir -p -- "$logs"
    : >"$results"
    [[ $part == python ]] || build_native
    [[ $part == native ]] || need_python_tests "$python"
}

# Builds the test programs and lists them in `$logs/programs`, each with the folder that it runs in.
build_native() {
    cargo test --locked --workspace --all-features --no-run --message-format=json 2>"$logs/build.log" |
        python3 -c '
import json, pathlib, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message.get("profile", {}).get("test"):
        print(message["executable"], pathlib.Path(message["manifest_path"]).parent, sep="\t")
' >"$logs/programs" || die "building the tests failed; see $logs/build.log"
}

# The means that keep the machine in a condition: a process, or a control group for the tests. Both are
# removed when the condition ends.
load_pid='' group=''
# The runs that are under way side by side, and whether there are any.
pair=() is_pair=false

begin_condition() {
    case $1 in
    # A run without another one beside it.
    busy) $is_pair || keep_cores_busy ;;
    scarce) make_group || occupy_memory ;;
    esac
}

end_condition() {
    if [[ -n $load_pid ]]; then
        kill -- "$load_pid" 2>/dev/null || true
        wait "$load_pid" 2>/dev/null || true
        load_pid=''
    fi
    [[ -z $group ]] || rmdir -- "$group" || true
    group=''
}

# run_pair RUN: this run and the next one side by side. Each has its own process group, so that it can be ended
# together with its test programs.
run_pair() {
    local pid
    is_pair=true
    set -m
    run_once "$1" &
    pair+=("$!")
    run_once $(($1 + 1)) &
    pair+=("$!")
    set +m
    for pid in "${pair[@]}"; do
        wait "$pid" || die "a run ended before its last test; see $logs"
    done
    pair=() is_pair=false
}

keep_cores_busy() {
    stress-ng --cpu "$(nproc)" --quiet &
    load_pid=$!
}

# Makes a control group of 2 GiB, including the page cache, which does not affect other programs. Only
# root may make one.
make_group() {
    local parent limit
    for parent in /sys/fs/cgroup/memory /sys/fs/cgroup; do
        mkdir -- "$parent/ringmain-flakes.$$" 2>/dev/null || continue
        group=$parent/ringmain-flakes.$$
        for limit in "$group"/memory.limit_in_bytes "$group"/memory.max; do
            [[ -w $limit ]] && echo "$free_bytes_wanted" 2>/dev/null >"$limit" && return
        done
        rmdir -- "$group"
        group=''
    done
    return 1
}

# Without a control group, a process occupies all memory but 2 GiB. If memory runs out, the kernel ends
# that process first.
occupy_memory() {
    local occupied_bytes
    occupied_bytes=$(($(available_bytes) - free_bytes_wanted))
    ((occupied_bytes > 0)) || return 0
    stress-ng --vm 1 --vm-bytes "$occupied_bytes" --vm-keep --vm-populate --vm-hang 0 --quiet &
    load_pid=$!
    wait_until_occupied $((free_bytes_wanted + occupied_bytes / 20))
}

wait_until_occupied() {
    local seconds
    for ((seconds = 0; seconds < 120; seconds++)); do
        (($(available_bytes) > $1)) || return 0
        sleep 1
    done
    die "cannot occupy the memory: more than $(($1 >> 20)) MiB are still free after two minutes"
}

available_bytes() {
    awk '/^MemAvailable:/ { printf "%.0f", $2 * 1024 }' /proc/meminfo
}

# run_native RUN CONDITION, run_python RUN CONDITION: run all tests. Each program adds a line to `$results`:
# run, condition, seconds and passed tests; and for each failed test a line with its name and the log.
run_native() {
    local program folder
    while IFS=$'\t' read -r program folder; do
        run_program "$1" "$2" "$(program_name "$program")" "$folder" "$program"
    done <"$logs/programs"
}

run_python() {
    run_program "$1" "$2" pytest "$root" "$python/bin/python" -m pytest --quiet -rfE \
        -p no:cacheprovider python/tests
}

program_name() {
    local name=${1##*/}
    printf '%s' "${name%-*}"
}

run_program() {
    local run=$1 condition=$2 name=$3 folder=$4 started=$SECONDS status=0
    local log=$logs/$run-$name.log
    (
        { [[ -z $group ]] || echo "$BASHPID" >"$group/cgroup.procs"; } &&
            cd -- "$folder" && exec "${@:5}"
    ) >"$log" 2>&1 </dev/null || status=$?
    record "$run" "$condition" "$name" $((SECONDS - started)) "$status" "$log"
    ((status != 0)) || rm -- "$log"
}

# Records the failed tests by name. A program that failed without naming a test is recorded with its exit
# code.
record() {
    local run=$1 condition=$2 name=$3 seconds=$4 status=$5 log=$6 passed failed
    # A program that crashed does not print this line.
    passed=$({ grep -aoE '[0-9]+ passed' -- "$log" || true; } | awk '{ sum += $1 } END { print sum + 0 }')
    failed=$(sed -nE 's/^test (.*) \.\.\. FAILED$/\1/p; s/^(FAILED|ERROR) ([^ ]+).*/\2/p' -- "$log" | sort -u)
    if ((status != 0)) && [[ -z $failed ]]; then
        failed="(exit code $status)"
    fi
    printf '%s\t%s\t%s\t%s\t\n' "$run" "$condition" "$seconds" "$passed" >>"$results"
    [[ -n $failed ]] || return 0
    while IFS= read -r test; do
        printf '%s\t%s\t0\t0\t%s: %s\t%s\n' "$run" "$condition" "$name" "$test" "$log" >>"$results"
    done <<<"$failed"
}

condition_of() {
    printf '%s' "${conditions[($1 - 1) % ${#conditions[@]}]}"
}

is_busy() {
    [[ $(condition_of "$1") == busy ]]
}

run_once() {
    local run=$1 condition
    condition=$(condition_of "$run")
    begin_condition "$condition"
    [[ $part == python ]] || run_native "$run" "$condition"
    [[ $part == native ]] || run_python "$run" "$condition"
    end_condition
    awk -F'\t' -v run="$run" '
        $1 == run { seconds += $3; passed += $4; failed += $5 != ""; condition = $2 }
        END { printf "%3d  %-9s  %7d  %6d  %6d\n", run, condition, seconds, passed, failed }' "$results"
}

print_failures() {
    printf '\ntests that failed, how often, under which condition, and the first log:\n'
    awk -F'\t' '
        $5 != "" { count[$5]++; at[$5] = at[$5] " " $2; if (!($5 in log_of)) log_of[$5] = $6 }
        END { for (test in count) printf "%3d  %s\n    %s\n     %s\n", count[test], test, at[test], log_of[test] }
    ' "$results"
}

read_arguments "$@"
trap 'end_condition; kill -- "${pair[@]/#/-}" 2>/dev/null || true' EXIT
trap 'exit 130' INT TERM

step set-up set_up
printf '\nrun  condition  seconds  passed  failed\n'
for ((run = 1; run <= runs; run++)); do
    if is_busy "$run" && is_busy $((run + 1)) && ((run < runs)); then
        run_pair "$run"
        run=$((run + 1))
    else
        run_once "$run"
    fi
done
if awk -F'\t' '$5 != "" { found = 1 } END { exit !found }' "$results"; then
    print_failures
    exit 1
fi
printf '\nno test failed in %d runs\n' "$runs"
