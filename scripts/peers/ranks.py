"""Measures jobs of several processes on this machine: torchrun compared with the workers of one process, global batches
compared with contiguous parts, and nodes that get the rows that they had.

python ranks.py SHARDS [ROUNDS]

Each measurement is an epoch of blocks of rows in shuffled order. The rounds are interleaved. Two processes of each node read a
copy of the shards, as if each node had a page cache of its own.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from page_cache import make_cold, make_warm
from torch import distributed
from torch.utils.data import DataLoader

from ringmain.torch import ShardDataset

ROUNDS = 5
BATCH_ROWS = 128
ORDER = {"order": "blocks", "block_rows": 16, "seed": 1}
RANKS = (2, 4)
STATES = {"cold": make_cold, "warm": make_warm}


def epoch_rate(loader):
    """Returns the rows per second of an epoch, after its first batch: workers need time to start."""
    batches = iter(loader)
    next(batches)
    meet()
    begun = time.perf_counter()
    rows = torch.tensor([sum(len(row_ids) for _, row_ids in batches)])
    meet()
    seconds = time.perf_counter() - begun
    if distributed.is_initialized():
        distributed.all_reduce(rows)
    return int(rows) / seconds


def meet():
    if distributed.is_initialized():
        distributed.barrier()


def measure(folder, split, workers=0):
    """Prints the rate of an epoch over files that are cold or warm."""
    dataset = ShardDataset(folder, **ORDER, **split)
    rate = epoch_rate(DataLoader(dataset, batch_size=None, num_workers=workers))
    if not distributed.is_initialized() or distributed.get_rank() == 0:
        print(json.dumps(rate))


def one_process(folder, workers):
    measure(folder, {"global_batch": BATCH_ROWS}, int(workers))


def ranks(folder, split):
    distributed.init_process_group("gloo")
    world = distributed.get_world_size()
    splits = {"global": {"global_batch": BATCH_ROWS * world}, "contiguous": {"batch_rows": BATCH_ROWS}}
    measure(folder, splits[split])
    distributed.destroy_process_group()


def nodes(folders, *counts):
    """Prints the bytes that come from the device in the second epoch, as a part of those in the first."""
    distributed.init_process_group("gloo")
    rank, world = distributed.get_rank(), distributed.get_world_size()
    folder = folders.split(":")[rank * 2 // world]
    found = {}
    for count in map(int, counts):
        meet()
        if rank * 2 % world == 0:
            for path in Path(folder).glob("*.shard"):
                make_cold(path)
        meet()  # no rank opens the files before they are cold
        dataset = ShardDataset(
            folder, order="shuffled", seed=1, engine="pread", global_batch=BATCH_ROWS * world, nodes=count
        )
        epochs = []
        for _ in range(2):
            meet()
            begun, before = time.perf_counter(), device_bytes()
            for _ in dataset:
                pass
            read = torch.tensor([device_bytes() - before])
            distributed.all_reduce(read)
            epochs.append((int(read), time.perf_counter() - begun))
        (first, first_s), (second, second_s) = epochs
        found[str(count)] = {"bytes": second / first, "seconds": second_s / first_s}
    if rank == 0:
        print(json.dumps(found))
    distributed.destroy_process_group()


def device_bytes():
    text = Path("/proc/self/io").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("read_bytes")).split()[1])


def run(ranks, *arguments):
    """Runs this script with torchrun, or alone, and returns what it prints."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks else []
    command = [sys.executable, *launcher, __file__, *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(result.stdout.splitlines()[-1])


def ratio(name, values):
    shown = ", ".join(f"{value:.2f}" for value in sorted(values))
    print(f"{name}: {statistics.median(values):.2f} ({shown})", flush=True)


def compare(folder, rounds, counts=RANKS):
    for count in counts:
        for state, prepare in STATES.items():
            by_process, by_split = [], []
            for _ in range(rounds):
                jobs = ((0, "--one-process", folder, count), (count, "--ranks", folder, "global"),
                        (count, "--ranks", folder, "contiguous"))  # fmt: skip
                rates = []
                for job in jobs:
                    for path in sorted(Path(folder).glob("*.shard")):
                        prepare(path)
                    rates.append(run(*job))
                alone, shared, divided = rates
                by_process.append(shared / alone)
                by_split.append(shared / divided)
            ratio(f"{count} processes of torchrun / {count} workers of one process, {state}", by_process)
            ratio(f"global batches / contiguous parts, {count} processes, {state}", by_split)


def compare_nodes(folder, rounds):
    copy = f"{folder.rstrip('/')}-copy"
    shutil.copytree(folder, copy)
    try:
        found = [run(4, "--nodes", f"{folder}:{copy}", 1, 2) for _ in range(rounds)]
    finally:
        shutil.rmtree(copy)
    for count, name in (("1", "without nodes"), ("2", "with two nodes")):
        for what in ("bytes", "seconds"):
            ratio(f"second epoch / first, {what}, {name}", [each[count][what] for each in found])


def main(arguments):
    modes = {"--one-process": one_process, "--ranks": ranks, "--nodes": nodes}
    if arguments[0] in modes:
        modes[arguments[0]](*arguments[1:])
        return
    rounds = int(arguments[1]) if len(arguments) > 1 else ROUNDS
    compare(arguments[0], rounds)
    compare_nodes(arguments[0], rounds)


if __name__ == "__main__":
    main(sys.argv[1:])
