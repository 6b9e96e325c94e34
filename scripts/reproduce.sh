#!/usr/bin/env bash
# Measures the numbers of the README and of docs/performance.md again, and compares them with the published ones.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

usage() {
    cat <<'TEXT'
Usage: scripts/reproduce.sh [--quick] [--only PART]... [--rounds N] [--out FOLDER]

Measures the published figures (docs/results/published.toml) again and prints a table: each figure as published,
its range, its value now, and whether that is inside the range. Takes about two hours on a machine that should do
nothing else, and needs 10 GB of disk space.

  --quick       three rounds of each comparison, about fifteen minutes. Parts that need torch or long builds are
                left out: weights, loader, ffcv, ranks and datafusion
  --only PART   only this part; can be given several times
  --rounds N    rounds of each comparison (default: as published)
  --out FOLDER  where to put the outputs (default: ringmain-results/reproduced-TIME)

Parts:
  auto          `auto` and the best fixed backend, every workload
  workloads     the rates of all backends, every workload
  fio           the backends and fio, by `ringmain bench --with-fio`
  speed views shards beton weights-rust
                the comparisons of `cargo bench`, some of them with fio
  memory        how much a process grows that holds thousands of views
  overhead      what measuring costs, the median of ten runs
  peers python  np.memmap and exca
  loader        a torch DataLoader
  weights       safetensors and fastsafetensors
  ffcv          ffcv, which is built from source
  ranks         jobs of torchrun, and the workers of one process
  remote        objects of a server on this machine, and a plain loop of GET requests
  disk-cache    shards from the disk cache, and as local files
  local-store   RingmainStore and LocalFileSystem
  datafusion    scans of parquet files through both

Examples:
  scripts/reproduce.sh --quick
  scripts/reproduce.sh --only speed --only memory
  scripts/reproduce.sh --only python --rounds 1

The exit code says whether everything was carried out, not whether the figures are inside their ranges.
TEXT
}

all=(auto workloads fio speed views shards beton weights-rust memory overhead peers python loader weights ffcv
    ranks remote disk-cache local-store datafusion)
quick=(auto workloads fio speed views shards beton weights-rust memory overhead peers python
    remote disk-cache local-store)
parts=() is_quick='' rounds='' results=''

