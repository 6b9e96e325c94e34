"""Compares the Python package with np.memmap and exca: single windows, and batches of windows.

python python_views.py FILE [ROUNDS]
"""

import os
import random
import statistics
import sys
import time

import numpy as np
import ringmain
from views import in_child, make_cold, make_warm

try:
    from exca.cachedict.contiguous import ContiguousMemmap as Exca
except ImportError:
    Exca = None

COLUMNS = 256
ROW_BYTES = COLUMNS * 4
ROUNDS = 7
SECONDS = 0.4
BATCH = 256
BATCHES_COLD = 8
WINDOWS = {"2 KiB": 2 << 10, "64 KiB": 64 << 10, "1 MiB": 1 << 20}


def map_file(path):
    rows = os.path.getsize(path) // ROW_BYTES
    return np.memmap(path, dtype=np.float32, mode="r", shape=(rows, COLUMNS))


def windows(path, rows, seed):
    """Returns the first rows of all windows, in random order."""
    starts = list(range(0, os.path.getsize(path) // ROW_BYTES - rows + 1, rows))
    random.Random(seed).shuffle(starts)
    return starts


def read_windows(path, wrap, rows, seed):
    """Reads windows for a while, none of them twice, and returns the windows per second."""
    view = wrap(map_file(path))
    # A window of a mapping must be copied, because the other readers return copies too.
    read = np.array if wrap is map_only else np.asarray
    starts = windows(path, rows, seed)
    read(view[starts[-1] : starts[-1] + rows])  # the first read sets up buffers and files
    done, started = 0, time.perf_counter()
    for start in starts[:-1]:
        read(view[start : start + rows])
        done += 1
        if done % 16 == 0 and time.perf_counter() - started > SECONDS:
            break
    return done / (time.perf_counter() - started)


def read_batches(path, wrap, rows, seed):
    """Reads batches of windows and returns the batches per second."""
    view = wrap(map_file(path))
    starts = windows(path, rows, seed)

    def read_batch(starts):
        batch = [view[start : start + rows] for start in starts]
        if wrap is map_only or wrap is Exca:
            [np.array(window) for window in batch]
        else:
            ringmain.read_many(batch)

    read_batch(starts[-BATCH:])  # the first read sets up buffers: here 16 MiB of new memory
    started = time.perf_counter()
    for at in range(0, BATCH * BATCHES_COLD, BATCH):
        read_batch(starts[at : at + BATCH])
    return BATCHES_COLD / (time.perf_counter() - started)


def map_only(array):
    return array


def compare(title, path, state, rounds, read, *args):
    """Runs interleaved rounds, each in its own process, and prints medians and ratios."""
    readers = {"ringmain": ringmain.ContiguousMemmap, "np.memmap": map_only}
    if Exca is not None:
        readers["exca"] = Exca
    found = {name: [] for name in readers}
    for seed in range(rounds):
        for name, wrap in readers.items():
            make_cold(path) if state == "cold" else make_warm(path)
            found[name].append(in_child(read, path, wrap, *args, seed))
    rates = {name: statistics.median(runs) for name, runs in found.items()}
    ours = rates.pop("ringmain")
    text = "".join(f" {rate:12.0f} {ours / rate:8.2f}x" for rate in rates.values())
    print(f"{title:24} {state:5} {ours:12.0f}{text}", flush=True)
    return ours / rates["exca"] if "exca" in rates else None


def main():
    path = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    print(ringmain.Engine())
    if Exca is None:
        print("exca is not installed: left out")
    names = "".join(f" {name:>12} {'':9}" for name in ("np.memmap", "exca") if name != "exca" or Exca)
    print(f"\n{'per second':24} {'':5} {'ringmain':>12}{names}  (medians of {rounds} interleaved rounds)")
    for state in ("warm", "cold"):
        for name, size in WINDOWS.items():
            compare(f"windows of {name}", path, state, rounds, read_windows, size // ROW_BYTES)
    for state in ("cold", "warm"):
        compare(f"{BATCH} windows of 64 KiB", path, state, rounds, read_batches, (64 << 10) // ROW_BYTES)


if __name__ == "__main__":
    main()
