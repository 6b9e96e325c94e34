#!/usr/bin/env bash
# Checks that ffcv reads the datasets that Ringmain writes, and that Ringmain reads those that ffcv writes.
#
# The script installs ffcv in its own environment (with torch: several GB). It makes files with
# `ringmain gen beton`, with every kind of field, alignment and number of workers, and compares each sample
# that ffcv's Reader and Loader return with the values that follow from the seed. Then ffcv makes a file,
# Ringmain reads it and writes it again, and ffcv must read the same samples from both.
#
#   scripts/check-ffcv.sh [FOLDER]   where to make the files (some 200 MB); default: the target folder
#   scripts/check-ffcv.sh --help
set -euo pipefail
if [[ ${1:-} == --help || ${1:-} == -h ]]; then
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
    exit
fi
directory=${1:+$(realpath -- "$1")}
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
scratch=
trap 'report_end; rm -rf -- "$scratch"' EXIT

samples=500 sample_bytes=20000

set_up() {
    need_ffcv
    directory=${directory:-$target}
    scratch=$(mktemp -d -- "$directory/ringmain-ffcv.XXXXXX")
}

build() {
    build_ringmain
    cargo build --locked --release --package ringmain --features beton --example beton_rewrite
}

# The time limit is for ffcv's writer, which waits forever if one of its workers dies.
check() {
    timeout 600 "$ffcv_venv/bin/python" scripts/peers/ffcv_check.py "$@"
}

# made SEED FIELDS OPTION...: checks that ffcv reads a file of `ringmain gen beton`.
made() {
    local seed=$1 fields=$2 file=$scratch/made.beton sizes=fixed option
    for option in "${@:3}"; do
        [[ $option != --varied ]] || sizes=varied
    done
    rm -f -- "$file"
    "$target/release/ringmain" gen beton "$file" --samples "$samples" \
        --sample-bytes "$sample_bytes" --seed "$seed" --fields "$fields" "${@:3}"
    check made "$file" "$samples" "$sample_bytes" "$fields" "$seed" "$sizes"
}

made_by_us() {
    local all=int,float,bytes,json,ndarray,tensor,image
    made 1 "$all" --align 0 --page-size 2MiB --workers 1
    made 2 "$all" --align 0 --page-size 2MiB --workers 3 --varied
    made 3 "$all" --align 512 --page-size 2MiB --workers 4 --varied
    made 4 "$all" --align 4096 --workers 3 --varied --deterministic
    made 5 image,int,bytes,image,float --align 4096 --page-size 4MiB --workers 2 --direct
    made 6 bytes,int --workers 2
}

made_by_ffcv() {
    local original=$scratch/original.beton again=$scratch/again.beton alignment
    check write "$original" $((2 << 20))
    for alignment in 0 512 4096; do
        "$target/release/examples/beton_rewrite" "$original" "$again" "$alignment" 4 3
        check same "$original" "$again"
    done
}

step set-up set_up
step build build
step "made by us" made_by_us
step "made by ffcv" made_by_ffcv
