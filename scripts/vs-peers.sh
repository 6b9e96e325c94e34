#!/usr/bin/env bash
# Ringmain beside what Python loaders use today, on the same file in the same run, interleaved:
# np.memmap and exca's ContiguousMemmap read the windows of the `views` workload. Prints medians and
# ratios. What cannot be installed is left out, and said.
#
#   scripts/vs-peers.sh [FOLDER]     where to make the data (1 GiB); default: the target folder
set -euo pipefail
directory=${1:+$(realpath -- "$1")}
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
scratch=
trap 'report_end; rm -rf -- "$scratch"' EXIT

venv=$target/peers

set_up() {
    need_rust
    need_venv "$venv" numpy
    "$venv/bin/pip" --quiet install exca || printf 'exca cannot be installed: left out\n' >&2
}

make_data() {
    directory=${directory:-$target}
    scratch=$(mktemp -d -- "$directory/ringmain-peers.XXXXXX")
    "$target/release/ringmain" gen raw "$scratch/views.bin" --bytes 1GiB
}

step set-up set_up
step build build_ringmain
step data make_data
step views "$venv/bin/python" scripts/peers/views.py "$target/release/ringmain" "$scratch/views.bin"
