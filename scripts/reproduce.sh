#!/usr/bin/env bash
# Measures the numbers in the README and in docs/performance.md again: the default comparison, the comparisons
# with fio and with Python loaders, and the ratios of the micro-benchmarks. It takes about twenty minutes on a
# machine that should do nothing else. The whole output is also saved in ringmain-results/.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
trap report_end EXIT

results=$root/ringmain-results/reproduced-$(date -u +%Y-%m-%dT%H-%M-%SZ)
mkdir -p -- "$results"

# keep NAME COMMAND...: shows the output of a command and saves it.
keep() {
    "${@:2}" 2>&1 | tee -- "$results/$1.txt"
}

bench() {
    cargo bench --locked --package "$1" --features "$2" --bench "$3" -- --seconds "$4"
}

step "every workload" keep bench scripts/bench.sh --out "$results/bench"
step "markdown" "$target/release/ringmain" report "$results/bench/run.json" \
    --markdown "$results/bench.md"
step "compared with fio" keep fio scripts/vs-fio.sh --out "$results/fio"
step "compared with Python loaders" keep peers scripts/vs-peers.sh
step "overhead of the harness" keep overhead "$target/release/ringmain" overhead
step "backends" keep speed bench ringmain-backends direct,uring speed 1.5
step "views" keep views bench ringmain direct,uring views 0.8
step "shards" keep shards bench ringmain direct,uring shards 0.8
printf '\nthe results are in %s\n' "$results"
