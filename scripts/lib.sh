# shellcheck shell=bash
# Functions that the scripts share. This file is sourced, not run. It changes to the top of the repository.

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
cd -- "$root" || exit

# mkfs.* and losetup are not on the PATH of an ordinary user.
PATH=$PATH:/usr/sbin:/sbin
# rustup's cargo is not on the PATH of a shell that was started before rustup was installed. It goes first,
# because the portable checks install Debian's cargo as /usr/bin/cargo.
cargo_bin=${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
[[ :$PATH: == *:$cargo_bin:* ]] || PATH=$cargo_bin:$PATH

# The path is absolute, because Wine and the tests use it from other directories.
# shellcheck disable=SC2034 # other scripts use it
target=$(realpath -m -- "${CARGO_TARGET_DIR:-target}")

current_step=
step_times=()

# step NAME COMMAND...: announces a step, runs it, and prints how long it took.
# The processor time is unknown while another step runs beside it.
step() {
    local started=$SECONDS cpu_started taken cpu=unknown is_alone=
    [[ $beside_pid ]] || is_alone=yes
    cpu_started=$(cpu_seconds)
    current_step=$1
    check_beside
    printf '\n== %s\n' "$current_step"
    "${@:2}"
    taken=$((SECONDS - started))
    [[ ! $is_alone ]] || cpu="$(($(cpu_seconds) - cpu_started)) s"
    printf -- '-- %s: %d s, processor time: %s\n' "$current_step" "$taken" "$cpu"
    step_times+=("$(printf '%5d s %9s  %s' "$taken" "$cpu" "$current_step")")
    current_step=
}

# One step may run beside the others. It is a job with its own process group, so that it can be ended together
# with everything it has started. Its output goes to a file.
beside_name='' beside_pid='' beside_log='' beside_status=0

# start_beside NAME LOG COMMAND...: starts this step and returns.
start_beside() {
    beside_name=$1 beside_log=$2
    printf '\n== %s: runs beside the next steps; its output goes to %s\n' "$1" "$2"
    mkdir -p -- "$(dirname -- "$2")"
    set -m
    "${@:3}" </dev/null >"$2" 2>&1 &
    beside_pid=$!
    set +m
}

# Prints the output of the step beside until it ends, and returns its exit code.
finish_beside() {
    if [[ $beside_pid ]]; then
        tail -n +1 -f --pid="$beside_pid" -- "$beside_log"
        collect_beside
    else
        cat -- "$beside_log"
    fi
    return "$beside_status"
}

# Stops this script if the step beside has failed.
check_beside() {
    [[ $beside_pid && -z $(jobs -pr) ]] || return 0
    collect_beside
    ((beside_status == 0)) && return
    current_step=$beside_name
    cat -- "$beside_log"
    exit 1
}

collect_beside() {
    beside_status=0
    wait "$beside_pid" || beside_status=$?
    beside_pid=
}

# Ends the step beside if it still runs.
stop_beside() {
    [[ $beside_pid ]] || return 0
    kill -TERM -- "-$beside_pid" 2>/dev/null || true
    collect_beside
}

# Prints the processor time of the commands that this script has finished; proc(5) counts it in hundredths of
# a second. Prints 0 if there is no /proc.
cpu_seconds() {
    local stat=()
    [[ -r /proc/$$/stat ]] && read -ra stat </proc/$$/stat
    echo $(((${stat[15]:-0} + ${stat[16]:-0}) / 100))
}

# For the EXIT trap: prints the time of each step, and as the last line the result, even if the error message
# is far above.
report_end() {
    local status=$?
    if ((${#step_times[@]} > 1)); then
        printf '\n   took processor  step\n'
        printf '%s\n' "${step_times[@]}"
    fi
    if ((status == 0)); then
        printf '\n%s: passed in %d s\n' "${0##*/}" "$SECONDS"
    else
        printf '\n%s: FAILED in step "%s" after %d s\n' \
            "${0##*/}" "${current_step:-set-up}" "$SECONDS" >&2
    fi
}

# A script that is interrupted has failed. Without these traps, the EXIT trap would see the status of the
# last finished command.
trap 'exit 130' INT
trap 'exit 143' TERM

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# The Debian packages that the caller needs, each as PACKAGE=PROBE. They are collected first, so that one
# command installs all of them, or one message names all of them to a user who cannot install packages.
wanted=()

# want PACKAGE[=PROBE]...: adds packages. The probe is a command or an absolute path that the package
# provides. Without a probe, dpkg tells whether the package is installed.
want() {
    wanted+=("$@")
}

# Installs the wanted packages whose probe is missing. If nothing is missing, it uses neither the network nor
# the package manager.
install_wanted() {
    local pair missing=()
    for pair in "${wanted[@]}"; do
        is_there "${pair#*=}" || [[ " ${missing[*]} " == *" ${pair%%=*} "* ]] ||
            missing+=("${pair%%=*}")
    done
    wanted=()
    ((${#missing[@]})) || return 0
    command -v apt-get >/dev/null ||
        die "there is no apt-get here; please install your system's equivalents of: ${missing[*]}"
    if ((EUID == 0)) || command -v sudo >/dev/null; then
        apt_update_once
    else
        check_debian_rust "${missing[@]}"
        die "packages are missing, and only root can install them: $(install_line "${missing[@]}")"
    fi
    check_debian_rust "${missing[@]}"
    printf 'installing: %s\n' "${missing[*]}"
    # --no-remove: never replace a package that the user has installed.
    apt_get install --yes --no-install-recommends --no-remove "${missing[@]}" ||
        die "the installation failed; please install the packages: $(install_line "${missing[@]}")"
}

# install_missing PACKAGE[=PROBE]...: wants these packages and installs all wanted packages now.
install_missing() {
    want "$@"
    install_wanted
}

# install_line PACKAGE...: prints the command for root. It updates the package lists first, because a new
# system has none, or old ones.
# shellcheck disable=SC2016 # the quotes are for people
install_line() {
    local source=''
    if [[ " $* " == *" rustc-web "* ]] && lacks_new_rust_suite; then
        source=$(security_source)
        [[ $source ]] || printf "add Debian's suite bookworm-security to the package sources, then run "
    fi
    printf '`'
    [[ -z $source ]] || printf "echo '%s' >>/etc/apt/sources.list && " "$source"
    printf 'apt-get update && apt-get install --no-install-recommends %s`' "$*"
}

# Prints the line for the security updates from the mirror that this system uses, or nothing if
# /etc/apt/sources.list does not name one.
security_source() {
    sed -nE '0,/^deb /s|^deb (.*/debian)/? bookworm .*|deb \1-security bookworm-security main|p' \
        /etc/apt/sources.list 2>/dev/null || true
}

# Debian 12 has a new Rust only in its security updates.
lacks_new_rust_suite() {
    is_debian_12 &&
        ! grep -rqs '^[^#]*bookworm-security' /etc/apt/sources.list /etc/apt/sources.list.d
}

is_debian_12() {
    grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release
}

is_there() {
    case $1 in
    /*) [[ -e $1 ]] ;;
    *) command -v "$1" >/dev/null || [[ $(package_status "$1") == installed ]] ;;
    esac
}

package_status() {
    dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null || true
}

# The script continues if a mirror does not answer: the packages may be listed already, and if they are not,
# the installation fails with a message.
apt_update_once() {
    [[ -z ${apt_updated:-} ]] || return 0
    apt_get update || printf 'apt-get update failed; trying with the existing lists\n' >&2
    apt_updated=yes
}

# The lock timeout is for machines that upgrade themselves just after boot.
apt_get() {
    local as_root=()
    ((EUID == 0)) || as_root=(sudo)
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" </dev/null >/dev/null
}

rust_min=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)

# want_rust [COMPONENT...]: wants Rust and a C compiler for linking. If there is no cargo, it wants Debian's
# newest Rust, with the components `fmt` and `clippy` if they are named. `need_component` adds those of rustup.
# shellcheck disable=SC2119,SC2120 # other scripts name components
want_rust() {
    local component
    want gcc=cc libc6-dev=/usr/include/stdlib.h
    if command -v cargo >/dev/null; then
        check_rust
        [[ $(command -v cargo) == /usr/bin/cargo ]] || return 0
    fi
    want cargo-web=cargo rustc-web=rustc ca-certificates=/etc/ssl/certs/ca-certificates.crt
    for component in "$@"; do
        case $component in
        fmt) want rustfmt-web=rustfmt ;;
        clippy) want rust-web-clippy=cargo-clippy ;;
        esac
    done
}

# Stops if Rust is too old. Cargo itself reports that too, but does not say what to do.
check_rust() {
    local version way_out='install a newer one, for example with rustup'
    version=$(rustc --version | sed 's/^rustc \([0-9.]*\).*/\1/')
    # shellcheck disable=SC2016 # the quotes are for people
    ! command -v rustup >/dev/null || way_out='run `rustup update`'
    is_at_least "$version" "$rust_min" ||
        die "Rust $version is too old: $rust_min or newer is needed; $way_out"
}

# check_debian_rust MISSING...: stops if the Rust that would be installed is too old. For an ordinary user
# without package lists the version is unknown, and nothing is checked.
check_debian_rust() {
    local version way_out='install a newer one, for example with rustup'
    [[ " $* " == *" rustc-web "* ]] || return 0
    version=$(apt-cache policy rustc-web | sed -n 's/^ *Candidate: \([0-9.]*\).*/\1/p')
    [[ $version ]] || ((EUID == 0)) || return 0
    ! is_at_least "${version:-0}" "$rust_min" || return 0
    ! is_debian_12 || way_out="as root, run $(install_line "$@")"
    die "Rust $rust_min or newer is needed, but the package lists have ${version:-none}; $way_out"
}

is_at_least() {
    [[ $(printf '%s\n' "$1" "$2" | sort -V | head -1) == "$2" ]]
}

# shellcheck disable=SC2119
need_rust() {
    want_rust
    install_wanted
}

# need_component COMPONENT PACKAGE: installs a component of rustup. Its minimal profile has neither clippy nor
# rustfmt.
need_component() {
    cargo "$1" --version >/dev/null 2>&1 && return
    command -v rustup >/dev/null || die "cargo $1 is missing; please install $2"
    rustup component add "$2"
}

# Builds the `ringmain` command with optimisations.
build_ringmain() {
    need_rust
    cargo build --locked --release --package ringmain-bench
}

# Wants what the feature `turbojpeg` is built with.
want_all_features() {
    want cmake=cmake make=make nasm=nasm
}

# Installs what builds with `--all-features` need.
need_all_features() {
    need_rust
    want_all_features
    install_wanted
}

# Wants Python. Debian's python3 comes without the module that makes virtual environments.
want_python() {
    want python3=python3
    python3 -c 'import ensurepip' 2>/dev/null || want python3-venv
}

# need_venv FOLDER PACKAGE...: makes a virtual environment in this folder, with these packages. One whose making was
# interrupted has no pip, and is made anew.
need_venv() {
    local package missing=()
    if ! venv_has "$1" pip; then
        want_python
        install_wanted
        python3 -m venv --clear -- "$1"
    fi
    for package in "${@:2}"; do
        venv_has "$1" "$package" || missing+=("$package")
    done
    ((${#missing[@]} == 0)) || venv_install "$1" "${missing[@]}"
}

# build_python VENV [OPTION...]: builds the wheel of the Python package and installs it in a virtual
# environment.
build_python() {
    local wheels
    need_rust
    need_venv "$1" maturin numpy
    wheels=$(mktemp -d -- "$target/wheels.XXXXXX")
    "$1/bin/maturin" build --locked --quiet --manifest-path python/Cargo.toml --out "$wheels" \
        --interpreter "$1/bin/python" "${@:2}"
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
        --force-reinstall "$wheels"/*.whl
    rm -r -- "$wheels"
}

# The tests of the Python package run tests of exca, and depend on what other packages do in detail. So a new version of
# one of them is a change of this file.
python_lock=$root/python/tests/requirements.lock

# need_locked VENV PACKAGE...: like need_venv, in the versions of the lock file.
need_locked() {
    local package pin pins=()
    for package in "${@:2}"; do
        pin=$(grep -m1 -- "^$package==" "$python_lock") || die "$python_lock does not name $package"
        pins+=("$pin")
    done
    PIP_CONSTRAINT=$python_lock need_venv "$1" "${pins[@]}"
}

# need_python_tests VENV: builds the Python package in this environment, and sets up what its tests need.
need_python_tests() {
    need_locked "$1" exca hypothesis maturin ml_dtypes mypy numpy pandas pillow pyarrow pytest safetensors
    need_engines "$1"
    build_python "$1"
    # Runs Python with few rights and small limits. Built with the features of the tests, whose libraries it shares.
    # `test-server` is the store of the tests of URLs.
    cargo build --locked --workspace --all-features --bin surroundings --bin test-server
    export RINGMAIN_SURROUNDINGS=$target/debug/surroundings RINGMAIN_TEST_SERVER=$target/debug/test-server
}

# Torch takes several gigabytes, because the only wheel for Linux on x86-64 depends on the libraries of CUDA. So torch,
# torchdata and Ray are only installed if RINGMAIN_TEST_TORCH is 1; then no test that needs them may be skipped, nor the
# tests of exca that need torch and the packages after Ray. Without it, the tests run that need what is installed, and
# pytest lists those that it skipped.
need_engines() {
    if [[ ${RINGMAIN_TEST_TORCH:-} == 1 ]]; then
        need_locked "$1" torch torchdata ray mne nibabel psutil pybv
        return
    fi
    venv_has "$1" torch && venv_has "$1" torchdata && venv_has "$1" ray ||
        printf 'tests with torch, torchdata or Ray are left out; RINGMAIN_TEST_TORCH=1 installs them (6 GB, some minutes)\n'
}

# Wants the programs that tests run: strace to make system calls fail, Chromium to open the report, and fio for
# comparisons. The other packages make the filesystems that the tests mount as root.
want_test_programs() {
    want strace=strace xfsprogs=mkfs.xfs btrfs-progs=mkfs.btrfs squashfs-tools=mksquashfs \
        mount=losetup util-linux=setpriv chromium=chromium fio=fio
}

# Sets up what the tests find through variables. With these, a test fails if it cannot find a program, instead of
# passing without a check.
need_test_programs() {
    # Independent programs that read the files that Ringmain writes, in their own environment.
    need_venv "$target/venv" 'hdrhistogram~=0.10.3' 'jsonschema~=4.20' numpy
    export RINGMAIN_PYTHON=$target/venv/bin/python
    # NVIDIA's cuFile, for the test of its binding. Later versions never return from opening if there is no driver.
    need_venv "$target/venv" 'nvidia-cufile-cu12==1.14.1.1'
    RINGMAIN_CUFILE_LIBRARY=$(find "$target/venv" -name libcufile.so.0)
    # cuFile writes a log to the current directory otherwise.
    export RINGMAIN_CUFILE_LIBRARY CUFILE_LOGFILE_PATH=$target/cufile.log
    export RINGMAIN_REQUIRE_CHROMIUM=1 RINGMAIN_REQUIRE_PYTHON=1
}

# venv_has FOLDER PACKAGE: tells whether the package is installed: the version after `==`, or else any.
venv_has() {
    local name=${2%%[<=>~]*} found
    found=$("$1/bin/python" -c 'import importlib.metadata as m, sys; print(m.version(sys.argv[1]))' "$name" 2>/dev/null) ||
        return
    [[ $2 != *==* || $2 == *=="$found" ]]
}

# venv_install FOLDER PACKAGE...: installs packages. It uses `python -m pip`, because the script `pip` contains
# the path where the environment was made, and in a copied environment it would change the original.
venv_install() {
    "$1/bin/python" -m pip --quiet --disable-pip-version-check install "${@:2}"
}

# Builds ffcv from source in its own environment, `$ffcv_venv`.
need_ffcv() {
    ffcv_venv=$target/ffcv
    "$ffcv_venv/bin/python" -c 'import ffcv' 2>/dev/null && return
    install_missing g++=g++ pkg-config=pkg-config libopencv-dev=/usr/include/opencv4/opencv2/opencv.hpp \
        libturbojpeg0-dev=/usr/include/turbojpeg.h
    # ffcv's set-up needs setuptools, and torch and numpy must be installed before it is built.
    need_venv "$ffcv_venv" wheel 'setuptools<81' numpy pillow torch torchvision
    need_venv "$ffcv_venv" 'ffcv==1.0.2'
}

# Wants Debian's compiler with its sources, and the tools that build and run Windows programs.
want_portable() {
    want rustc-web cargo-web rust-web-src
    runs_windows_programs || return 0
    want gcc-mingw-w64-x86-64=x86_64-w64-mingw32-gcc wine64=/usr/lib/wine/wine64
}

# Tells whether Windows programs can run here. Wine does not emulate a processor.
runs_windows_programs() {
    [[ $(uname -m) == x86_64 ]]
}
