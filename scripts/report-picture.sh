#!/usr/bin/env bash
# Takes docs/report.png, the picture in the README, from the report of a published run. Measures nothing.
#
#   scripts/report-picture.sh [RUN.json [PICTURE.png]]
#
# Default: docs/results/auto-13-groups.run.json, and docs/report.png, which is replaced.
set -euo pipefail
# A path of the user is relative to the folder where the script was started.
run=$(realpath -m -- "${1:-$(dirname -- "${BASH_SOURCE[0]}")/../docs/results/auto-13-groups.run.json}")
picture=$(realpath -m -- "${2:-$(dirname -- "${BASH_SOURCE[0]}")/../docs/report.png}")
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
scratch=
trap 'report_end; rm -rf -- "$scratch"' EXIT

set_up() {
    [[ -r $run ]] || die "cannot read $run"
    want_rust
    install_missing chromium=chromium
    scratch=$(mktemp -d)
}

# The picture shows the verdict, the table of all workloads, and the beginning of the first workload.
take_picture() {
    cargo run --locked --quiet --package ringmain-bench --bin ringmain -- report "$run" --output "$scratch/report.html"
    # Chromium reports what a desktop would have (D-Bus, a graphics card) as errors.
    chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --no-first-run \
        --user-data-dir="$scratch/profile" --host-resolver-rules='MAP * ~NOTFOUND' \
        --blink-settings=preferredColorScheme=1 --force-device-scale-factor=1 --window-size=1180,1640 \
        --screenshot="$scratch/report.png" "file://$scratch/report.html" 2>"$scratch/chromium.log" ||
        die "chromium failed: $(tail -n 3 -- "$scratch/chromium.log")"
    [[ -s $scratch/report.png ]] || die "chromium took no picture: $(tail -n 3 -- "$scratch/chromium.log")"
    mv -- "$scratch/report.png" "$picture"
    printf 'took %s\n' "$picture"
}

step set-up set_up
step picture take_picture
