#!/usr/bin/env bash
# The numbers of the README and of docs/performance.md, from scratch: the default comparison, fio
# beside, the peers, and the ratios of the micro-benchmarks. Some twenty minutes on a machine that
# should have nothing else to do. Everything printed is also kept in ringmain-results/.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
trap report_end EXIT

results=$root/ringmain-results/reproduced-$(date -u +%Y-%m-%dT%H-%M-%SZ)
mkdir -p -- "$results"

# keep NAME COMMAND...: shows what a command prints and keeps it.
keep() {
    "${@:2}" 2>&1 | tee -- "$results/$1.txt"
}

bench() {
    cargo bench --locked --package "$1" --features "$2" --bench "$3" -- --seconds "$4"
}

step "every workload" keep bench scripts/bench.sh --out "$results/bench"
step "markdown" "$target/release/ringmain" report "$results/bench/run.json" \
    --markdown "$results/bench.md"
step "beside fio" keep fio scripts/vs-fio.sh --out "$results/fio"
step "beside Python's loaders" keep peers scripts/vs-peers.sh
step "overhead of the harness" keep overhead "$target/release/ringmain" overhead
step "backends" keep speed bench ringmain-backends direct,uring speed 1.5
step "views" keep views bench ringmain direct,uring views 0.8
step "shards" keep shards bench ringmain direct,uring shards 0.8
printf '\neverything is in %s\n' "$results"
