#!/usr/bin/env bash
# Ringmain beside what Python loaders use today, on the same file in the same run, interleaved. Prints
# medians and ratios. What cannot be installed is left out, and said.
#
#   views   np.memmap and exca's ContiguousMemmap read the windows of the `views` workload
#   beton   ffcv reads the batches of the `samples` workload (installs torch: several GB)
#
#   scripts/vs-peers.sh [FOLDER [PART...]]
#
# FOLDER is where to make the data (1 GiB for each part); default: the target folder, and all parts.
set -euo pipefail
directory=${1:+$(realpath -- "$1")}
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
scratch=
trap 'report_end; rm -rf -- "$scratch"' EXIT

venv=$target/peers
parts=("${@:2}")
((${#parts[@]})) || parts=(views beton)
for part in "${parts[@]}"; do
    [[ $part == views || $part == beton ]] || die "there is no part $part; there are views and beton"
done

set_up() {
    need_rust
    directory=${directory:-$target}
    scratch=$(mktemp -d -- "$directory/ringmain-peers.XXXXXX")
}

views() {
    need_venv "$venv" numpy
    "$venv/bin/pip" --quiet install exca || printf 'exca cannot be installed: left out\n' >&2
    "$target/release/ringmain" gen raw "$scratch/views.bin" --bytes 1GiB
    "$venv/bin/python" scripts/peers/views.py "$target/release/ringmain" "$scratch/views.bin"
    rm -- "$scratch/views.bin"
}

beton() {
    # In a shell of its own: what fails in there must not end the script.
    if ! (need_ffcv); then
        printf 'ffcv cannot be installed: left out\n' >&2
        return
    fi
    need_ffcv
    "$target/release/ringmain" gen beton "$scratch/samples.beton" --samples 22000 --sample-bytes 48KiB
    "$ffcv_venv/bin/python" scripts/peers/beton.py \
        "$target/release/ringmain" "$scratch/samples.beton"
    rm -- "$scratch/samples.beton"
}

step set-up set_up
step build build_ringmain
for part in "${parts[@]}"; do
    step "$part" "$part"
done
