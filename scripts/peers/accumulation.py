"""Measures whether a process that holds thousands of array views grows: exca's CacheDict with keep_in_ram, read
in batches in random order, by one process and by workers that stay for all epochs. The rounds are interleaved,
and every run starts cold, in new processes.

python accumulation.py FOLDER [--arrays N] [--rounds N] [--epochs N]
"""

import argparse
import json
import os
import random
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import ringmain
from exca.cachedict import CacheDict, handlers
from page_cache import make_cold

ROWS, COLUMNS = 128, 256  # an array of 128 KiB
BATCH = 32
WORKERS = (1, 2)
MIB = 1 << 20


def stack(views):
    """Makes a batch as a loader does: every array is copied into one."""
    return np.stack([np.asarray(view) for view in views])


def read_together(views):
    return ringmain.read_many(views, stack=True)


# Each way of reading: the cache type, the class of the views, and how a batch is made of them.
WAYS = {
    "raw memmap": ("MemmapArray", None, stack),
    "exca's ContiguousMemmap": ("ContiguousMemmapArray", handlers.ContiguousMemmap, stack),
    "Ringmain": ("ContiguousMemmapArray", ringmain.ContiguousMemmap, stack),
    "Ringmain, read_many": ("ContiguousMemmapArray", ringmain.ContiguousMemmap, read_together),
}


def dump(folder, cache_type, arrays):
    """Writes the arrays as exca does and returns the files with their data."""
    cache = CacheDict(folder / cache_type, cache_type=cache_type)
    noise = np.random.default_rng(1).random((ROWS, COLUMNS), np.float32)
    with cache.write():
        for number in range(arrays):
            noise[0, 0] = number
            cache[str(number)] = noise
    return [path for path in (folder / cache_type).rglob("*") if path.is_file()]


def memory_bytes(pid):
    """Returns the resident memory of a process, and its share of it if shared pages are divided."""
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        fields = {line.split()[0]: int(line.split()[1]) << 10 for line in rollup if " kB" in line}
    return fields["Rss:"], fields["Pss:"]


def worker(way, folder, keys_of_epoch, commands, answers):
    """Reads its share of the keys once for each command, and keeps every view."""
    cache_type, view_class, make_batch = WAYS[way]
    if view_class is not None:
        handlers.ContiguousMemmap = view_class
    cache = CacheDict(folder / cache_type, keep_in_ram=True)
    cache.keys()
    print(json.dumps(0), file=answers, flush=True)
    for epoch, command in enumerate(commands):
        if command == "end\n":
            return
        keys, checked = keys_of_epoch(epoch), 0
        for at in range(0, len(keys), BATCH):
            chosen = keys[at : at + BATCH]
            batch = make_batch([cache[key] for key in chosen])
            checked += int((batch[:, 0, 0] == np.array(chosen, np.float32)).sum())
        if checked != len(keys):
            sys.exit(f"{way}: {len(keys) - checked} arrays are wrong")
        print(json.dumps(checked), file=answers, flush=True)


def share(arrays, part, parts, seed):
    """Returns the keys of one worker for each epoch. Every epoch deals them out anew, as a sampler does."""

    def keys_of_epoch(epoch):
        keys = [str(number) for number in range(arrays)]
        random.Random(seed * 1000 + epoch).shuffle(keys)
        return keys[part::parts]

    return keys_of_epoch


class Worker:
    """A forked process that waits for a command, then reads an epoch."""

    def __init__(self, way, folder, keys_of_epoch):
        command_read, command_write = os.pipe()
        answer_read, answer_write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(command_write)
            os.close(answer_read)
            status = 1
            try:
                with os.fdopen(command_read) as commands, os.fdopen(answer_write, "w") as answers:
                    worker(way, folder, keys_of_epoch, commands, answers)
                status = 0
            finally:
                os._exit(status)
        os.close(command_read)
        os.close(answer_write)
        self.commands, self.answers = os.fdopen(command_write, "w"), os.fdopen(answer_read)
        self.wait()

    def start(self):
        print("read", file=self.commands, flush=True)

    def wait(self):
        if not self.answers.readline():
            sys.exit("a worker has ended early")

    def end(self):
        # Closing the pipe would not be enough: workers that were forked later have it open too.
        print("end", file=self.commands, flush=True)
        self.commands.close()
        os.waitpid(self.pid, 0)
        self.answers.close()


def run(way, folder, arrays, workers, epochs, seed):
    """Returns for each epoch the seconds and the growth of RSS and PSS, of all workers together."""
    team = []
    for part in range(workers):
        team.append(Worker(way, folder, share(arrays, part, workers, seed)))
    before = np.sum([memory_bytes(one.pid) for one in team], axis=0)
    found = []
    for _ in range(epochs):
        started = time.perf_counter()
        for one in team:
            one.start()
        for one in team:
            one.wait()
        seconds = time.perf_counter() - started
        grown = np.sum([memory_bytes(one.pid) for one in team], axis=0) - before
        found.append((seconds, *(grown / MIB)))
    for one in team:
        one.end()
    return found


def measure(folder, files, arguments):
    found = {}
    for seed in range(arguments.rounds):
        for workers in WORKERS:
            for way in WAYS:
                for path in files:
                    make_cold(path)
                result = run(way, folder, arguments.arrays, workers, arguments.epochs, seed)
                found.setdefault((workers, way), []).append(result)
    return found


def show(found, arguments):
    total = arguments.arrays * ROWS * COLUMNS * 4 / MIB
    print(f"{arguments.arrays} arrays of 128 KiB, {total:.0f} MiB, cold at the start; batches of {BATCH} in random order.")
    print(f"Medians of {arguments.rounds} interleaved rounds; the range of the rounds in brackets.\n")
    print("| workers | views | epoch | seconds | RSS growth, MiB | PSS growth, MiB |")
    print("|---:|---|---:|---:|---:|---:|")
    for (workers, way), runs in found.items():
        for epoch in range(arguments.epochs):
            fields = []
            for at in range(3):
                values = [result[epoch][at] for result in runs]
                digits = 2 if at == 0 else 0
                low, middle, high = min(values), statistics.median(values), max(values)
                fields.append(f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})")
            print(f"| {workers} | {way} | {epoch + 1} | {' | '.join(fields)} |")


def main():
    parser = argparse.ArgumentParser(description="Does a process that holds array views grow?")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arrays", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4)
    arguments = parser.parse_args()
    if min(arguments.arrays // BATCH, arguments.rounds, arguments.epochs) < 1:
        parser.error(f"at least {BATCH} arrays, one round and one epoch are needed")
    types = {cache_type for cache_type, _, _ in WAYS.values()}
    files = [path for cache_type in types for path in dump(arguments.folder, cache_type, arguments.arrays)]
    show(measure(arguments.folder, files, arguments), arguments)


if __name__ == "__main__":
    main()
