"""Compares safetensors, fastsafetensors and Ringmain: all tensors of a cold model are loaded into memory. The
rounds are interleaved, each measurement runs in its own process, and fio is measured too.

python weights.py LOAD_MODEL FILE [ROUNDS]
python weights.py --one PEER FILE      makes one measurement and prints it as JSON
"""

import importlib.util
import json
import random
import statistics
import subprocess
import sys
import time

from page_cache import cached_pages, make_cold, make_warm

PAGE_BYTES = 4096
ROUNDS = 5
# How many pages a load past the page cache may leave in it: those of the header.
LEFT_PAGES_MAX = 64


def words_sum(bytes_of_tensors):
    """Returns the sum of the bytes as little-endian words, as `load_model` computes it."""
    import numpy as np

    total = 0
    for data in bytes_of_tensors:
        data = np.asarray(data).reshape(-1).view(np.uint8)
        whole = len(data) // 8 * 8
        total += int(data[:whole].view("<u8").sum(dtype=np.uint64))
        total += int.from_bytes(data[whole:].tobytes(), "little")
    return total % 2**64


def torch_bytes(tensors):
    import torch

    return [tensor.contiguous().view(-1).view(torch.uint8).numpy() for tensor in tensors]


def numpy_file(path):
    """The NumPy loader of safetensors, which maps the file and copies every tensor."""
    from safetensors.numpy import load_file

    return lambda: list(load_file(path).values()), lambda arrays: arrays


def torch_mapped(path):
    """The torch loader of safetensors. Its tensors are in the mapping, so every page is touched."""
    from safetensors.torch import load_file

    def load():
        tensors = torch_bytes(load_file(path).values())
        for data in tensors:
            int(data[::PAGE_BYTES].sum())
        return tensors

    return load, lambda arrays: arrays


def torch_pread(path):
    """The torch loader of safetensors with pread(2) in place of the mapping."""
    from safetensors.torch import load_file

    load = lambda: torch_bytes(load_file(path, backend="pread").values())
    return load, lambda arrays: arrays


def fast(path):
    """fastsafetensors without GPU Direct Storage, into host memory."""
    from fastsafetensors import SafeTensorsFileLoader

    # The constructor looks for CUDA's libraries, which is not part of reading.
    loader = SafeTensorsFileLoader(None, device="cpu", nogds=True)

    def load():
        loader.add_filenames({0: [path]})
        buffers = loader.copy_files_to_device()
        tensors = [buffers.get_tensor(name) for name in loader.get_keys()]
        # The buffers must outlive the tensors.
        return buffers, tensors

    return load, lambda loaded: torch_bytes(loaded[1])


def ringmain_numpy(path):
    """The `load_file` of Ringmain's Python package."""
    from ringmain.safetensors.numpy import load_file

    return lambda: list(load_file(path).values()), lambda arrays: arrays


def ringmain_torch(path):
    from ringmain.safetensors.torch import load_file

    return lambda: torch_bytes(load_file(path).values()), lambda arrays: arrays


# The loaders, each with the modules that it needs besides safetensors and NumPy.
PEERS = {
    "safetensors mmap (numpy copy)": (numpy_file, []),
    "safetensors mmap (torch, touched)": (torch_mapped, ["torch"]),
    "safetensors pread (torch)": (torch_pread, ["torch"]),
    "fastsafetensors (no GDS)": (fast, ["torch", "fastsafetensors"]),
}

# The loaders of Ringmain's Python package, measured in the same way.
OURS_IN_PYTHON = {
    "ringmain load_file (numpy)": (ringmain_numpy, ["ringmain"]),
    "ringmain load_file (torch)": (ringmain_torch, ["ringmain", "torch"]),
}

# The arguments of `load_model`, and how often it loads the model: only the last load counts.
OURS = {
    "ringmain uring": (["--backend", "uring"], 1),
    "ringmain uring, load()": (["--backend", "uring", "--stream"], 1),
    "ringmain auto": (["--backend", "auto"], 1),
    "ringmain uring, recycled": (["--backend", "uring", "--recycled"], 2),
}
FIO = [("fio direct 1M, depth 8", 8), ("fio direct 1M, depth 32", 32)]


