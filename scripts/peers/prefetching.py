"""Measures what hints to the kernel and a prefetching thread gain: samples of 48 KiB of a cold file in random
order, in batches, of which every byte is used. The rounds are interleaved, and each measurement runs in its own
process.

python prefetching.py FILE [--rounds N] [--seconds S]
"""

import argparse
import mmap
import os
import queue
import random
import resource
import statistics
import threading
import time

import numpy as np
import ringmain
from page_cache import make_cold
from views import in_child, rss_bytes

SAMPLE_BYTES = 48 << 10
BATCH = 64
PAGE_BYTES = mmap.PAGESIZE


def use(sample):
    """Stands for decoding: loads every byte."""
    return int(np.frombuffer(sample, np.uint64).sum())


class Mapping:
    """A mapping of the file with one piece of advice for all of it."""

    def __init__(self, path, advice=None):
        with open(path, "rb") as file:
            self.map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        if advice is not None:
            self.map.madvise(advice)
        self.bytes = np.frombuffer(self.map, np.uint8)

    def prepare(self, starts):
        """Is called with the next batch before the current one is used."""

    def read(self, starts):
        return sum(use(self.bytes[start : start + SAMPLE_BYTES]) for start in starts)

    def end(self):
        pass


class WillNeed(Mapping):
    """Asks the kernel for the next batch."""

    def prepare(self, starts):
        for start in starts:
            self.map.madvise(mmap.MADV_WILLNEED, start, SAMPLE_BYTES)


class Thread(Mapping):
    """Touches the pages of the next batch in another thread."""

    def __init__(self, path, advice=None):
        super().__init__(path, advice)
        self.batches = queue.Queue()
        self.thread = threading.Thread(target=self.touch)
        self.thread.start()

    def touch(self):
        while (starts := self.batches.get()) is not None:
            for start in starts:
                # NumPy lets other threads run meanwhile.
                self.bytes[start : start + SAMPLE_BYTES : PAGE_BYTES].sum()

    def prepare(self, starts):
        self.batches.put(starts)

    def end(self):
        self.batches.put(None)
        self.thread.join()


class Pread(Mapping):
    """Reads one sample after the other into one buffer."""

    def __init__(self, path, advice):
        self.file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(self.file, 0, 0, advice)
        self.buffer = bytearray(SAMPLE_BYTES)

    def read(self, starts):
        total = 0
        for start in starts:
            os.preadv(self.file, [self.buffer], start)
            total += use(self.buffer)
        return total


class PreadWillNeed(Pread):
    def prepare(self, starts):
        for start in starts:
            os.posix_fadvise(self.file, start, SAMPLE_BYTES, os.POSIX_FADV_WILLNEED)


class Together(Mapping):
    """Reads a batch with `ringmain.read_many`."""

    def __init__(self, path):
        samples = os.path.getsize(path) // SAMPLE_BYTES
        self.view = ringmain.open_raw(path, np.uint8, (samples, SAMPLE_BYTES))

    def read(self, starts):
        views = [self.view[start // SAMPLE_BYTES] for start in starts]
        return sum(use(sample) for sample in ringmain.read_many(views, stack=True))


WAYS = {
    "mapping": lambda path: Mapping(path),
    "mapping, SEQUENTIAL": lambda path: Mapping(path, mmap.MADV_SEQUENTIAL),
    "mapping, RANDOM": lambda path: Mapping(path, mmap.MADV_RANDOM),
    "mapping, RANDOM, WILLNEED for the next batch": lambda path: WillNeed(path, mmap.MADV_RANDOM),
    "mapping, RANDOM, a thread touches the next batch": lambda path: Thread(path, mmap.MADV_RANDOM),
    "pread, RANDOM": lambda path: Pread(path, os.POSIX_FADV_RANDOM),
    "pread, RANDOM, WILLNEED for the next batch": lambda path: PreadWillNeed(path, os.POSIX_FADV_RANDOM),
    "Ringmain, read_many": Together,
}


def read_batches(path, way, seconds, seed):
    """Reads each sample at most once, for some seconds. Returns MB/s, hard faults for each sample, bytes from the
    device for each byte used, the growth of memory in MiB, and the sum of the first batch for a comparison."""
    starts = list(range(0, os.path.getsize(path) // SAMPLE_BYTES * SAMPLE_BYTES, SAMPLE_BYTES))
    random.Random(seed).shuffle(starts)
    batches = [starts[at : at + BATCH] for at in range(0, len(starts) - BATCH + 1, BATCH)]
    reader = WAYS[way](path)
    faults, device, memory = hard_faults(), device_bytes(), rss_bytes()
    done, started, first = 0, time.perf_counter(), None
    for number, batch in enumerate(batches):
        if number + 1 < len(batches):
            reader.prepare(batches[number + 1])
        total = reader.read(batch)
        first = total if first is None else first
        done += len(batch) * SAMPLE_BYTES
        if time.perf_counter() - started > seconds:
            break
    elapsed = time.perf_counter() - started
    found = done / elapsed / 1e6, (hard_faults() - faults) / (done / SAMPLE_BYTES)
    found += (device_bytes() - device) / done, (rss_bytes() - memory) / 2**20
    reader.end()
    return *found, first


def hard_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def device_bytes():
    with open("/proc/self/io") as counters:
        return int(dict(line.split(": ") for line in counters)["read_bytes"])


def main():
    parser = argparse.ArgumentParser(description="What do hints and a prefetching thread gain?")
    parser.add_argument("file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.7)
    arguments = parser.parse_args()
    if os.path.getsize(arguments.file) < 2 * BATCH * SAMPLE_BYTES or arguments.rounds < 1:
        parser.error(f"a file of at least {2 * BATCH * SAMPLE_BYTES} bytes and one round are needed")
    found = {way: [] for way in WAYS}
    for seed in range(arguments.rounds):
        sums = set()
        for way in WAYS:
            make_cold(arguments.file)
            *figures, first = in_child(read_batches, arguments.file, way, arguments.seconds, seed)
            found[way].append(figures)
            sums.add(first)
        if len(sums) != 1:
            parser.exit(1, f"the ways do not return the same bytes: {sums}\n")
    show(found, arguments.rounds)


def show(found, rounds):
    print(f"Samples of 48 KiB, cold, random order, batches of {BATCH}; medians of {rounds} interleaved rounds.\n")
    print("| way | MB/s | / mapping, RANDOM | hard faults a sample | device bytes / bytes used | RSS growth, MiB |")
    print("|---|---:|---:|---:|---:|---:|")
    base = [figures[0] for figures in found["mapping, RANDOM"]]
    for way, runs in found.items():
        rate, faults, device, memory = (statistics.median(column) for column in zip(*runs))
        ratios = [figures[0] / other for figures, other in zip(runs, base)]
        ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        print(f"| {way} | {rate:.0f} | {ratio} | {faults:.2f} | {device:.2f} | {memory:.0f} |")


if __name__ == "__main__":
    main()
