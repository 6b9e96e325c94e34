#!/usr/bin/env bash
# Makes every system call of every backend fail in turn, and writes what happened to docs/system-calls.md.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

usage() {
    cat <<'TEXT'
Usage: scripts/system-calls.sh

Runs the test `system_calls` (about half a minute) and writes its tables to docs/system-calls.md: for each
system call, error and backend, how many faults ended with the right bytes, with an error and then the right
bytes, or with an error only. The test fails if any ended otherwise.
TEXT
}

tables=

run() {
    need_all_features
    tables=$(mktemp -d)
    RINGMAIN_PROFILE=off RINGMAIN_SYSTEM_CALL_TABLES=$tables \
        cargo test --locked --quiet --package ringmain-backends --all-features --test system_calls
}

write_page() {
    local table
    cat <<'TEXT'
# System calls that fail

Written by `scripts/system-calls.sh`. Each row makes calls of one kind fail in a process of its own, while a
backend opens two files, reads a range and reads a batch over both files twice. "one call" are the first six
calls and the last, one after the other; "every call" is all of them at once.

- **right**: every read returned the right bytes.
- **error, then right**: a step failed with an error that names its file, and succeeded when it was repeated.
- **error**: the step failed again, because the fault lasted.

A call that no row lists is not made. Errors that cannot occur are left out: a system call that is missing
for one call only, and an interruption that lasts for ever in a call that the standard library repeats.

| call | error | fails | backend | outcomes |
|---|---|---|---|---|
TEXT
    for table in "$tables"/*.md; do
        cat -- "$table"
    done | LC_ALL=C sort
}

case ${1:-} in
-h | --help) usage && exit 0 ;;
'') ;;
*) die "what is '$1'? See --help" ;;
esac
trap 'rm -rf -- "$tables"' EXIT
step system-calls run
write_page >docs/system-calls.md
