#!/usr/bin/env bash
# Carries out the experiments of docs/experiments.md and writes their results to ringmain-results/.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

usage() {
    cat <<'TEXT'
Usage: scripts/experiments.sh [--prepare | --list] [--tiny] [--out FOLDER] [NAME...]

Carries out the experiments of docs/experiments.md, all of them or those that are named, and prints where the
results are: one table for each in NAME.md. All together take about eight minutes on a machine that should do
nothing else. Building takes longer, so build first.

  --prepare     only builds the programs and installs the packages that the experiments need
  --list        prints the names of the experiments
  --tiny        little data and one repetition, to try the script; the figures mean nothing
  --out FOLDER  where to put the results (default: ringmain-results/experiments-TIME)

Examples:
  scripts/experiments.sh --prepare && scripts/experiments.sh
  scripts/experiments.sh what-do-page-faults-cost what-do-huge-pages-gain

The data, up to 3 GiB at a time, is made in target/experiments and removed again.
TEXT
}

plans=bench-harness/plans
with_python=(does-exca-accumulate-memory what-does-prefetching-gain what-does-a-soft-fault-cost)
with_strace=(what-does-recording-cost)
with_cargo=(what-does-direct-writing-gain does-a-steady-loop-allocate)

# Prints the names of all experiments.
list() {
    local plan
    for plan in "$plans"/*.toml; do
        basename -- "$plan" .toml
    done
    printf '%s\n' "${with_python[@]}" "${with_strace[@]}" "${with_cargo[@]}"
}

mode=run is_tiny='' results='' names=()
read_arguments() {
    while (($#)); do
        case $1 in
        -h | --help) usage && exit 0 ;;
        --list) list && exit 0 ;;
        --prepare) mode=prepare ;;
        --tiny) is_tiny=yes ;;
        --out)
            [[ ${2:-} ]] || die "--out needs a folder"
            results=$(realpath -m -- "$2")
            shift
            ;;
        -*) die "unknown option $1; see --help" ;;
        *)
            # Not `grep -q`: it would end before `list` does, which then fails.
            list | grep -xF -- "$1" >/dev/null || die "there is no experiment '$1'; see --list"
            names+=("$1")
            ;;
        esac
        shift
    done
    ((${#names[@]})) || mapfile -t names < <(list)
}

# is_one_of NAME LIST...: tells whether the name is in the list.
is_one_of() {
    [[ " ${*:2} " == *" $1 "* ]]
}

venv=$target/peers
scratch=
# The Python scripts share a module. Its compiled form must not appear among the sources.
export PYTHONDONTWRITEBYTECODE=1
# `auto` must choose by what the machine can do, not by a profile that the user has saved.
export RINGMAIN_PROFILE=off

# Builds what the chosen experiments need.
prepare() {
    local name needs_python='' needs_writer='' needs_allocations=''
    for name in "${names[@]}"; do
        ! is_one_of "$name" "${with_python[@]}" || needs_python=yes
        ! is_one_of "$name" "${with_strace[@]}" || want strace=strace
        [[ $name != what-does-direct-writing-gain ]] || needs_writer=yes
        [[ $name != does-a-steady-loop-allocate ]] || needs_allocations=yes
    done
    want_python
    want fio=fio
    want_all_features
    install_wanted
    build_ringmain
    if [[ $needs_python ]]; then
        PIP_CONSTRAINT=$root/scripts/peers/requirements.lock need_venv "$venv" numpy exca maturin
        is_current "$venv" || build_python "$venv" --release
    fi
    [[ ! $needs_writer ]] || bench_writing --no-run
    [[ ! $needs_allocations ]] || test_allocations --no-run
}

# is_current VENV: tells whether the installed package was built after the last change of its sources.
is_current() {
    local module sources=(Cargo.toml Cargo.lock {python,engine,backends,object-store,bench-harness}/{Cargo.toml,src})
    module=$(find "$1"/lib -path '*/ringmain/*.so' -print -quit)
    [[ $module && -z $(find "${sources[@]}" python/ringmain -newer "$module" -print -quit) ]]
}

# bench_writing [--no-run] [-- OPTIONS]: the writing part of the benchmark of datasets.
bench_writing() {
    cargo bench --locked --package ringmain --features beton --bench beton "$@"
}

# test_allocations [--no-run]: the tests that count allocations.
test_allocations() {
    cargo test --locked --package ringmain-backends --all-features --test allocations "$@"
    cargo test --locked --package ringmain --all-features --test allocations --test shard_allocations \
        --test beton_allocations "$@"
}

# measure NAME: carries out one experiment and writes its table.
measure() {
    if [[ -f $plans/$1.toml ]]; then
        measure_plan "$1"
    else
        "${1//-/_}" | tee -- "$results/$1.md"
    fi
}

# measure_plan NAME: runs a plan. Invalid cells are counted in the table and do not end the script.
measure_plan() {
    local status=0 tiny=()
    [[ ! $is_tiny ]] || tiny=(--bytes 32M --repetitions 1 --seconds 0.05)
    "$target/release/ringmain" bench --plan "$plans/$1.toml" --scratch "$scratch" --out "$results/$1" \
        "${tiny[@]}" >"$results/$1.txt" || status=$?
    ((status <= 1)) || die "$1: ringmain bench failed with exit code $status"
    "$target/release/ringmain" report "$results/$1/run.json" --markdown "$results/$1/tables.md" >/dev/null
    {
        python3 scripts/experiment_figures.py "$1" "$results/$1/run.json"
        printf '\n'
        cat -- "$results/$1/tables.md"
    } >"$results/$1.md"
    sed '/^$/q' "$results/$1.md"
}

does_exca_accumulate_memory() {
    local tiny=()
    [[ ! $is_tiny ]] || tiny=(--arrays 64 --rounds 1)
    mkdir -- "$scratch/exca"
    "$venv/bin/python" scripts/peers/accumulation.py "$scratch/exca" "${tiny[@]}"
    rm -r -- "$scratch/exca"
}

what_does_prefetching_gain() {
    local bytes=1GiB tiny=()
    [[ ! $is_tiny ]] || bytes=16MiB tiny=(--rounds 1 --seconds 0.05)
    "$target/release/ringmain" gen raw "$scratch/samples.bin" --bytes "$bytes" >&2
    "$venv/bin/python" scripts/peers/prefetching.py "$scratch/samples.bin" "${tiny[@]}"
    rm -- "$scratch/samples.bin"
}

what_does_a_soft_fault_cost() {
    local bytes=64MiB rounds=7
    [[ ! $is_tiny ]] || bytes=4MiB rounds=1
    "$target/release/ringmain" gen raw "$scratch/pages.bin" --bytes "$bytes" >&2
    "$venv/bin/python" scripts/peers/soft_faults.py "$scratch/pages.bin" "$rounds"
    rm -- "$scratch/pages.bin"
}

what_does_recording_cost() {
    local bytes=64MiB rounds=7
    [[ ! $is_tiny ]] || bytes=4MiB rounds=1
    "$target/release/ringmain" gen raw "$scratch/recorded.bin" --bytes "$bytes" >&2
    python3 scripts/peers/recording_cost.py "$target/release/ringmain" "$scratch/recorded.bin" "$rounds"
    rm -- "$scratch/recorded.bin"
}

what_does_direct_writing_gain() {
    local rounds=5
    [[ ! $is_tiny ]] || rounds=1
    bench_writing -- --dir "$scratch" --rounds "$rounds" --only 'writing' | grep '^|'
}

does_a_steady_loop_allocate() {
    test_allocations 2>&1 | grep -E '^test |^test result|Running'
}

read_arguments "$@"
trap 'report_end; rm -rf -- "$scratch"' EXIT
step prepare prepare
[[ $mode == run ]] || exit 0
results=${results:-$root/ringmain-results/experiments-$(date -u +%Y-%m-%dT%H-%M-%SZ)}
mkdir -p -- "$results" "$target/experiments"
scratch=$(mktemp -d -- "$target/experiments/XXXXXX")
for name in "${names[@]}"; do
    step "$name" measure "$name"
done
printf '\nthe results are in %s:\n' "$results"
printf '  %s.md\n' "${names[@]}"
