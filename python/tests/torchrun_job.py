"""A training job that tests start with torchrun: torchrun … torchrun_job.py DATA RESULTS WORKERS [KILL_AFTER].

DATA is a folder of shards, or a `.beton` file with a field "n", the number of the sample. Each rank writes a line for each batch: its number in the epoch, and its rows. After each batch all ranks meet, as they do
in training, and rank 0 saves the state of the job. With KILL_AFTER, rank 1 kills itself after so many batches.
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch
from torch import distributed

from ringmain.torch import BetonBatches, ShardDataset


def opened(data):
    """Returns the dataset, and a function of the numbers that a batch holds."""
    if data.endswith(".beton"):
        return BetonBatches(data, traversal="random", seed=9, global_batch=24), lambda fields: fields["n"]
    dataset = ShardDataset(data, order="shuffled", seed=9, global_batch=24)
    return dataset, lambda rows: rows[:, 0].to(torch.int64)


def main(data, results, workers, kill_after=None):
    results = Path(results)
    distributed.init_process_group("gloo")
    dataset, numbers_of = opened(data)
    saved, done = results / "job.json", 0
    if saved.exists():
        state = json.loads(saved.read_text())
        dataset.load_state_dict(state)
        done = state["batches_done"]
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=int(workers))
    rank = distributed.get_rank()
    with open(results / f"rank-{rank}-of-{distributed.get_world_size()}.txt", "w") as out:
        for batch, ids in loader:
            assert torch.equal(numbers_of(batch), ids)
            print(done, json.dumps(ids.tolist()), file=out, flush=True)
            done += 1
            total = torch.tensor([len(ids)])
            distributed.all_reduce(total)
            if rank == 0:
                new = saved.with_suffix(".new")
                new.write_text(json.dumps(dataset.state_dict(batches=done)))
                new.rename(saved)
            distributed.barrier()
            if rank == 1 and kill_after is not None and done == int(kill_after):
                os.kill(os.getpid(), signal.SIGKILL)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
