#!/usr/bin/env bash
# Checks the portable crates: tests them on Linux with every feature off, type-checks them for macOS, and runs
# their tests as Windows programs under Wine. Arguments select parts: `linux`, `macos`, `windows`.
#
# Debian's own compiler builds the standard libraries for macOS and Windows from Debian's copy of the
# Rust sources, so no toolchain is downloaded and the installed one stays as it is.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
trap report_end EXIT

packages=(--package ringmain-backends --package ringmain)
# The files of this other compiler are kept apart from those of the usual builds.
portable=$target/portable
wine=/usr/lib/wine/wine64
# Windows programs that run at the same time. Each has a Wine folder of its own, because a folder has one server,
# which two programs would keep busy all the time. The folders have none of the user's settings, and nothing is left in
# the home directory.
lanes=$(($(nproc) < 2 ? $(nproc) : 2))
wine_homes=()
for ((lane = 0; lane < lanes; lane++)); do
    wine_homes+=("$portable/wine-$lane")
done

# The other backends are not compiled in here, even if the caller requires them for the full build.
export RINGMAIN_REQUIRE_BACKENDS=pread,mmap
# A profile that the user has saved must not change the results, and property tests try the same cases each time.
export RINGMAIN_PROFILE=off PROPTEST_RNG_SEED=17

set_up() {
    want_rust clippy
    want_portable
    install_wanted
    need_component clippy clippy
}

# This also finds functions that only a disabled backend calls.
linux_clippy() {
    cargo clippy --locked "${packages[@]}" --all-targets --no-default-features -- \
        -D warnings -A clippy::incompatible_msrv
}

# The programs that show whether the right backend is taken, and whether everything above it works without the
# others. All programs ran with all features before. The feature `conformance` adds the test suite, not a
# backend.
linux_tests() {
    local programs=(advice auto bad_input conformance pool profile property refused shards strided typed_reads vectors)
    cargo test --locked "${packages[@]}" --lib "${programs[@]/#/--test=}" \
        --no-default-features --features ringmain-backends/conformance
    cargo test --locked "${packages[@]}" --doc \
        --no-default-features --features ringmain-backends/conformance
}

# Prints `--test=NAME` for each test program that has tests on Windows. The others begin with an attribute that
# limits them to Linux or Unix.
windows_programs() {
    local source name
    for source in {backends,engine}/tests/*.rs {backends,engine}/tests/*/main.rs; do
        ! grep -qE '^#!\[cfg\(.*(target_os = "linux"|unix)' "$source" || continue
        name=${source%/main.rs}
        printf -- '--test=%s\n' "$(basename -- "$name" .rs)"
    done
}

# foreign_cargo COMMAND TARGET BUILD_STD ARGS...: runs Debian's cargo and rustc by their full paths,
# because those on the PATH are usually rustup's and come without the sources. -Zbuild-std and -Zwarnings
# (which makes warnings fatal in our packages only) are unstable and need RUSTC_BOOTSTRAP. Debug
# information is left out: a panic reports its line without it, and no debugger is used.
foreign_cargo() {
    RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 \
        CARGO_BUILD_WARNINGS=deny CARGO_PROFILE_DEV_DEBUG=0 \
        /usr/bin/cargo "$1" --locked -Zwarnings --target "$2" -Zbuild-std="$3" \
        --target-dir "$portable" "${packages[@]}" "${@:4}"
}

# There is no C compiler for macOS here. A check links nothing, so the C parts of dependencies (criterion has
# one) need not be compiled.
macos_check() {
    CC_aarch64_apple_darwin=true AR_aarch64_apple_darwin=true \
        foreign_cargo check aarch64-apple-darwin std,panic_abort,test "$@"
}

# Wine and mingw's dlltool leave temporary files behind, so they get their own folder. The other parts do not: their
# tests also run as a user who may not write there.
windows_tmp=$portable/tmp

# The overrides stop Wine from offering to download .NET and a browser, and from writing menus to the
# home directory.
start_wine() {
    local home starting=()
    export WINEDEBUG=-all WINEDLLOVERRIDES='mscoree,mshtml,winemenubuilder.exe='
    mkdir -p "$portable/dll"
    make_random_dll "$portable/dll"
    export WINEPATH="Z:${portable//\//\\}\\dll"
    unset DISPLAY
    for home in "${wine_homes[@]}"; do
        WINEPREFIX=$home "$wine" wineboot --init </dev/null >"$home.log" 2>&1 &
        starting+=("$!")
    done
    for home in "${wine_homes[@]}"; do
        wait "${starting[0]}" || {
            kill -- "${starting[@]}" 2>/dev/null || true
            die "Wine does not start; see $home.log"
        }
        starting=("${starting[@]:1}")
    done
    # The servers of wineboot end when no program runs, and then reset the connections of programs that start
    # at that moment. These stay.
    stop_wine
    for home in "${wine_homes[@]}"; do
        WINEPREFIX=$home /usr/lib/wine/wineserver --persistent || die "Wine's server does not start (exit code $?)"
    done
}

