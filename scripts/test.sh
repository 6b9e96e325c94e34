#!/usr/bin/env bash
# Everything that must hold before a change goes in: format, lints, tests, documentation, and the
# portable checks. Stops at the first step that fails.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
trap report_end EXIT

# What `auto` takes must follow from the machine, not from what the user once measured on it.
export RINGMAIN_PROFILE=off

# strace refuses system calls to the tests; Chromium opens the report; fio is measured beside; the
# rest makes the filesystems they mount as root. What the later steps need is installed here too: it
# is one call of the package manager, and one line for a user who cannot install.
set_up() {
    want_rust fmt clippy
    want_python
    want strace=strace xfsprogs=mkfs.xfs btrfs-progs=mkfs.btrfs squashfs-tools=mksquashfs \
        mount=losetup util-linux=setpriv chromium=chromium fio=fio
    want_portable
    install_wanted
    need_component fmt rustfmt
    need_component clippy clippy
    # Other people's programs that read what ours writes, in an environment of their own.
    need_venv "$target/venv" 'hdrhistogram~=0.10.3' 'jsonschema~=4.20'
    export RINGMAIN_PYTHON=$target/venv/bin/python
}

# The Python package, in an environment of its own, with checked arithmetic as the tests of Rust have
# it. Torch is several gigabytes: its tests run where it is installed, and pytest says when not.
python_tests() {
    local venv=$target/python
    build_python "$venv"
    need_venv "$venv" exca pytest hypothesis ml_dtypes pillow pyarrow safetensors
    # On Linux of these days they all work; where one does not, say which ones must.
    RINGMAIN_REQUIRE_BACKENDS=${RINGMAIN_REQUIRE_BACKENDS-pread,mmap,direct,uring,tokio-uring} \
        "$venv/bin/python" -m pytest --quiet python/tests
}

rustdoc() {
    RUSTDOCFLAGS="${RUSTDOCFLAGS:-} -D warnings" \
        cargo doc --locked --workspace --all-features --no-deps
}

# A test that cannot find what was installed fails, rather than pass without looking.
export RINGMAIN_REQUIRE_CHROMIUM=1 RINGMAIN_REQUIRE_PYTHON=1

step set-up set_up
step fmt cargo fmt --all --check
step clippy cargo clippy --locked --workspace --all-targets --all-features -- -D warnings
step tests cargo test --locked --workspace --all-features
# With every feature it was tested above. Ringmain is no dependency of this form.
step "embedded loader, by itself" cargo test --locked --package embedded-loader
step rustdoc rustdoc
step python python_tests
step portable scripts/check-portable.sh
