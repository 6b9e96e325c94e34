#!/usr/bin/env bash
# Builds what a release of the Python package consists of, and checks it: one wheel for every Python from 3.11 on, which
# runs on Linux with glibc 2.28 or newer, and an sdist that builds without the network. The files are in target/dist.
#
# Options: --types checks only the types, with mypy's stubtest, mypy and pyright; --quick builds without optimisation,
# to try the script.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
trap 'report_end' EXIT

venv=$target/wheels-venv
dist=$target/dist
# What manylinux_2_28 promises, and most of today's systems have. Zig's linker builds for it on any machine.
compatibility=manylinux_2_28
profile=release
[[ ${1:-} != --quick ]] || profile=dev

set_up() {
    need_rust
    need_venv "$venv" maturin ziglang auditwheel abi3audit numpy mypy pyright pytest
    rm -rf -- "$dist"
    mkdir -p -- "$dist"
}

build_wheel() {
    # maturin asks the `python3` of the path for Zig.
    PATH=$venv/bin:$PATH maturin build --locked --profile "$profile" --zig --compatibility "$compatibility" --quiet \
        --manifest-path python/Cargo.toml --out "$dist"
}

# maturin refuses to build a wheel that needs more than the tag says. auditwheel and abi3audit look again, at the
# finished file.
check_wheel() {
    local wheel
    wheel=$(only "$dist"/ringmain-*.whl)
    [[ $wheel == *-cp311-abi3-"$compatibility"_* ]] || die "$wheel is not an abi3 wheel for $compatibility"
    "$venv/bin/auditwheel" show "$wheel" | tee "$dist/auditwheel.txt"
    grep -q "consistent with" "$dist/auditwheel.txt" || die "auditwheel finds no policy for $wheel"
    "$venv/bin/abi3audit" --strict --summary "$wheel"
    try_wheel "$wheel"
}

# try_wheel WHEEL: installs the wheel in a new environment and reads an array with it.
try_wheel() {
    local fresh
    fresh=$(mktemp -d -- "$target/try.XXXXXX")
    python3 -m venv -- "$fresh"
    venv_install "$fresh" numpy
    "$fresh/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps "$1"
    (
        cd -- "$fresh"
        bin/python -c '
import numpy as np, ringmain
np.save("rows.npy", np.arange(12.0).reshape(3, 4))
assert (np.asarray(ringmain.open_npy("rows.npy")[1:]) == np.arange(4, 12.0).reshape(2, 4)).all()
print(ringmain.__version__, "reads")'
        bin/ringmain probe --json >/dev/null
    )
    rm -r -- "$fresh"
}

# The sdist has the sources of all crates and their Cargo.lock. What the lock file names is fetched first; then cargo and
# pip get no network.
build_sdist() {
    local sdist
    "$venv/bin/maturin" sdist --manifest-path python/Cargo.toml --out "$dist"
    sdist=$(only "$dist"/ringmain-*.tar.gz)
    # The list is read to its end, because tar fails if it cannot write all of it.
    tar -tzf "$sdist" | grep -c 'Cargo.lock$' >/dev/null || die "$sdist has no Cargo.lock"
    cargo fetch --locked
    CARGO_TARGET_DIR=$target CARGO_NET_OFFLINE=true MATURIN_PEP517_ARGS="--locked --profile $profile" \
        PATH=$venv/bin:$PATH "$venv/bin/python" -m pip wheel --quiet \
        --disable-pip-version-check --no-index --no-deps --no-build-isolation \
        --wheel-dir "$dist/from-sdist" "$sdist"
    try_wheel "$(only "$dist"/from-sdist/ringmain-*.whl)"
}

# stubtest compares the stubs with the module; mypy and pyright check the examples of the documentation.
check_types() {
    local examples
    build_python "$venv"
    "$venv/bin/python" -m pytest --quiet python/tests/test_types.py
    examples=$target/examples-for-types
    rm -rf -- "$examples"
    "$venv/bin/python" - "$examples" <<'END'
import pathlib
import re
import sys

folder = pathlib.Path(sys.argv[1])
folder.mkdir()
for page in ("README.md", "python/README.md", "docs/python.md"):
    found = re.findall(r"^```python\n(.*?)^```", pathlib.Path(page).read_text(), re.DOTALL | re.MULTILINE)
    for number, snippet in enumerate(found):
        (folder / f"{page.replace('/', '_').removesuffix('.md')}_{number}.py").write_text(snippet)
# Torch has several gigabytes, and exca and pandas are optional.
(folder / "pyrightconfig.json").write_text('{"reportMissingImports": false, "reportMissingModuleSource": false}')
END
    "$venv/bin/pyright" --pythonpath "$venv/bin/python" --project "$examples"
}

# only FILE...: prints the file if it is the only one that exists.
only() {
    [[ $# == 1 && -e $1 ]] || die "expected one file, found: $*"
    printf '%s\n' "$1"
}

step set-up set_up
if [[ ${1:-} != --types ]]; then
    step "wheel" build_wheel
    step "check of the wheel" check_wheel
    step "sdist" build_sdist
fi
step "types" check_types
