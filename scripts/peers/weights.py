"""All tensors of a model into memory, cold: safetensors, fastsafetensors and Ringmain, interleaved,
each measurement in a process of its own, with fio's rate beside.

python weights.py LOAD_MODEL FILE [ROUNDS]
python weights.py --one PEER FILE      one measurement, as JSON
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
# What a load brings past the page cache may leave in it: the header.
LEFT_PAGES_MAX = 64


def words_sum(bytes_of_tensors):
    """The sum of the bytes as little-endian words, as `load_model` computes it."""
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
    """safetensors' own loader for NumPy: maps the file and copies every tensor out of it."""
    from safetensors.numpy import load_file

    return lambda: list(load_file(path).values()), lambda arrays: arrays


def torch_mapped(path):
    """safetensors' own loader for torch: tensors are the mapping; every page of them is touched."""
    from safetensors.torch import load_file

    def load():
        tensors = torch_bytes(load_file(path).values())
        for data in tensors:
            int(data[::PAGE_BYTES].sum())
        return tensors

    return load, lambda arrays: arrays


def torch_pread(path):
    """The same with pread(2) in place of the mapping."""
    from safetensors.torch import load_file

    load = lambda: torch_bytes(load_file(path, backend="pread").values())
    return load, lambda arrays: arrays


def fast(path):
    """fastsafetensors without GPU Direct Storage, into the memory of the processor."""
    from fastsafetensors import SafeTensorsFileLoader

    # It looks for CUDA's libraries first, which is no part of reading.
    loader = SafeTensorsFileLoader(None, device="cpu", nogds=True)

    def load():
        loader.add_filenames({0: [path]})
        buffers = loader.copy_files_to_device()
        tensors = [buffers.get_tensor(name) for name in loader.get_keys()]
        # What they lie in must outlive them.
        return buffers, tensors

    return load, lambda loaded: torch_bytes(loaded[1])


def ringmain_numpy(path):
    """The same call of the Python package."""
    from ringmain.safetensors.numpy import load_file

    return lambda: list(load_file(path).values()), lambda arrays: arrays


def ringmain_torch(path):
    from ringmain.safetensors.torch import load_file

    return lambda: torch_bytes(load_file(path).values()), lambda arrays: arrays


# What each needs beside safetensors and NumPy.
PEERS = {
    "safetensors mmap (numpy copy)": (numpy_file, []),
    "safetensors mmap (torch, touched)": (torch_mapped, ["torch"]),
    "safetensors pread (torch)": (torch_pread, ["torch"]),
    "fastsafetensors (no GDS)": (fast, ["torch", "fastsafetensors"]),
}

# The Python package, beside the others in all things.
OURS_IN_PYTHON = {
    "ringmain load_file (numpy)": (ringmain_numpy, ["ringmain"]),
    "ringmain load_file (torch)": (ringmain_torch, ["ringmain", "torch"]),
}

# Arguments of `load_model`, and how many models of the same file are loaded: the last one counts.
OURS = {
    "ringmain uring": (["--backend", "uring"], 1),
    "ringmain uring, load()": (["--backend", "uring", "--stream"], 1),
    "ringmain auto": (["--backend", "auto"], 1),
    "ringmain uring, recycled": (["--backend", "uring", "--recycled"], 2),
}
FIO = [("fio direct 1M, depth 8", 8), ("fio direct 1M, depth 32", 32)]


def one(peer, path):
    load, contents = (PEERS | OURS_IN_PYTHON)[peer][0](path)
    # After the imports: a guest's free memory goes back to its host within seconds, and whoever gets
    # what has just been freed is faster. All are to begin alike.
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
    # A colon would begin another file's name.
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
        # Whoever comes next gets the memory that the last one gave back, and that differs.
        names = list(ways)
        random.Random(number).shuffle(names)
        for name in names:
            result = ways[name]()
            found[name].append(result["bytes"] / result["seconds"])
            if "sum" in result:
                sums.setdefault((result["bytes"], result["sum"]), name)
    if len(sums) != 1:
        sys.exit(f"they do not bring the same bytes: {sums}")
    show(found, peers, [*OURS, *in_python], rounds)


def importable(loaders):
    """The names of those that have what they need; of others it is said."""
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
