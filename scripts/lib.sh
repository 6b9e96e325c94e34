# shellcheck shell=bash
# What the scripts share. Sourced, never run; leaves the caller at the top of the repository.

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
cd -- "$root" || exit

# mkfs.* and losetup are not on an ordinary user's path.
PATH=$PATH:/usr/sbin:/sbin
# Nor is rustup's cargo on that of a shell older than itself. It goes in front: the portable checks
# install a Debian one as /usr/bin/cargo.
cargo_bin=${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
[[ :$PATH: == *:$cargo_bin:* ]] || PATH=$cargo_bin:$PATH

# Absolute, because Wine and the tests look at it from other directories.
# shellcheck disable=SC2034 # for those who source this
target=$(realpath -m -- "${CARGO_TARGET_DIR:-target}")

current_step=
step_times=()

# step NAME COMMAND...: announces a step, runs it, says how long it took.
step() {
    local started=$SECONDS cpu_started taken cpu
    cpu_started=$(cpu_seconds)
    current_step=$1
    printf '\n== %s\n' "$current_step"
    "${@:2}"
    taken=$((SECONDS - started)) cpu=$(($(cpu_seconds) - cpu_started))
    printf -- '-- %s: %d s, %d s of processor time\n' "$current_step" "$taken" "$cpu"
    step_times+=("$(printf '%5d s %5d s  %s' "$taken" "$cpu" "$current_step")")
    current_step=
}

# Processor time of this script's finished commands, which proc(5) counts in hundredths of a second.
# 0 where there is no /proc.
cpu_seconds() {
    local stat=()
    [[ -r /proc/$$/stat ]] && read -ra stat </proc/$$/stat
    echo $(((${stat[15]:-0} + ${stat[16]:-0}) / 100))
}

# For the EXIT trap: where the time went, and at last what happened, however far above the cause
# scrolled.
report_end() {
    local status=$?
    if ((${#step_times[@]} > 1)); then
        printf '\n   took processors  step\n'
        printf '%s\n' "${step_times[@]}"
    fi
    if ((status == 0)); then
        printf '\n%s: passed in %d s\n' "${0##*/}" "$SECONDS"
    else
        printf '\n%s: FAILED in step "%s" after %d s\n' \
            "${0##*/}" "${current_step:-set-up}" "$SECONDS" >&2
    fi
}

# A script that is stopped has not passed: without these, the EXIT trap would see the status of the
# last command that ended.
trap 'exit 130' INT
trap 'exit 143' TERM

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# Debian packages that the caller needs, each as PACKAGE=PROBE. They are collected first, so that they
# are installed, or named to a user who cannot install them, all at once.
wanted=()

# want PACKAGE[=PROBE]...: the probe is a command or an absolute path. Without a probe, dpkg is asked
# for the package.
want() {
    wanted+=("$@")
}

# Installs those of the wanted packages whose probe is not there. Touches neither the network nor the
# package manager if nothing is missing.
install_wanted() {
    local pair missing=()
    for pair in "${wanted[@]}"; do
        is_there "${pair#*=}" || [[ " ${missing[*]} " == *" ${pair%%=*} "* ]] ||
            missing+=("${pair%%=*}")
    done
    wanted=()
    ((${#missing[@]})) || return 0
    command -v apt-get >/dev/null ||
        die "no apt-get here; please install what your system calls these: ${missing[*]}"
    if ((EUID == 0)) || command -v sudo >/dev/null; then
        apt_update_once
    else
        check_debian_rust "${missing[@]}"
        die "only root can install what is missing here: $(install_line "${missing[@]}")"
    fi
    check_debian_rust "${missing[@]}"
    printf 'installing: %s\n' "${missing[*]}"
    # --no-remove: never trade a package of the user's for one of ours.
    apt_get install --yes --no-install-recommends --no-remove "${missing[@]}" ||
        die "please install what is missing here: $(install_line "${missing[@]}")"
}

# install_missing PACKAGE[=PROBE]...: these at once.
install_missing() {
    want "$@"
    install_wanted
}

# install_line PACKAGE...: what root has to run. A fresh system has no lists of packages, or old ones.
# shellcheck disable=SC2016 # the quotes are for people
install_line() {
    printf '`'
    [[ " $* " != *" rustc-web "* ]] || ! lacks_new_rust_suite ||
        printf "echo 'deb http://deb.debian.org/debian-security bookworm-security main'%s && " \
            ' >>/etc/apt/sources.list'
    printf 'apt-get update && apt-get install --no-install-recommends %s`' "$*"
}

# Debian 12 has a new Rust among its security updates only.
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

# A mirror that does not answer is no reason to stop: what is wanted may be listed already, and
# if not, the installation fails and says so.
apt_update_once() {
    [[ -z ${apt_updated:-} ]] || return 0
    apt_get update || printf 'apt-get update failed; trying with the lists at hand\n' >&2
    apt_updated=yes
}

# The lock wait is for machines that upgrade themselves just after boot.
apt_get() {
    local as_root=()
    ((EUID == 0)) || as_root=(sudo)
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" </dev/null >/dev/null
}

rust_min=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)

# want_rust [COMPONENT...]: Rust and what it links with. Where there is no cargo, Debian's newest, with
# the components `fmt` and `clippy`. Rustup's are added by `need_component`.
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

# Cargo itself says so too, but not what to do.
check_rust() {
    local version way_out='install a newer one, for example with rustup'
    version=$(rustc --version | sed 's/^rustc \([0-9.]*\).*/\1/')
    # shellcheck disable=SC2016 # the quotes are for people
    ! command -v rustup >/dev/null || way_out='`rustup update`'
    is_at_least "$version" "$rust_min" ||
        die "this is Rust $version, and $rust_min or newer is needed: $way_out"
}

# check_debian_rust MISSING...: whether the Rust that would be installed is new enough. A user without
# lists of packages cannot know.
check_debian_rust() {
    local version way_out='install a newer one, for example with rustup'
    [[ " $* " == *" rustc-web "* ]] || return 0
    version=$(apt-cache policy rustc-web | sed -n 's/^ *Candidate: \([0-9.]*\).*/\1/p')
    [[ $version ]] || ((EUID == 0)) || return 0
    ! is_at_least "${version:-0}" "$rust_min" || return 0
    ! is_debian_12 || way_out="as root, run $(install_line "$@")"
    die "Rust $rust_min or newer is needed, and the package lists here have ${version:-none}: $way_out"
}

is_at_least() {
    [[ $(printf '%s\n' "$1" "$2" | sort -V | head -1) == "$2" ]]
}

# shellcheck disable=SC2119
need_rust() {
    want_rust
    install_wanted
}

# need_component COMPONENT PACKAGE: rustup's minimal profile comes without clippy and rustfmt.
need_component() {
    cargo "$1" --version >/dev/null 2>&1 && return
    command -v rustup >/dev/null || die "cargo $1 is missing; please install $2"
    rustup component add "$2"
}

# The `ringmain` command, optimised.
build_ringmain() {
    need_rust
    cargo build --locked --release --package ringmain-bench
}

# Debian's python3 comes without the module that makes environments.
want_python() {
    want python3=python3
    python3 -c 'import ensurepip' 2>/dev/null || want python3-venv
}

# need_venv FOLDER PACKAGE...: a virtual environment of the project's own with these packages.
need_venv() {
    local package missing=()
    if [[ ! -x $1/bin/python ]]; then
        want_python
        install_wanted
        python3 -m venv -- "$1"
    fi
    for package in "${@:2}"; do
        venv_has "$1" "$package" || missing+=("$package")
    done
    ((${#missing[@]} == 0)) || venv_install "$1" "${missing[@]}"
}

# build_python VENV [OPTION...]: the Python package in a virtual environment, as its wheel has it.
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

# venv_has FOLDER PACKAGE: whether some version of it is there.
venv_has() {
    local name=${2%%[<=>~]*}
    "$1/bin/python" -c 'import importlib.metadata as m, sys; m.version(sys.argv[1])' "$name" \
        2>/dev/null
}

# By `python -m pip`: the script `pip` names the folder that the environment was made in, and in a
# copy of it would change the original.
# venv_install FOLDER PACKAGE...
venv_install() {
    "$1/bin/python" -m pip --quiet --disable-pip-version-check install "${@:2}"
}

# ffcv, which is built from source, in an environment of its own: `$ffcv_venv`.
need_ffcv() {
    ffcv_venv=$target/ffcv
    "$ffcv_venv/bin/python" -c 'import ffcv' 2>/dev/null && return
    install_missing g++=g++ pkg-config=pkg-config libopencv-dev=/usr/include/opencv4/opencv2/opencv.hpp \
        libturbojpeg0-dev=/usr/include/turbojpeg.h
    # ffcv's set-up wants setuptools, and is built where torch and numpy are there already.
    need_venv "$ffcv_venv" wheel 'setuptools<81' numpy pillow torch torchvision
    need_venv "$ffcv_venv" 'ffcv==1.0.2'
}

# Debian's compiler with its sources, and what builds and runs Windows programs.
want_portable() {
    want rustc-web cargo-web rust-web-src
    runs_windows_programs || return 0
    want gcc-mingw-w64-x86-64=x86_64-w64-mingw32-gcc wine64=/usr/lib/wine/wine64
}

# Wine runs programs; it does not emulate a processor.
runs_windows_programs() {
    [[ $(uname -m) == x86_64 ]]
}
