#!/usr/bin/env bash
# Compares the backends with fio on the same file, with the same block size, depth and cache state. The
# column "of fio" is the speed of each backend divided by that of fio's best engine.
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
# Cells are longer than by default, because fio takes a while to start.
step bench "$target/release/ringmain" bench --scratch "$target/bench" --with-fio \
    --workloads seq,rand --seconds 0.5 "$@"