def one(peer, path):
    load, contents = (PEERS | OURS_IN_PYTHON)[peer][0](path)
    # The file is made cold after the imports. The host takes a guest's free memory back within seconds, and
    # a loader that gets memory that was just freed is faster. So all loaders must start at the same point.
    make_cold(path)
    started = time.perf_counter()
    loaded = load()
    seconds = time.perf_counter() - started
    arrays = contents(loaded)
    total = sum(array.nbytes for array in arrays)
    print(json.dumps({"bytes": total, "seconds": seconds, "sum": words_sum(arrays)}))


def last_line(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure_peer(peer, path):
    make_warm(path)
    return last_line([sys.executable, __file__, "--one", peer, path])


def measure_ours(load_model, name, path):
    args, models = OURS[name]
    make_warm(path)
    make_cold(path)
    found = last_line([load_model, *args, *[path] * models])
    # A second load is cold only if the first went past the page cache.
    if models > 1 and cached_pages(path) > LEFT_PAGES_MAX:
        sys.exit(f"{name}: the first load left {path} in the page cache")
    return found


def measure_fio(depth, path):
    make_cold(path)
    command = ["fio", "--name=peer", "--readonly", "--rw=read", "--bs=1M", "--ioengine=io_uring"]
    command += ["--direct=1", f"--iodepth={depth}", "--thread", "--invalidate=0"]
    # For fio, a colon separates file names.
    command += ["--output-format=json", "--filename=" + path.replace(":", "\\:")]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    read = json.loads(done.stdout[done.stdout.index(b"{") :])["jobs"][0]["read"]
    return {"bytes": read["io_bytes"], "seconds": read["runtime"] / 1000}


def main():
    load_model, path = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else ROUNDS
    peers, in_python = importable(PEERS), importable(OURS_IN_PYTHON)
    ways = {name: lambda name=name: measure_peer(name, path) for name in [*peers, *in_python]}
    ways |= {name: lambda name=name: measure_ours(load_model, name, path) for name in OURS}
    ways |= {name: lambda depth=depth: measure_fio(depth, path) for name, depth in FIO}
    found = {name: [] for name in ways}
    sums = {}
    for number in range(rounds):
        # Each loader gets the memory that the last one freed, and that matters, so the order is shuffled.
        names = list(ways)
        random.Random(number).shuffle(names)
        for name in names:
            result = ways[name]()
            found[name].append(result["bytes"] / result["seconds"])
            if "sum" in result:
                sums.setdefault((result["bytes"], result["sum"]), name)
    if len(sums) != 1:
        sys.exit(f"the loaders do not return the same bytes: {sums}")
    show(found, peers, [*OURS, *in_python], rounds)


def importable(loaders):
    """Returns the names of the loaders whose modules are installed, and prints those that are left out."""
    names = []
    for name, (_, needed) in loaders.items():
        missing = [module for module in needed if importlib.util.find_spec(module) is None]
        if missing:
            print(f"{name}: left out, {' and '.join(missing)} cannot be imported here")
        else:
            names.append(name)
    return names


def show(found, peers, ours, rounds):
    rates = {name: statistics.median(runs) for name, runs in found.items()}
    print(f"\nall tensors into memory, cold (medians of {rounds} interleaved rounds)")
    print(f"{'':36} {'GB/s':>7} {'range':>15}")
    for name, rate in rates.items():
        spread = f"{min(found[name]) / 1e9:.2f} to {max(found[name]) / 1e9:.2f}"
        print(f"{name:36} {rate / 1e9:7.2f} {spread:>15}")
    print("\nratios of the medians")
    for our in ours:
        for other in [*peers, *(name for name, _ in FIO)]:
            print(f"{our:26} / {other:36} {rates[our] / rates[other]:6.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(*sys.argv[2:4])
    else:
        main()
