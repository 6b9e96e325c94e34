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

# install_missing PACKAGE[=PROBE]...: installs the Debian packages whose probe (a command or an
# absolute path; the package itself when left out) is not there. Touches neither the network nor
# the package manager when nothing is missing.
install_missing() {
    local pair missing=()
    for pair in "$@"; do
        is_there "${pair#*=}" || missing+=("${pair%%=*}")
    done
    ((${#missing[@]})) || return 0
    command -v apt-get >/dev/null || die "no apt-get here; please install: ${missing[*]}"
    ((EUID == 0)) || command -v sudo >/dev/null ||
        die "neither root nor sudo here; please install: ${missing[*]}"
    printf 'installing: %s\n' "${missing[*]}"
    apt_update_once
    # --no-remove: never trade a package of the user's for one of ours.
    apt_get install --yes --no-install-recommends --no-remove "${missing[@]}"
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

# Rust itself is the one thing that is not ours to install; what it links with is.
need_rust() {
    command -v cargo >/dev/null || die "no cargo here; please install Rust first"
    install_missing gcc=cc libc6-dev=/usr/include/stdlib.h
}

# need_component NAME COMMAND: rustup's minimal profile comes without clippy and rustfmt.
need_component() {
    cargo "$2" --version >/dev/null 2>&1 && return
    command -v rustup >/dev/null || die "cargo $2 is missing; please install $1"
    rustup component add "$1"
}

# The `ringmain` command, optimised.
build_ringmain() {
    need_rust
    cargo build --locked --release --package ringmain-bench
}

# need_venv FOLDER PACKAGE...: a virtual environment of the project's own with these packages.
need_venv() {
    install_missing python3=python3
    if [[ ! -x $1/bin/python ]]; then
        # Debian's python3 comes without the module that makes environments.
        python3 -m ensurepip --version >/dev/null 2>&1 || install_missing python3-venv
        python3 -m venv -- "$1"
    fi
    local package
    for package in "${@:2}"; do
        venv_has "$1" "$package" || venv_install "$1" "$package"
    done
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

# By `python -m pip`: the script `pip` names the folder that the environment was made in, and in a
# copy of it would change the original.
venv_has() {
    "$1/bin/python" -m pip --quiet show "$2" >/dev/null 2>&1
}

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
    need_venv "$ffcv_venv" wheel 'setuptools<81' numpy pillow torch torchvision 'ffcv==1.0.2'
}
