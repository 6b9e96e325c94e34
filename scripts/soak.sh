#!/usr/bin/env bash
# Reads with every backend while files change, processes fork and resources run out, and checks every byte.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

usage() {
    cat <<'TEXT'
Usage: scripts/soak.sh [MINUTES] [SEED] [OPTION...]

Builds ringmain-soak and runs it for MINUTES (1 by default) with SEED (random by default). Its files, about
150 MB, are in the target folder while it runs. `scripts/soak.sh --describe` says what it does and lists the
options; docs/reliability.md has the figures of a long run.

Examples:
  scripts/soak.sh            one minute
  scripts/soak.sh 60         one hour
  scripts/soak.sh 5 1234     five minutes, with the seed that an earlier run printed

The exit code is 1 if anything was wrong.
TEXT
}

case ${1:-} in
-h | --help) usage && exit 0 ;;
--describe) set -- --help ;;
esac

# `auto` must choose by what the machine can do, not by a profile that the user has saved.
export RINGMAIN_PROFILE=off
need_all_features
# The test command chooses the profile dev: the soak then reads slower, and is built from the libraries that the tests
# were built from, with the same features.
profile=${RINGMAIN_SOAK_PROFILE:-soak}
selection=(--package ringmain-soak)
[[ $profile != dev ]] || selection=(--workspace --all-features --bin ringmain-soak)
cargo build --locked --quiet --profile "$profile" "${selection[@]}"
mkdir -p "$target/soak-files"
exec "$target/${profile/#dev/debug}/ringmain-soak" --dir "$target/soak-files" "$@"
