#!/usr/bin/env bash
# Builds the `ringmain` command, shows what this machine can do, and reads one small file with
# every backend that works here, comparing the bytes.
#
#   scripts/bench.sh [DIRECTORY]     where to put the file (64 MiB); default: the target directory
set -euo pipefail
directory=${1:+$(realpath -- "$1")}
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

file_bytes=$((64 << 20))
ringmain=$target/release/ringmain
# Not in /tmp by default: that is often tmpfs, where there is no device to read from.
directory=${directory:-$target}
scratch=
trap 'report_end; rm -rf -- "$scratch"' EXIT

set_up() {
    need_rust
    install_missing python3=python3
}

build() {
    cargo build --locked --release --package ringmain-bench
}

make_file() {
    scratch=$(mktemp -d -- "$directory/ringmain-bench.XXXXXX")
    file=$scratch/data.bin
    # From a seed, so that two runs read the same bytes.
    python3 - "$file_bytes" >"$file" <<'PY'
import random, sys
generator = random.Random(1)
for _ in range(int(sys.argv[1]) >> 20):
    sys.stdout.buffer.write(generator.randbytes(1 << 20))
PY
    sync -- "$file"
    expected=$(sha256sum <"$file")
    printf '%s: %d bytes, sha256 %s\n' "$file" "$file_bytes" "${expected%% *}"
}

# One backend a line: name, whether it is available, and what to say about it. `auto` comes last.
list_backends() {
    "$ringmain" probe "$file" --json | python3 -c '
import json, sys
probe = json.load(sys.stdin)
for backend in probe["backends"]:
    if backend["available"]:
        print(backend["name"], "yes", "", sep="\t")
    else:
        print(backend["name"], "no", " ".join(backend["reason"].split()), sep="\t")
print("auto", "yes", " (takes " + probe["auto"]["choice"] + ")", sep="\t")
'
}

read_with_all() {
    local backends name available note failed=0
    backends=$(list_backends)
    row backend ms MB/s bytes
    while IFS=$'\t' read -r name available note; do
        if [[ $available == yes ]]; then
            read_with "$name" "$note" || failed=1
        else
            row "$name" - - "unavailable: $note"
        fi
    done <<<"$backends"
    printf '\nOne read each, start of the process included: a smoke test, not a measurement.\n'
    return "$failed"
}

row() {
    printf '%-12s %10s %10s  %s\n' "$@"
}

# read_with BACKEND NOTE: once against the clock, and once more for the bytes, since hashing them
# takes longer than reading them.
read_with() {
    local started micros verdict
    drop_cache
    started=${EPOCHREALTIME/[.,]/}
    verdict=$("$ringmain" cat "$file" --backend "$1" >/dev/null || echo FAILED)
    micros=$((${EPOCHREALTIME/[.,]/} - started))
    row "$1" "$((micros / 1000)).$((micros / 100 % 10))" $((file_bytes / micros)) \
        "${verdict:=$(compare_bytes "$1")}$2"
    [[ $verdict == identical ]]
}

compare_bytes() {
    if [[ $("$ringmain" cat "$file" --backend "$1" | sha256sum) == "$expected" ]]; then
        echo identical
    else
        echo DIFFERENT
    fi
}

# dd with nothing to copy only advises the kernel to forget the file (POSIX_FADV_DONTNEED).
drop_cache() {
    dd if="$file" iflag=nocache count=0 status=none
}

step set-up set_up
step build build
step file make_file
step probe "$ringmain" probe "$file"
step "read with every backend" read_with_all
