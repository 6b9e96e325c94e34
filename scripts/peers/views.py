"""Compares np.memmap, exca and Ringmain on random windows of f32 arrays, cold and warm, interleaved.

python views.py RINGMAIN FILE [ROUNDS]
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

from page_cache import make_cold, make_warm

try:
    from exca.cachedict.contiguous import ContiguousMemmap
except ImportError:
    ContiguousMemmap = None

COLUMNS = 256
WINDOW_BYTES = 64 << 10
ROUNDS = 5
SECONDS = 1.0
BACKENDS = ["pread", "mmap+release", "uring"]


def rss_bytes():
    with open("/proc/self/status") as status:
        lines = [line.split() for line in status]
    return sum(int(line[1]) << 10 for line in lines if line[0] in ("RssAnon:", "RssFile:"))


def read_windows(path, wrap, state, seed):
    """Reads windows for a second and returns the bytes per second and the growth of memory."""
    rows_in_all = os.path.getsize(path) // (COLUMNS * 4)
    rows = WINDOW_BYTES // (COLUMNS * 4)
    array = np.memmap(path, dtype=np.float32, mode="r", shape=(rows_in_all, COLUMNS))
    view = wrap(array)
    starts = list(range(0, rows_in_all - rows + 1, rows))
    random.Random(seed).shuffle(starts)
    before, total, started = rss_bytes(), 0, time.perf_counter()
    while time.perf_counter() - started < SECONDS:
        for start in starts:
            total += np.array(view[start : start + rows]).nbytes
            if time.perf_counter() - started >= SECONDS:
                break
        if state == "cold":
            break  # a second pass would not be cold
    return total / (time.perf_counter() - started), rss_bytes() - before


def in_child(function, *args):
    """Runs a function in a forked child, so that its memory can be measured, and returns its result."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write_end, json.dumps(function(*args)).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text)


def ringmain_windows(ringmain, path, backend, state, seed):
    """Reads the same windows with `ringmain bench`, which verifies the cache state itself."""
    with tempfile.TemporaryDirectory() as out:
        command = [ringmain, "bench", "--file", path, "--workloads", "views", "--json"]
        command += ["--backends", backend, "--cache", state, "--seed", str(seed)]
        command += ["--repetitions", "1", "--seconds", str(SECONDS), "--out", out]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    (cell,) = json.loads(done.stdout)["cells"]
    if not cell["valid"]:
        sys.exit(f"{backend} {state}: {cell['invalid_reason']}")
    memory = [cell["rss_anon_bytes"], cell["rss_file_bytes"]]
    return cell["throughput_bytes_per_s"], sum(part["peak"] - part["start"] for part in memory)


def main():
    ringmain, path = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else ROUNDS
    peers = {"np.memmap": lambda array: array}
    if ContiguousMemmap is None:
        print("exca is not installed: left out")
    else:
        peers["exca"] = ContiguousMemmap
    for state in ("cold", "warm"):
        found = {name: [] for name in [*peers, *(f"ringmain {name}" for name in BACKENDS)]}
        for seed in range(rounds):
            for name, wrap in peers.items():
                make_cold(path) if state == "cold" else make_warm(path)
                found[name].append(in_child(read_windows, path, wrap, state, seed))
            for backend in BACKENDS:
                result = ringmain_windows(ringmain, path, backend, state, seed)
                found[f"ringmain {backend}"].append(result)
        show(state, found, rounds)


def show(state, found, rounds):
    rates = {name: statistics.median(rate for rate, _ in runs) for name, runs in found.items()}
    print(f"\n64 KiB windows, {state} (medians of {rounds} interleaved rounds)")
    print(f"{'':24} {'GB/s':>8} {'/ np.memmap':>12} {'memory':>10}")
    for name, rate in rates.items():
        grown = statistics.median(memory for _, memory in found[name])
        ratio = rate / rates["np.memmap"]
        print(f"{name:24} {rate / 1e9:8.3f} {ratio:12.2f} {grown / 2**20:+7.0f} MiB")


if __name__ == "__main__":
    main()
