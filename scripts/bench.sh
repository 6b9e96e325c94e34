#!/usr/bin/env bash
# Builds the `ringmain` command and compares `auto` and every fixed backend on every workload, cold and warm: about
# two minutes of measuring. Ends with a recommendation and says where the report is.
#
#   scripts/bench.sh [ARGUMENTS OF ringmain bench]
#
# Data is made in target/bench (512 MiB for each kind and cache state) and removed again; --scratch
# puts it elsewhere. Not in /tmp by default: that is often tmpfs, where there is no device.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
trap report_end EXIT

step build build_ringmain
mkdir -p -- "$target/bench"
step bench "$target/release/ringmain" bench --scratch "$target/bench" "$@"
