#!/usr/bin/env bash
# Compares Ringmain with the packages that Python loaders use today, on the same files, in interleaved rounds.
# Prints medians and ratios. Packages that cannot be installed are left out, with a message.
#
#   views     the windows of the `views` workload, with np.memmap and exca's ContiguousMemmap
#   python    the Python package, np.memmap and exca: windows of three sizes, and batches of them
#   loader    a torch DataLoader over `ShardDataset` and one over np.memmap, cold
#   ranks     torchrun with 2 and 4 processes on this machine, the workers of one process, and nodes with a cache each
#   beton     the batches of the `samples` workload, with ffcv (which needs torch, several GB)
#   images    JPEGs of a .beton file, decoded and cropped by two threads, with ffcv
#   weights   all tensors of a cold model: `Weights::read_all`, `Weights::load` and Python's `load_file`
#             compared with safetensors, fastsafetensors (without GPU Direct Storage) and fio's
#             sequential direct reads
#   datafusion  scans of parquet files with the reader under DataFusion's scans, through RingmainStore and through
#             LocalFileSystem (examples/parquet-scan)
#
#   scripts/vs-peers.sh [--part NAME]... [--model-bytes N] [--rounds N] [FOLDER]
#
# The versions of the packages are those of scripts/peers/requirements.lock, unless others are installed already.
# FOLDER is where the data is made (1 GiB for a part, 8 GiB for `ranks`, and a model of 2.4 GB); default: the target folder.
# fastsafetensors needs torch. For x86-64, pip installs its CUDA build of several GB.
set -euo pipefail
parts=()
model_bytes=2400MB
rounds=()
directory=
while (($#)); do
    case $1 in
    --part)
        case ${2:-} in
        views | python | loader | ranks | beton | images | weights | datafusion) parts+=("$2") ;;
        *)
            printf "%s: --part needs views, python, loader, ranks, beton, images, weights or datafusion, not '%s'\n" \
                "${0##*/}" "${2:-}" >&2
            exit 2
            ;;
        esac
        shift 2
        ;;
    --model-bytes) model_bytes=${2:?--model-bytes needs a size} && shift 2 ;;
    --rounds)
        if ! [[ ${2:-} =~ ^[1-9][0-9]*$ ]]; then
            printf '%s: --rounds needs a number\n' "${0##*/}" >&2
            exit 2
        fi
        rounds=("$2")
        shift 2
        ;;
    -*) printf '%s: unknown option %s\n' "${0##*/}" "$1" >&2 && exit 2 ;;
    *) directory=$(realpath -- "$1") && shift ;;
    esac
done
((${#parts[@]})) || parts=(views python loader ranks beton images weights datafusion)
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
scratch=
trap 'report_end; rm -rf -- "$scratch"' EXIT

venv=$target/peers
# The Python scripts share a module. Its compiled form must not appear among the sources.
export PYTHONDONTWRITEBYTECODE=1
ringmain=$target/release/ringmain

# pinned COMMAND...: pip installs the versions of the lock file meanwhile.
pinned() {
    PIP_CONSTRAINT=$root/scripts/peers/requirements.lock "$@"
}

set_up() {
    need_rust
    pinned need_venv "$venv" numpy
    directory=${directory:-$target}
    scratch=$(mktemp -d -- "$directory/ringmain-peers.XXXXXX")
}

# wish PACKAGE...: installs packages. A package that cannot be installed is left out.
wish() {
    local package
    for package in "$@"; do
        venv_has "$venv" "$package" || pinned venv_install "$venv" "$package" ||
            printf '%s cannot be installed: left out\n' "$package" >&2
    done
}

views() {
    wish exca
    "$ringmain" gen raw "$scratch/views.bin" --bytes 1GiB
    "$venv/bin/python" scripts/peers/views.py "$ringmain" "$scratch/views.bin" "${rounds[@]}"
    rm -- "$scratch/views.bin"
}

python() {
    wish exca
    pinned build_python "$venv" --release
    "$ringmain" gen raw "$scratch/views.bin" --bytes 1GiB
    "$venv/bin/python" scripts/peers/python_views.py "$scratch/views.bin" "${rounds[@]}"
    rm -- "$scratch/views.bin"
}

loader() {
    wish torch
    if ! venv_has "$venv" torch; then
        return
    fi
    pinned build_python "$venv" --release
    "$ringmain" gen shards "$scratch/shards" --rows 524288 --width 1024 --shards 8
    "$venv/bin/python" scripts/peers/loader.py "$scratch/shards" "${rounds[@]}"
    rm -r -- "$scratch/shards"
}

ranks() {
    wish torch
    if ! venv_has "$venv" torch; then
        return
    fi
    pinned build_python "$venv" --release
    "$ringmain" gen shards "$scratch/shards" --rows 262144 --width 4096 --shards 8
    "$venv/bin/python" scripts/peers/ranks.py "$scratch/shards" "${rounds[@]}"
    rm -r -- "$scratch/shards"
}

weights() {
    pinned need_venv "$venv" safetensors
    pinned build_python "$venv" --release
    install_missing fio=fio
    wish torch fastsafetensors
    cargo build --locked --release --package ringmain --features direct,uring,safetensors \
        --example load_model
    # F16, because NumPy has no BF16.
    "$ringmain" gen safetensors "$scratch/model.safetensors" --bytes "$model_bytes" --dtypes F16
    "$venv/bin/python" scripts/peers/weights.py "$target/release/examples/load_model" \
        "$scratch/model.safetensors" "${rounds[@]}"
    rm -- "$scratch/model.safetensors"
}

beton() {
    # A subshell, so that a failure does not end the script.
    if ! (need_ffcv); then
        printf 'ffcv cannot be installed: left out\n' >&2
        return
    fi
    need_ffcv
    "$ringmain" gen beton "$scratch/samples.beton" --samples 22000 --sample-bytes 48KiB
    "$ffcv_venv/bin/python" scripts/peers/beton.py \
        "$ringmain" "$scratch/samples.beton" "${rounds[@]}"
    rm -- "$scratch/samples.beton"
}

# Ringmain decodes with libjpeg-turbo, as ffcv does.
images() {
    # A subshell, so that a failure does not end the script.
    if ! (need_ffcv); then
        printf 'ffcv cannot be installed: left out\n' >&2
        return
    fi
    need_ffcv
    need_all_features
    pinned build_python "$ffcv_venv" --release --features turbojpeg
    "$ffcv_venv/bin/python" scripts/peers/images.py --generate "$scratch/images.beton" 8000
    "$ffcv_venv/bin/python" scripts/peers/images.py "$scratch/images.beton" "${rounds[@]}"
    rm -- "$scratch/images.beton"
}

datafusion() {
    cargo build --locked --release --manifest-path examples/parquet-scan/Cargo.toml --target-dir "$target"
    "$target/release/parquet-scan" generate "$scratch/parquet" 1024
    "$venv/bin/python" scripts/peers/datafusion.py "$target/release/parquet-scan" "$scratch/parquet" "${rounds[@]}"
    rm -r -- "$scratch/parquet"
}

step set-up set_up
step build build_ringmain
for part in "${parts[@]}"; do
    step "$part" "$part"
done
