"""Measures what `ringmain record` costs a program: for each read by pread, and for each page fault of a mapping. The
program reads a file that is in the page cache, once by itself and once recorded; the sides take turns. The difference
of their times, divided by the reads or faults, is the cost of one.

A stopped program waits for strace, so it matters whether both run on one processor: both cases are measured.
Needs only Python's standard library.

python recording_cost.py RINGMAIN FILE [ROUNDS]
"""

import json
import mmap
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from page_cache import make_warm

BLOCK_BYTES = 4096
READS = 4000
ROUNDS = 7


def offsets_of(path):
    blocks = list(range(os.path.getsize(path) // BLOCK_BYTES))
    random.Random(1).shuffle(blocks)
    return [block * BLOCK_BYTES for block in blocks]


def read(path):
    """Returns the seconds of the reads and their number."""
    offsets = offsets_of(path)
    offsets = (offsets * (READS // len(offsets) + 1))[:READS]
    file = os.open(path, os.O_RDONLY)
    started = time.perf_counter()
    for offset in offsets:
        os.pread(file, BLOCK_BYTES, offset)
    return time.perf_counter() - started, READS


def touch(path):
    """Returns the seconds in which every page of a new mapping is touched, and the page faults."""
    offsets = offsets_of(path)
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    for offset in offsets:
        data[offset]
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF)
    return seconds, after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt


WAYS = {"pread": read, "page faults": touch}


def run(command, processors):
    pin = None if processors is None else lambda: os.sched_setaffinity(0, processors)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=pin)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed: {done.stderr}")
    return json.loads(done.stdout), done.stderr


def measure(ringmain, path, way, processors):
    """Returns the seconds without and with recording, the reads or faults, and how many of them were recorded."""
    program = [sys.executable, __file__, "--one", way, path]
    (plain, _), _ = run(program, processors)
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as folder:
        trace = Path(folder) / "trace"
        options = ["record", "--only", path, "--out", trace, "--"]
        (recorded, count), notes = run([ringmain, *options, *program], processors)
        if "page faults of mappings are not recorded" in notes:
            sys.exit(notes)
        lines = trace.read_text().splitlines()
    return plain, recorded, count, sum(line.startswith("m " if way == "page faults" else "b ") for line in lines)


def show(name, found):
    count = statistics.median(row[2] for row in found)
    in_trace = statistics.median(row[3] for row in found)
    plain, recorded = (statistics.median(row[at] / row[2] * 1e6 for row in found) for at in (0, 1))
    costs = sorted((row[1] - row[0]) / row[2] * 1e6 for row in found)
    cost = f"{statistics.median(costs):.1f} ({costs[0]:.1f} to {costs[-1]:.1f})"
    print(f"| {name} | {count:.0f} | {in_trace:.0f} | {plain:.1f} | {recorded:.1f} | {cost} |", flush=True)


def main():
    if sys.argv[1] == "--one":
        print(json.dumps(WAYS[sys.argv[2]](sys.argv[3])))
        return
    ringmain, path = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else ROUNDS
    make_warm(path)
    available = sorted(os.sched_getaffinity(0))
    places = {"one processor": available[:1], f"{len(available)} processors": available}
    print(f"Medians of {rounds} interleaved rounds, warm; times are those of one read or fault.\n")
    print("| what, on | made | recorded | µs alone | µs recorded | cost, µs (range) |")
    print("|---|---:|---:|---:|---:|---:|")
    found = {}
    for _ in range(rounds):
        for way in WAYS:
            for name, processors in places.items():
                found.setdefault(f"{way}, {name}", []).append(measure(ringmain, path, way, processors))
    for name, rows in found.items():
        show(name, rows)


if __name__ == "__main__":
    main()
