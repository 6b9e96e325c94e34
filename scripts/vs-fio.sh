#!/usr/bin/env bash
# The backends beside fio on the same file, with the same block size, depth and cache state. The
# column "of fio" is each backend's share of what fio reaches with the best of its engines.
#
#   scripts/vs-fio.sh [ARGUMENTS OF ringmain bench]
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
trap report_end EXIT

set_up() {
    need_rust
    install_missing fio=fio
}

step set-up set_up
step build build_ringmain
mkdir -p -- "$target/bench"
# Longer cells than by default: fio itself takes a while to get going.
step bench "$target/release/ringmain" bench --scratch "$target/bench" --with-fio \
    --workloads seq,rand --seconds 0.5 "$@"