read_arguments() {
    while (($#)); do
        case $1 in
        -h | --help) usage && exit 0 ;;
        --quick) is_quick=yes ;;
        --only)
            [[ " ${all[*]} " == *" ${2:-} "* && ${2:-} ]] ||
                die "--only needs a part, not '${2:-}'; the parts are ${all[*]}"
            parts+=("$2")
            shift
            ;;
        --rounds)
            [[ ${2:-} =~ ^[1-9][0-9]{0,2}$ ]] || die "--rounds needs a number from 1 to 999"
            rounds=$2
            shift
            ;;
        --out)
            [[ ${2:-} ]] || die "--out needs a folder"
            results=$(realpath -m -- "$2")
            shift
            ;;
        *) die "unknown argument '$1'; see --help" ;;
        esac
        shift
    done
    [[ ! $is_quick || $rounds ]] || rounds=3
    if ((${#parts[@]} == 0)); then
        parts=("${all[@]}")
        [[ ! $is_quick ]] || parts=("${quick[@]}")
    fi
}

# `auto` must choose by what the machine can do, not by a profile that the user has saved.
export RINGMAIN_PROFILE=off

set_up() {
    want_python
    want fio=fio
    want_rust
    want_all_features
    install_wanted
    python3 -c 'import tomllib' 2>/dev/null || die "Python 3.11 or later is needed for the table"
    build_ringmain
    mkdir -p -- "$results" "$target/bench"
}

# rounds_or PUBLISHED: prints the number of rounds.
rounds_or() {
    printf '%s\n' "${rounds:-$1}"
}

# seconds_or PUBLISHED: prints the seconds of a measurement, which are fewer in a quick run.
seconds_or() {
    [[ ! $is_quick ]] && printf '%s\n' "$1" || printf '0.4\n'
}

# bench PACKAGE FEATURES NAME ROUNDS SECONDS [OPTION...]: runs the comparisons of a benchmark.
bench() {
    cargo bench --locked --package "$1" --features "$2" --bench "$3" -- --dir "$target/bench" \
        --rounds "$(rounds_or "$4")" --seconds "$(seconds_or "$5")" "${@:6}"
}

# harness NAME ARGUMENTS...: runs `ringmain bench` and prints the published rates and ratios. Some cells may be
# invalid (exit code 1).
harness() {
    local status=0
    "$target/release/ringmain" bench --scratch "$target/bench" --out "$results/$1" "${@:2}" || status=$?
    ((status <= 1)) || return "$status"
    python3 scripts/published.py ratios "$results/$1/run.json"
}

# vs_peers PART [OPTION...]: compares with Python packages.
vs_peers() {
    scripts/vs-peers.sh --part "$1" "${@:2}" ${rounds:+--rounds "$rounds"} "$target/bench"
}

overhead_ten_times() {
    local _
    for _ in {1..10}; do
        "$target/release/ringmain" overhead --scratch "$target/bench"
    done
}

# The figures are made from the output of these commands. `commands` in docs/results/published.toml names them too.
measure() {
    case $1 in
    auto)
        harness auto --workloads seq,rand,views,shards,mixed --repetitions "$(rounds_or 7)" \
            --seconds "$(seconds_or 0.3)" --backends auto,pread,mmap+release,direct,uring,uncached
        ;;
    workloads) harness workloads --workloads seq,rand,views,shards,mixed --repetitions "$(rounds_or 5)" ;;
    fio) harness fio --with-fio --workloads seq,rand --repetitions "$(rounds_or 5)" --seconds 0.5 ;;
    speed) bench ringmain-backends direct,uring speed 7 1.5 ;;
    views) bench ringmain direct,uring views 7 0.8 ;;
    shards) bench ringmain direct,uring shards 7 0.7 ;;
    beton) bench ringmain direct,uring,beton beton 5 1 ;;
    weights-rust) bench ringmain direct,uring,safetensors weights 5 1 ;;
    memory) cargo test --locked --package ringmain --all-features --test memory_gate -- --nocapture ;;
    overhead) overhead_ten_times ;;
    peers) vs_peers views ;;
    python | loader) vs_peers "$1" ;;
    weights) vs_peers weights --model-bytes 2GB ;;
    ffcv) vs_peers beton ;;
    ranks | datafusion) vs_peers "$1" ;;
    remote) bench ringmain-object-store default remote 20 1 ;;
    disk-cache) bench ringmain-object-store default disk_cache 5 0.7 --only "second epoch" ;;
    local-store) bench ringmain-object-store default local_store 7 0.5 ;;
    esac
}

# keep PART: measures a part, shows its output and saves it.
keep() {
    measure "$1" 2>&1 | tee -- "$results/$1.txt"
}

# Prints what the published figures were measured with, and what there is here.
surroundings() {
    grep -E '^(host|kernel|rust|fio) = ' docs/results/published.toml | head -4
    printf 'here: %s, %s, fio %s, %s processors, commit %s\n' "$(uname -sr)" "$(rustc --version)" \
        "$(fio --version 2>/dev/null || echo 'is not installed')" "$(nproc)" \
        "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
    [[ ! -x $target/peers/bin/python ]] || other_versions
}

# Prints the Python packages whose versions differ from the lock file.
other_versions() {
    local differ
    differ=$("$target/peers/bin/python" -m pip --disable-pip-version-check freeze |
        tr '[:upper:]_' '[:lower:]-' | grep '==' | grep -vxFf scripts/peers/requirements.lock || true)
    [[ ! $differ ]] || printf 'packages that are not those of scripts/peers/requirements.lock: %s\n' "${differ//$'\n'/ }"
}

compare() {
    {
        surroundings
        printf '\n'
        python3 scripts/published.py table "$results" "${parts[@]}"
    } | tee -- "$results/table.md"
}

read_arguments "$@"
results=${results:-$root/ringmain-results/reproduced-$(date -u +%Y-%m-%dT%H-%M-%SZ)}
trap report_end EXIT
step set-up set_up
for part in "${parts[@]}"; do
    step "$part" keep "$part"
done
step "published and now" compare
printf '\nthe outputs and the table are in %s\n' "$results"
