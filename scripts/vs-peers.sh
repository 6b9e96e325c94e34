#!/usr/bin/env bash
# Ringmain beside what Python loaders use today, on the same file in the same run, interleaved. Prints
# medians and ratios. What cannot be installed is left out, and said.
#
#   scripts/vs-peers.sh [FOLDER [PART...]]
#
# FOLDER is where to make the data (1 GiB); default: the target folder. The parts, all by default:
#   views    `ringmain bench` beside np.memmap and exca's ContiguousMemmap, windows of 64 KiB
#   python   the Python package beside the same: windows of three sizes, and batches of them
set -euo pipefail
directory=${1:+$(realpath -- "$1")}
parts=${*:2}
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

wanted() {
    [[ -z $parts || " $parts " == *" $1 "* ]]
}

step set-up set_up
step build build_ringmain
step data make_data
if wanted views; then
    step views "$venv/bin/python" scripts/peers/views.py \
        "$target/release/ringmain" "$scratch/views.bin"
fi
if wanted python; then
    step "python: build" build_python "$venv" --release
    step python "$venv/bin/python" scripts/peers/python_views.py "$scratch/views.bin"
fi
