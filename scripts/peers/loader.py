"""Measures a torch DataLoader with two forked workers over cold shards. It compares `ShardDataset` with
a dataset that reads the same rows in the same kind of order through np.memmap. The rounds are
interleaved, and each measurement runs in its own process.

python loader.py SHARDS [ROUNDS]
"""

import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
from page_cache import make_cold
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from views import in_child

from ringmain.torch import ShardDataset

ROUNDS = 5
WORKERS = 2
BATCH_ROWS = 512
EPOCHS = 3
# The memory is measured after every 32 batches.
SAMPLED = 32
# The orders of the rows, each with its options.
ORDERS = {"sequential": {}, "blocks": {"block_rows": 64}, "shuffled": {}}
HEADER_BYTES = 32


class Mapped(IterableDataset):
    """Reads the same rows in the same kind of order from mappings, as a hand-written loader would."""

    def __init__(self, paths, order, options):
        self.paths, self.order, self.options = paths, order, options
        self.epoch = torch.zeros(1, dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch):
        self.epoch.fill_(epoch)

    def __iter__(self):
        shards = [map_shard(path) for path in self.paths]
        starts = np.cumsum([0] + [len(shard) for shard in shards])
        info = get_worker_info()
        for ids in self.batches(info.id, info.num_workers, int(self.epoch)):
            which = np.searchsorted(starts, ids, side="right") - 1
            rows = np.empty((len(ids), shards[0].shape[1]), np.float32)
            for shard in np.unique(which):
                mine = which == shard
                rows[mine] = shards[shard][ids[mine] - starts[shard]]
            yield torch.from_numpy(rows), torch.from_numpy(ids)

    def batches(self, worker, workers, epoch):
        """Returns the ids of each batch of a worker. Blocks of rows are shuffled with NumPy."""
        total = sum(len(map_shard(path)) for path in self.paths)
        if self.order == "sequential":
            ids = np.arange(worker * total // workers, (worker + 1) * total // workers)
        else:
            block = self.options.get("block_rows", 1)
            order = np.random.default_rng(epoch).permutation(-(-total // block))
            mine = np.array_split(order, workers)[worker]
            ids = (mine[:, None] * block + np.arange(block)).reshape(-1)
            ids = ids[ids < total]
        return np.split(ids, range(BATCH_ROWS, len(ids), BATCH_ROWS))


def map_shard(path):
    with open(path, "rb") as file:
        header = file.read(HEADER_BYTES)
    rows, width = np.frombuffer(header[8:24], "<u8")
    return np.memmap(path, "<f4", "r", HEADER_BYTES, (int(rows), int(width)))


def open_dataset(name, paths, order):
    options = ORDERS[order]
    if name == "np.memmap":
        return Mapped(paths, order, options)
    return ShardDataset(paths, order=order, seed=1, batch_rows=BATCH_ROWS, **options)


def rss_bytes(pid):
    with open(f"/proc/{pid}/status") as status:
        lines = [line.split() for line in status]
    return sum(int(line[1]) << 10 for line in lines if line[0] in ("RssAnon:", "RssFile:"))


def epoch_seconds(name, paths, order):
    """Reads one epoch and returns the rows per second, including the start of the workers."""
    dataset = open_dataset(name, paths, order)
    loader = DataLoader(dataset, batch_size=None, num_workers=WORKERS)
    started, rows = time.perf_counter(), 0
    for batch, _ in loader:
        rows += len(batch)
    return rows / (time.perf_counter() - started)


def epochs_memory(name, paths, order):
    """Returns the peak memory of all workers together in each epoch, in MiB."""
    dataset = open_dataset(name, paths, order)
    loader = DataLoader(dataset, batch_size=None, num_workers=WORKERS, persistent_workers=True)
    found = []
    for epoch in range(EPOCHS):
        dataset.set_epoch(epoch)
        peak = 0
        for number, _ in enumerate(loader):
            if number % SAMPLED == 0:
                workers = loader._iterator._workers
                peak = max(peak, sum(rss_bytes(worker.pid) for worker in workers))
        found.append(peak >> 20)
    return found


def main():
    paths = sorted(str(path) for path in Path(sys.argv[1]).iterdir())
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    row_bytes = map_shard(paths[0]).shape[1] * 4
    names = ["ringmain", "np.memmap"]
    print(f"rows of {row_bytes} bytes, {BATCH_ROWS} per batch, {WORKERS} forked workers, cold")
    print(f"{'MB/s':12} {'ringmain':>9} {'np.memmap':>10} {'ratio':>6}  (medians of {rounds})")
    for order in ORDERS:
        found = {name: [] for name in names}
        for number in range(rounds):
            for name in names if number % 2 == 0 else names[::-1]:
                for path in paths:
                    make_cold(path)
                rate = in_child(epoch_seconds, name, paths, order)
                found[name].append(rate * row_bytes / 1e6)
        ours, theirs = (statistics.median(found[name]) for name in names)
        print(f"{order:12} {ours:9.0f} {theirs:10.0f} {ours / theirs:6.2f}", flush=True)
    print(f"\npeak memory of the workers in each of {EPOCHS} epochs, MiB")
    for name in names:
        print(f"{name:12}", *in_child(epochs_memory, name, paths, "blocks"), flush=True)


if __name__ == "__main__":
    main()