# Wine's servers outlive the programs and would keep this script's output open. Wine finds a server by its folder for
# temporary files.
stop_wine() {
    local home
    local -x TMPDIR=$windows_tmp
    for home in "${wine_homes[@]}"; do
        [[ -d $home ]] || continue
        WINEPREFIX=$home /usr/lib/wine/wineserver --kill || true
        WINEPREFIX=$home /usr/lib/wine/wineserver --wait || true
    done
}

# Wine 8 lacks the DLL from which std gets random bytes. Wine searches WINEPATH last, so a Wine that
# has the DLL uses its own.
make_random_dll() {
    x86_64-w64-mingw32-gcc -shared -O1 -o "$1/bcryptprimitives.dll" -xc - -ladvapi32 <<'C'
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID bytes, ULONG length);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T length) {
    return SystemFunction036(bytes, (ULONG)length);
}
C
}

# All features are on: the Linux backends must compile and report that they are unavailable.
# There are no doctests: they cannot run for a target whose std was built here.
windows_build() {
    local programs
    local -x TMPDIR=$windows_tmp
    mkdir -p "$TMPDIR"
    mapfile -t programs < <(windows_programs)
    foreign_cargo test x86_64-pc-windows-gnu std,panic_abort,test \
        --lib "${programs[@]}" --all-features --no-run 2>&1 | tee "$portable/windows.log"
}

# Each program runs one test at a time: Wine 8 loses wake-ups between threads that wait for the same address,
# so two tests that share a `OnceLock` would wait forever. All programs run even if one fails, because a round
# takes minutes.
windows_tests() {
    local programs
    local -x TMPDIR=$windows_tmp
    start_wine
    programs=$(sed -n 's/^ *Executable .*(\(.*\.exe\))$/\1/p' "$portable/windows.log")
    # The longest goes first, so that the others do not wait for it in the end.
    programs=$(sort --stable --key=1,1 <(sed 's|^.*/conformance-|0 &|; t; s|^|1 |' <<<"$programs") | cut -d' ' -f2-)
    [[ $programs ]] || die "cargo named no test program; see $portable/windows.log"
    # The parsers are the same everywhere, and Wine runs them at a tenth of the speed.
    export RINGMAIN_FUZZ_SECONDS=1
    export RUST_TEST_THREADS=1 wine portable windows_tmp
    export -f run_windows_program has_begun
    # shellcheck disable=SC2016
    xargs --delimiter='\n' --max-procs="$lanes" --max-args=1 --process-slot-var=lane \
        bash -c 'run_windows_program "$1"' _ <<<"$programs"
}

# run_windows_program PROGRAM: runs it in the Wine folder `$lane`, and prints the result in one line, or the whole
# output if the program failed.
# The time limit is for a program that hangs under Wine. The slowest takes 55 s, or 5 minutes if seven other
# processes compete for each processor.
run_windows_program() {
    local name started=$SECONDS status start
    name=$(basename -- "$1" .exe)
    local log=$windows_tmp/$name.log
    for start in 1 2 3; do
        status=0
        WINEPREFIX=$portable/wine-$lane timeout 30m "$wine" "$1" >"$log" 2>&1 || status=$?
        # A program that hangs is not started again.
        if has_begun "$log" || ((status == 124)); then break; fi
        printf '%s: Wine did not start it (try %d, exit code %d) %s\n' "$name" "$start" "$status" "$(cat -- "$log")"
    done
    if ((status == 0)) && has_begun "$log"; then
        printf '%s: %s, %d s\n' "${name%-*}" "$(grep -a '^test result' "$log")" $((SECONDS - started))
    else
        printf '%s: FAILED with exit code %d (124: it took longer than 30 minutes)\n%s\n' \
            "$name" "$status" "$(cat -- "$log")"
        return 1
    fi
}

# has_begun LOG: tells whether a program came so far as to say how many tests it runs. In about one of 200 starts,
# Wine 8 ends a program before that; no test has run then.
has_begun() {
    grep -aqE '^running [0-9]+ tests?' "$1"
}

check_linux() {
    step "no features: clippy" linux_clippy
    step "no features: tests" linux_tests
}

# The test programs are checked with all features. What the features change on macOS is in the libraries.
check_macos() {
    step "macOS: all features" macos_check --all-features --all-targets
    step "macOS: no features" macos_check --no-default-features --lib
}

check_windows() {
    if ! runs_windows_programs; then
        printf '\n== Windows: SKIPPED: Wine needs an x86-64 machine\n'
        return
    fi
    # Only this part has started servers. Another part may run at the same time.
    trap 'report_end; stop_wine' EXIT
    step "Windows: build" windows_build
    step "Windows: tests under Wine" windows_tests
}

parts=("$@")
((${#parts[@]})) || parts=(linux macos windows)
for part in "${parts[@]}"; do
    [[ $part =~ ^(linux|macos|windows)$ ]] || die "there is no part '$part'; there are: linux, macos, windows"
done
step set-up set_up
for part in "${parts[@]}"; do
    "check_$part"
done
