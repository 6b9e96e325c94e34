#!/usr/bin/env bash
# Builds the `ringmain` command and compares `auto` and every fixed backend on every workload, cold and warm.
# Measuring takes about two minutes. At the end the script prints a recommendation and the path of the report.
#
#   scripts/bench.sh [ARGUMENTS OF ringmain bench]
#
# The data is made in target/bench (512 MiB for each kind and cache state) and removed again; --scratch
# puts it elsewhere. The default is not /tmp, because that is often a tmpfs, which has no device.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
trap report_end EXIT

step build build_ringmain
mkdir -p -- "$target/bench"
step bench "$target/release/ringmain" bench --scratch "$target/bench" "$@"
