"""Measures jobs of several processes on this machine: torchrun compared with the workers of one process, global batches
compared with contiguous parts, and nodes that get the rows that they had.

python ranks.py SHARDS [ROUNDS]

Each measurement has whole epochs of blocks of rows in shuffled order, from the first row that is asked for to the last row of
the last process. The rounds are interleaved. Global batches and contiguous parts take turns in the same processes. Two
processes of each node read a copy of the shards, as if each node had a page cache of its own.
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


def rates(folder, splits, workers=0):
    """Returns the rows per second of an epoch of each split, over files that are cold or warm.

    The splits take turns, and each is first and last once. Before the first epoch that counts, each loader delivers a
    whole one: its workers run then, and nothing is read ahead.
    """
    loaders = {name: opened(folder, split, workers) for name, split in splits.items()}
    for loader in loaders.values():
        for _ in loader:
            pass
    found = {}
    for state, prepare in STATES.items():
        rows, seconds = dict.fromkeys(loaders, 0), dict.fromkeys(loaders, 0.0)
        for name in (*loaders, *reversed(loaders)):
            epoch_rows, epoch_seconds = timed_epoch(loaders[name], folder, prepare)
            rows[name] += epoch_rows
            seconds[name] += epoch_seconds
        found[state] = {name: rows[name] / seconds[name] for name in loaders}
    return found


def opened(folder, split, workers):
    dataset = ShardDataset(folder, **ORDER, **split)
    return DataLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0)


def timed_epoch(loader, folder, prepare):
    """Returns the rows of the next epoch over all ranks, and the seconds until the last rank has its last row."""
    meet()
    if is_first():
        for path in sorted(Path(folder).glob("*.shard")):
            prepare(path)
    meet()
    begun = time.perf_counter()
    rows = torch.tensor([sum(len(row_ids) for _, row_ids in loader)])
    meet()
    seconds = time.perf_counter() - begun
    if distributed.is_initialized():
        distributed.all_reduce(rows)
    return int(rows), seconds


def meet():
    if distributed.is_initialized():
        distributed.barrier()


def is_first():
    return not distributed.is_initialized() or distributed.get_rank() == 0


def one_process(folder, workers):
    print(json.dumps(rates(folder, {"global": {"global_batch": BATCH_ROWS}}, int(workers))))


def ranks(folder):
    distributed.init_process_group("gloo")
    batch = BATCH_ROWS * distributed.get_world_size()
    found = rates(folder, {"global": {"global_batch": batch}, "contiguous": {"batch_rows": BATCH_ROWS}})
    if is_first():
        print(json.dumps(found))
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
        turns = [(run(0, "--one-process", folder, count), run(count, "--ranks", folder)) for _ in range(rounds)]
        for state in STATES:
            by_process = [shared[state]["global"] / alone[state]["global"] for alone, shared in turns]
            by_split = [shared[state]["global"] / shared[state]["contiguous"] for _, shared in turns]
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
