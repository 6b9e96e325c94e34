"""Compares ffcv and Ringmain on batches of samples of a .beton file in random order, in interleaved rounds.

python beton.py RINGMAIN FILE [ROUNDS]

Cold rounds use ffcv's process cache, warm rounds its OS cache. Each timed epoch of ffcv is the second one of
its process, so that no compilation is timed. In cold rounds the file is dropped from the page cache in
between.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from page_cache import make_cold, make_warm

BATCH = 256
ROUNDS = 5
BACKENDS = ["auto", "uring", "pread", "mmap"]


def ffcv_epoch(path, state):
    """Returns the bytes per second of an epoch in this process."""
    from ffcv.loader import Loader, OrderOption

    loader = Loader(
        path,
        batch_size=BATCH,
        num_workers=os.cpu_count(),
        order=OrderOption.RANDOM,
        os_cache=state == "warm",
        drop_last=False,
    )
    for _ in loader:
        pass
    make_cold(path) if state == "cold" else make_warm(path)
    started, total = time.perf_counter(), 0
    for data, _label in loader:
        total += data.nbytes
    return total / (time.perf_counter() - started)


def ffcv_rate(path, state):
    command = [sys.executable, __file__, "--epoch", path, state]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout.splitlines()[-1])


def ringmain_rate(ringmain, path, backend, state, seed):
    """Returns the bytes per second of `ringmain bench`, which verifies the cache state itself."""
    with tempfile.TemporaryDirectory() as out:
        command = [ringmain, "bench", "--file", path, "--workloads", "samples", "--json"]
        command += ["--backends", backend, "--cache", state, "--seed", str(seed)]
        command += ["--repetitions", "1", "--seconds", "1", "--out", out]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    cells = json.loads(done.stdout)["cells"]
    (cell,) = [cell for cell in cells if cell["setting"]["variant"] == "random"]
    if not cell["valid"]:
        sys.exit(f"{backend} {state}: {cell['invalid_reason']}")
    return cell["throughput_bytes_per_s"]


def main():
    ringmain, path = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else ROUNDS
    for state, peer in (("cold", "ffcv process cache"), ("warm", "ffcv OS cache")):
        rates = {name: [] for name in [peer, *(f"ringmain {name}" for name in BACKENDS)]}
        for seed in range(rounds):
            rates[peer].append(ffcv_rate(path, state))
            for backend in BACKENDS:
                rate = ringmain_rate(ringmain, path, backend, state, seed)
                rates[f"ringmain {backend}"].append(rate)
        show(state, peer, rates, rounds)


def show(state, peer, rates, rounds):
    medians = {name: statistics.median(runs) for name, runs in rates.items()}
    print(f"\nbatches of {BATCH} samples, random, {state} (medians of {rounds} interleaved rounds)")
    print(f"{'':24} {'GB/s':>8} {'/ ffcv':>8}")
    for name, rate in medians.items():
        print(f"{name:24} {rate / 1e9:8.3f} {rate / medians[peer]:8.2f}")


if __name__ == "__main__":
    if sys.argv[1] == "--epoch":
        print(json.dumps(ffcv_epoch(*sys.argv[2:])))
    else:
        main()
