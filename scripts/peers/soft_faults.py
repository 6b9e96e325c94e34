"""Measures what a soft page fault costs: the file is in the page cache, but not mapped. A new mapping is touched once
on every page in random order, twice. The second pass has no faults, so the difference is what they cost.

The kernel keeps a file that was read from front to back in large pieces, and maps a whole piece at one fault. A file
whose pages came in one by one is mapped up to 16 pages at a time (fault_around_bytes). Both are measured.

python soft_faults.py FILE [ROUNDS]
"""

import mmap
import os
import resource
import statistics
import sys
import time

import numpy as np
from page_cache import cached_pages, make_cold, make_warm
from views import in_child

PAGE_BYTES = mmap.PAGESIZE
ROUNDS = 7


def pages_of(path, seed):
    """Returns the offsets of all pages in random order."""
    return np.random.default_rng(seed).permutation(os.path.getsize(path) // PAGE_BYTES) * PAGE_BYTES


def read_page_by_page(path):
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    for offset in pages_of(path, 0).tolist():
        os.pread(file, 1, offset)
    os.close(file)


def bring_all_in(path, bring_in):
    # The kernel may drop a page in between, so this tries three times.
    for _ in range(3):
        make_cold(path)
        bring_in(path)
        if cached_pages(path) >= os.path.getsize(path) // PAGE_BYTES:
            return
    sys.exit(f"{path} does not stay in the page cache: soft faults cannot be measured here")


def touch(path, seed):
    """Returns the faults of the first pass, the µs of each, and the ns for each page that was mapped."""
    with open(path, "rb") as file:
        data = np.frombuffer(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ), np.uint8)
    offsets = pages_of(path, seed)
    out = np.empty(len(offsets), np.uint8)
    out.fill(1)  # its own faults come first

    def one_pass():
        before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        np.take(data, offsets, out=out, mode="clip")
        seconds = time.perf_counter() - started
        after = resource.getrusage(resource.RUSAGE_SELF)
        if after.ru_majflt != before.ru_majflt:
            sys.exit(f"{path} does not stay in the page cache")
        return after.ru_minflt - before.ru_minflt, seconds

    (faults, first), (_, second) = one_pass(), one_pass()
    return faults, (first - second) / max(faults, 1) * 1e6, (first - second) / len(offsets) * 1e9


def main():
    path = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    pages = os.path.getsize(path) // PAGE_BYTES
    print(f"{pages} pages, touched in random order through a new mapping; medians of {rounds} rounds.\n")
    print("| how the file came into the page cache | soft faults | pages a fault | µs a fault (range) | ns a page |")
    print("|---|---:|---:|---:|---:|")
    ways = {"from front to back": make_warm, "page by page at random": read_page_by_page}
    for name, bring_in in ways.items():
        bring_all_in(path, bring_in)
        found = [in_child(touch, path, seed) for seed in range(rounds)]
        faults, us, ns = (statistics.median(column) for column in zip(*found))
        low, high = min(row[1] for row in found), max(row[1] for row in found)
        print(f"| {name} | {faults:.0f} | {pages / faults:.0f} | {us:.2f} ({low:.2f}-{high:.2f}) | {ns:.0f} |")


if __name__ == "__main__":
    main()
