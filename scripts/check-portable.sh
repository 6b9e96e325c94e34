#!/usr/bin/env bash
# The portable part on the platforms it is for: tested on Linux with every feature off,
# type-checked for macOS, and tested as Windows programs under Wine.
#
# The foreign standard libraries are built from Debian's copy of the Rust sources by Debian's own
# compiler, so that no toolchain is downloaded and the one in use stays as it is.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
trap 'report_end; stop_wine' EXIT

packages=(--package ringmain-backends --package ringmain)
# Another compiler's artefacts, kept apart from the usual builds'.
portable=$target/portable
wine=/usr/lib/wine/wine64
# A Wine of our own: none of the user's settings, nothing left in the home directory.
wine_home=$portable/wine

# The other backends are not compiled in here, whatever the caller requires of the full build.
export RINGMAIN_REQUIRE_BACKENDS=pread,mmap
# Nor does a profile of the user's decide anything.
export RINGMAIN_PROFILE=off

set_up() {
    want_rust clippy
    want_portable
    install_wanted
    need_component clippy clippy
}

# Finds, among the rest, what only an absent backend would have called.
linux_clippy() {
    cargo clippy --locked "${packages[@]}" --all-targets --no-default-features -- -D warnings
}

# `conformance` adds the suite, not a backend.
linux_tests() {
    cargo test --locked "${packages[@]}" \
        --no-default-features --features ringmain-backends/conformance
}

# foreign_cargo COMMAND TARGET BUILD_STD ARGS...: Debian's cargo and rustc by their full names,
# since those on the path are usually rustup's and come without the sources. -Zbuild-std and
# -Zwarnings (fatal in our packages alone) are unstable, hence the bootstrap switch. A panic tells
# its line without debug information, and nobody steps through these programs.
foreign_cargo() {
    RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 \
        CARGO_BUILD_WARNINGS=deny CARGO_PROFILE_DEV_DEBUG=0 \
        /usr/bin/cargo "$1" --locked -Zwarnings --target "$2" -Zbuild-std="$3" \
        --target-dir "$portable" "${packages[@]}" "${@:4}"
}

macos_check() {
    foreign_cargo check aarch64-apple-darwin std,panic_abort,test --all-targets "$@"
}

# Wine and mingw's dlltool leave temporary files behind, hence a place of their own.
use_own_tmp() {
    export TMPDIR=$portable/tmp
    mkdir -p "$TMPDIR"
}

# The overrides keep Wine from offering to download .NET and a browser, and from writing menus to the
# home directory.
start_wine() {
    export WINEPREFIX=$wine_home WINEDEBUG=-all WINEDLLOVERRIDES='mscoree,mshtml,winemenubuilder.exe='
    mkdir -p "$portable/dll"
    make_random_dll "$portable/dll"
    export WINEPATH="Z:${portable//\//\\}\\dll"
    unset DISPLAY
    "$wine" wineboot --init </dev/null >"$portable/wineboot.log" 2>&1 ||
        die "Wine does not start; see $portable/wineboot.log"
}

# Its server outlives the programs and would hold this script's output open.
stop_wine() {
    [[ -d $wine_home ]] || return 0
    WINEPREFIX=$wine_home /usr/lib/wine/wineserver --kill || true
}

# Wine 8 lacks the DLL that std takes random bytes from. WINEPATH is searched last, so a Wine that
# has it uses its own.
make_random_dll() {
    x86_64-w64-mingw32-gcc -shared -O1 -o "$1/bcryptprimitives.dll" -xc - -ladvapi32 <<'C'
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID bytes, ULONG length);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T length) {
    return SystemFunction036(bytes, (ULONG)length);
}
C
}

# All features: the Linux backends must answer that they are unavailable, not fail to compile.
# No doctests: they cannot be run for a target whose std was built here.
windows_build() {
    foreign_cargo test x86_64-pc-windows-gnu std,panic_abort,test \
        --lib --tests --all-features --no-run 2>&1 | tee "$portable/windows.log"
}

# One program for each processor, because a program spends half of its time waiting for Wine's
# server. Each runs one test at a time: Wine 8 loses wake-ups between threads that wait for the same
# address, and two tests that share a `OnceLock` then wait for ever. All programs run, even if one
# fails: a round costs minutes.
windows_tests() {
    local programs
    start_wine
    programs=$(sed -n 's/^ *Executable .*(\(.*\.exe\))$/\1/p' "$portable/windows.log")
    [[ $programs ]] || die "cargo named no test program; see $portable/windows.log"
    export RUST_TEST_THREADS=1 wine portable
    export -f run_windows_program
    # shellcheck disable=SC2016
    xargs --delimiter='\n' --max-procs="$(nproc)" --max-args=1 bash -c 'run_windows_program "$1"' _ <<<"$programs"
}

# run_windows_program PROGRAM: says in one line how it went, or all that it said if it failed. The
# time limit is for one that hangs under Wine: the slowest takes 40 s, and 5 minutes if seven others want
# each processor.
run_windows_program() {
    local name started=$SECONDS
    name=$(basename -- "$1" .exe)
    local log=$portable/tmp/$name.log
    if timeout 30m "$wine" "$1" >"$log" 2>&1; then
        printf '%s: %s, %d s\n' "${name%-*}" "$(grep -a '^test result' "$log")" $((SECONDS - started))
    else
        printf '%s: FAILED or took longer than 30 minutes\n%s\n' "$name" "$(cat -- "$log")"
        return 1
    fi
}

step "portable: set-up" set_up
step "portable: clippy, no features" linux_clippy
step "portable: tests, no features" linux_tests
step "portable: macOS, no features" macos_check --no-default-features
step "portable: macOS, all features" macos_check --all-features
if runs_windows_programs; then
    use_own_tmp
    step "portable: Windows, build" windows_build
    step "portable: Windows tests under Wine" windows_tests
else
    printf '\n== portable: Windows tests SKIPPED: they need an x86-64 machine\n'
fi
