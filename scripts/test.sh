#!/usr/bin/env bash
# Everything that must hold before a change goes in: format, lints, tests, documentation, and the
# portable checks. Stops at the first step that fails.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
trap report_end EXIT

# strace refuses system calls to the tests; the rest makes the filesystems they mount as root.
set_up() {
    need_rust
    need_component rustfmt fmt
    need_component clippy clippy
    install_missing strace=strace xfsprogs=mkfs.xfs btrfs-progs=mkfs.btrfs \
        squashfs-tools=mksquashfs mount=losetup util-linux=setpriv
}

rustdoc() {
    RUSTDOCFLAGS="${RUSTDOCFLAGS:-} -D warnings" \
        cargo doc --locked --workspace --all-features --no-deps
}

step set-up set_up
step fmt cargo fmt --all --check
step clippy cargo clippy --locked --workspace --all-targets --all-features -- -D warnings
step tests cargo test --locked --workspace --all-features
step rustdoc rustdoc
step portable scripts/check-portable.sh
