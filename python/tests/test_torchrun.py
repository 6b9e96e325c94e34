"""Jobs of several processes under torchrun, on this machine: one loses a rank, and another number of ranks goes on."""

import collections
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import specified
from test_shards import write_shard

import ringmain

pytest.importorskip("torch", reason="torch is not installed")

ROWS, BATCH = 500, 24
JOB = Path(__file__).with_name("torchrun_job.py")


@pytest.fixture(params=["shards", "samples.beton"])
def data(request, tmp_path):
    """Rows or samples whose values are their numbers, in shards of lengths that nothing divides or in a dataset."""
    path = tmp_path / request.param
    (tmp_path / "results").mkdir()
    if path.suffix == ".beton":
        ringmain.BetonWriter(path, {"n": "int"}).from_iterable([(at,) for at in range(ROWS)])
        return path
    path.mkdir()
    values = np.repeat(np.arange(ROWS, dtype=np.float32)[:, None], 3, 1)
    for at, rows in enumerate(np.split(values, [97, 98, 331])):
        write_shard(path / f"part-{at}.shard", rows)
    return path


def torchrun(data, ranks, *arguments):
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command += [str(JOB), str(data), str(data.parent / "results"), *map(str, arguments)]
    paths = os.pathsep.join(filter(None, [str(JOB.parent), os.environ.get("PYTHONPATH")]))
    # One thread each: the ranks share few processors. Without the interface, gloo takes that of the host's name.
    environment |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": paths}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=540)


def delivered(data, ranks):
    """Returns the shares of the ranks of each batch, by its number."""
    batches = collections.defaultdict(list)
    for rank in range(ranks):
        for line in (data.parent / f"results/rank-{rank}-of-{ranks}.txt").read_text().splitlines():
            number, rows = line.split(" ", 1)
            batches[int(number)].append(json.loads(rows))
    return batches


@pytest.mark.parametrize(("ranks", "workers", "later_ranks", "later_workers"), [(2, 1, 4, 0), (4, 0, 2, 2)])
def test_a_job_loses_a_rank_and_goes_on_with_others(data, ranks, workers, later_ranks, later_workers):
    order = specified.permutation(ROWS, 9, 0)
    run = torchrun(data, ranks, workers, 7)
    assert run.returncode != 0 and "SIGKILL" in run.stderr, run.stderr
    state = json.loads((data.parent / "results/job.json").read_text())
    # The ranks meet after each batch, and rank 1 ends after the seventh.
    assert state["batches_done"] == 7 and len(json.dumps(state)) < 400
    before = delivered(data, ranks)
    run = torchrun(data, later_ranks, later_workers)
    assert run.returncode == 0, run.stderr
    after = delivered(data, later_ranks)
    expected = specified.global_batches(order, BATCH, ranks)
    assert [before[at] for at in range(7)] == expected[:7]
    expected = specified.global_batches(order, BATCH, later_ranks)
    assert dict(after) == dict(enumerate(expected[7:], 7))
    rows = [row for at in range(7) for share in before[at] for row in share]
    rows += [row for batch in after.values() for share in batch for row in share]
    # The last batch has 20 rows, which both 2 and 4 divide: nothing is repeated.
    assert sorted(rows) == list(range(ROWS))
