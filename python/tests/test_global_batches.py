"""Global batches: each has the same items for any number of ranks and workers, and any other number goes on."""

import copy
import json
import pickle
import struct
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import specified
from beton_files import VECTOR
from test_shards import TOTAL, corpus, write_shard  # noqa: F401

import ringmain
from ringmain._ringmain import _nodes_of

RANKS = [1, 2, 3, 4, 5, 8]
BATCH = 10
ORDERS = {
    "sequential": {},
    "shuffled": {"order": "shuffled", "seed": 9},
    "blocks": {"order": "blocks", "seed": 9, "block_rows": 7},
}
TRAVERSALS = {
    "sequential": {},
    "random": {"traversal": "random", "seed": 9},
    "quasi_random": {"traversal": "quasi_random", "seed": 9, "open_pages": 2},
}


def order_of_rows(order, n, epoch):
    if order == "sequential":
        return list(range(n))
    if order == "shuffled":
        return specified.permutation(n, 9, epoch)
    return specified.in_blocks(n, 9, epoch, 7)


def pages_of(path):
    """Returns the page of each sample of a dataset, read from the file as docs/formats.md describes it."""
    data = path.read_bytes()
    fields, page_size, samples, table = struct.unpack_from("<HIQQ", data, 2)
    assert fields > 0
    first = {}
    for at in range(table, len(data), 24):
        sample, pointer, _ = struct.unpack_from("<QQQ", data, at)
        first.setdefault(sample, set()).add(pointer // page_size)
    assert all(len(pages) == 1 for pages in first.values()), "a sample lies in one page here"
    return [first[sample].pop() if sample in first else None for sample in range(samples)]


def order_of_samples(traversal, epoch):
    pages = pages_of(VECTOR)
    if traversal == "sequential":
        return list(range(len(pages)))
    if traversal == "random":
        return specified.permutation(len(pages), 9, epoch)
    return specified.in_pages(pages, 9, epoch, 2)


def batches_of(source):
    return [ids.tolist() for _, ids in source]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_the_rows_of_every_rank_are_those_of_the_specification(corpus, order, drop_last):  # noqa: F811
    expected = order_of_rows(order, TOTAL, 3)
    options = {**ORDERS[order], "epoch": 3, "global_batch": BATCH, "drop_last": drop_last}
    for world in RANKS:
        shares = specified.global_batches(expected, BATCH, world, drop_last=drop_last)
        for rank in range(world):
            found = batches_of(ringmain.ShardSource(corpus, rank=rank, world=world, **options))
            assert found == [batch[rank] for batch in shares]


@pytest.mark.parametrize("nodes", [2, 4])
def test_the_rows_of_every_node_are_those_of_the_specification(tmp_path, nodes):
    rows = 5000  # blocks of 4 rows
    write_shard(tmp_path / "rows.shard", np.zeros((rows, 2), np.float32))
    expected = specified.permutation(rows, 9, 0)
    shares = specified.global_batches(expected, 96, 8, nodes=nodes, item_bytes=16)
    assert shares != specified.global_batches(expected, 96, 8)
    for rank in range(8):
        place = {"rank": rank, "world": 8, "nodes": nodes, "global_batch": 96}
        source = ringmain.ShardSource(tmp_path, order="shuffled", seed=9, **place)
        assert batches_of(source) == [batch[rank] for batch in shares]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("memory", [{}, {"memory_manager": "process_cache", "cache_pages": 2}])
@pytest.mark.parametrize("traversal", TRAVERSALS)
def test_the_samples_of_every_rank_are_those_of_the_specification(traversal, memory, drop_last):
    expected = order_of_samples(traversal, 3)
    beton = ringmain.Beton(VECTOR)
    options = {**TRAVERSALS[traversal], **memory, "epoch": 3, "drop_last": drop_last, "global_batch": 64}
    for world in (1, 3, 5):
        shares = specified.global_batches(expected, 64, world, drop_last=drop_last)
        for rank in range(world):
            for workers in (1, 2):
                for worker in range(workers):
                    place = {"rank": rank, "world": world, "worker": worker, "workers": workers}
                    source = beton.epoch(**place, **options)
                    turns = shares[worker::workers]
                    assert len(source) == len(turns)
                    assert batches_of(source) == [batch[rank] for batch in turns]


def test_one_state_is_enough_for_the_job(corpus):  # noqa: F811
    options = {"order": "shuffled", "seed": 9, "global_batch": BATCH}
    sources = [ringmain.ShardSource(corpus, rank=rank, world=3, **options) for rank in range(3)]
    for source in sources:
        next(source), next(source)
    states = [json.dumps(source.state_dict()) for source in sources]
    assert len(set(states)) == 1 and len(states[0]) < 400
    state = json.loads(states[0])
    assert (state["global_batch"], state["batches_done"], state["epoch"]) == (BATCH, 2, 0)
    assert state["order"] == {"Shuffled": {"seed": 9}} and state["items"] == TOTAL
    expected = specified.global_batches(order_of_rows("shuffled", TOTAL, 0), BATCH, 2)[2:]
    for rank in range(2):
        later = ringmain.ShardSource(corpus, rank=rank, world=2, **options)
        later.load_state_dict(state)
        assert batches_of(later) == [batch[rank] for batch in expected]


def test_what_cannot_be_shared_is_refused(corpus):  # noqa: F811
    def refused(match, **options):
        with pytest.raises(ValueError, match=match):
            ringmain.ShardSource(corpus, **options)

    refused("`global_batch` cannot be 3.*4 ranks", global_batch=3, world=4)
    refused("`batch_rows`.*leave out one", global_batch=8, batch_rows=8)
    refused("`nodes` cannot be 2", nodes=2)
    refused("`nodes` cannot be 3", nodes=3, world=4, global_batch=8)
    refused("worker 2 of 2", worker=2, workers=2)
    refused("global_batch=62", global_batch=TOTAL + 1, drop_last=True)
    # This worker has no turn, but the other one has.
    assert batches_of(ringmain.ShardSource(corpus, global_batch=40, drop_last=True, worker=1, workers=2)) == []
    with pytest.raises(ValueError, match="global_batch=10000"):
        ringmain.Beton(VECTOR).epoch(global_batch=10_000, drop_last=True)
    source = ringmain.ShardSource(corpus, order="shuffled", seed=1, global_batch=8)
    state = source.state_dict()
    for other, match in [
        ({"seed": 2}, "seed: 1.*seed: 2"),
        ({"global_batch": 9}, "batches of 8 items, and the source has 9"),
        ({"rows": range(40)}, "another selection"),
    ]:
        options = {"order": "shuffled", "seed": 1, "global_batch": 8, **other}
        with pytest.raises(ValueError, match=match):
            ringmain.ShardSource(corpus, **options).load_state_dict(state)
    with pytest.raises(ValueError, match="another version"):
        source.load_state_dict({**state, "version": 3})


@pytest.fixture
def environment(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"):
        monkeypatch.delenv(name, raising=False)

    def set_to(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))

    return set_to


def test_the_place_of_a_process(environment):
    assert ringmain.job_place() == (0, 1, 0, 1)
    assert ringmain.job_place(2, 3) == (2, 3, 0, 1)
    environment(RANK=5, WORLD_SIZE=8, LOCAL_RANK=1, LOCAL_WORLD_SIZE=4, GROUP_RANK=1)
    assert ringmain.job_place() == ringmain.job_place(5, 8) == (5, 8, 1, 2)
    with pytest.raises(ValueError, match="the given place is rank 4 of 8, but .*RANK.* is rank 5 of 8"):
        ringmain.job_place(4, 8)
    with pytest.raises(ValueError, match="rank 8 of 8 does not exist"):
        ringmain.job_place(8, 8)
    with pytest.raises(ValueError, match="together"):
        ringmain.job_place(1)
    environment(RANK=8)
    with pytest.raises(ValueError, match="RANK.*WORLD_SIZE"):
        ringmain.job_place()
    environment(RANK="")
    with pytest.raises(ValueError, match="WORLD_SIZE.*RANK is not set"):
        ringmain.job_place()


@pytest.mark.parametrize("ranks", [(2, 2), (3,), (2, 1), (4, 2), (2, 1, 3)])
def test_the_ranks_never_disagree_about_the_nodes(ranks, environment):
    """With nodes of 2 and 1 ranks, ranks 0 and 1 found 1 node and rank 2 found 3."""
    found, rank = set(), 0
    for node, of_node in enumerate(ranks):
        for local in range(of_node):
            environment(RANK=rank, WORLD_SIZE=sum(ranks), LOCAL_RANK=local)
            environment(LOCAL_WORLD_SIZE=of_node, GROUP_RANK=node)
            place = ringmain.job_place()
            found.add(place.nodes)
            if place.nodes is None:
                with pytest.raises(ValueError, match="equally many ranks"):
                    _nodes_of(rank, sum(ranks), node, local, of_node)
            else:
                assert place.nodes == _nodes_of(rank, sum(ranks), node, local, of_node)
            rank += 1
    assert found == {len(ranks)} if len(set(ranks)) == 1 else None in found


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


def loader(torch, dataset, workers, **options):
    return torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers, **options)


def row_batches(loader):
    return [batch[1].tolist() for batch in loader]


def test_the_place_of_a_dataset(corpus, torch, environment):  # noqa: F811
    from ringmain.torch import ShardDataset

    environment(RANK=1, WORLD_SIZE=2, LOCAL_RANK=0, LOCAL_WORLD_SIZE=1, GROUP_RANK=1)
    dataset = ShardDataset(corpus, global_batch=BATCH, nodes="auto")
    assert "rank=1, world=2" in repr(dataset) and "'nodes': 2" in repr(dataset._options)
    with pytest.raises(ValueError, match="the given place is rank 0 of 2"):
        ShardDataset(corpus, rank=0, world=2)
    # The other node has two ranks.
    environment(RANK=2, WORLD_SIZE=3)
    ShardDataset(corpus, global_batch=BATCH)
    with pytest.raises(ValueError, match="rank 2 of 3 has the local rank 0 of 1 on node 1"):
        ShardDataset(corpus, global_batch=BATCH, nodes="auto")
    # The reader learnt only that the places contradict each other.
    environment(RANK=1, WORLD_SIZE=2, LOCAL_RANK="", LOCAL_WORLD_SIZE=1, GROUP_RANK="")
    with pytest.raises(ValueError, match="not both LOCAL_RANK and GROUP_RANK"):
        ShardDataset(corpus, global_batch=BATCH, nodes="auto")
    # A node has joined: the ranks have other numbers now.
    environment(RANK=1, WORLD_SIZE=3)
    with pytest.raises(RuntimeError, match="now rank 1 of 3, but this dataset was made for rank 1 of 2"):
        list(dataset)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_loaders_of_all_ranks_have_the_same_batches(corpus, torch, workers):  # noqa: F811
    from ringmain.torch import ShardDataset

    options = {"order": "shuffled", "seed": 9, "global_batch": BATCH}
    for world in (1, 2, 5):
        datasets = [ShardDataset(corpus, rank=rank, world=world, **options) for rank in range(world)]
        loaders = [loader(torch, dataset, workers) for dataset in datasets]
        for epoch in range(2):
            expected = specified.global_batches(order_of_rows("shuffled", TOTAL, epoch), BATCH, world)
            for rank, batches in enumerate(loaders):
                assert len(batches) == len(expected)
                assert row_batches(batches) == [batch[rank] for batch in expected]


@pytest.mark.parametrize("workers", [0, 2])
def test_another_number_of_ranks_and_workers_goes_on(corpus, torch, workers):  # noqa: F811
    from ringmain.torch import ShardDataset

    options = {"order": "shuffled", "seed": 9, "global_batch": BATCH}
    dataset = ShardDataset(corpus, rank=1, world=4, epoch=2, **options)
    running = iter(loader(torch, dataset, workers))
    for _ in range(3):
        next(running)
    state = dataset.state_dict(batches=3)
    assert state["batches_done"] == 3
    # A count over several epochs became the end of this one.
    with pytest.raises(ValueError, match="batches cannot be 8: an epoch of this dataset has 7"):
        dataset.state_dict(batches=8)
    assert dataset.state_dict(batches=7)["batches_done"] == 7
    if workers == 0:
        assert dataset.state_dict() == state
    else:
        with pytest.raises(RuntimeError, match="ahead of your loop"):
            dataset.state_dict()
    for world, later_workers in [(1, 2), (3, 0), (4, 3), (5, 1)]:
        for rank in range(world):
            later = ShardDataset(corpus, rank=rank, world=world, **options)
            later.load_state_dict(json.loads(json.dumps(state)))
            assert later.epoch == 2 and later.state_dict() == state
            batches = loader(torch, later, later_workers)
            expected = specified.global_batches(order_of_rows("shuffled", TOTAL, 2), BATCH, world)
            assert row_batches(batches) == [batch[rank] for batch in expected[3:]]
            # The state counts the batches from the start of the epoch, and the next epoch is whole.
            expected = specified.global_batches(order_of_rows("shuffled", TOTAL, 3), BATCH, world)
            assert row_batches(batches) == [batch[rank] for batch in expected]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_state_of_a_stateful_loader_is_that_of_the_job(corpus, torch, workers):  # noqa: F811
    from ringmain.torch import ShardDataset, job_state

    loader_type = pytest.importorskip(
        "torchdata.stateful_dataloader", reason="torchdata is not installed"
    ).StatefulDataLoader

    def opened(workers, rank, world, state=None):
        dataset = ShardDataset(corpus, order="shuffled", seed=9, global_batch=BATCH, rank=rank, world=world)
        if state is not None:
            dataset.load_state_dict(state)
        return loader_type(dataset, batch_size=None, num_workers=workers)

    expected = specified.global_batches(order_of_rows("shuffled", TOTAL, 0), BATCH, 2)
    for used in range(len(expected)):
        batches = opened(workers, 1, 2)
        running = iter(batches)
        assert [next(running)[1].tolist() for _ in range(used)] == [batch[1] for batch in expected[:used]]
        state = batches.state_dict()
        assert job_state(state)["batches_done"] == used and "worker" not in job_state(state)
        # The same loader goes on with its own state, and any other with that of the job.
        later = opened(workers, 1, 2)
        later.load_state_dict(state)
        assert row_batches(later) == [batch[1] for batch in expected[used:]]
        shares = specified.global_batches(order_of_rows("shuffled", TOTAL, 0), BATCH, 3)[used:]
        later = opened(3 - workers, 2, 3, state)
        assert row_batches(later) == [batch[2] for batch in shares]
    with pytest.raises(ValueError, match="global_batch"):
        job_state(loader_type(ShardDataset(corpus), batch_size=None).state_dict())


def test_the_state_of_a_resumed_loader_before_each_worker_has_delivered(corpus, torch):  # noqa: F811
    """A worker that had delivered nothing returned the state of the job that was loaded, and `job_state` took each
    such state for that of the only worker."""
    from ringmain.torch import ShardDataset, job_state

    loader_type = pytest.importorskip(
        "torchdata.stateful_dataloader", reason="torchdata is not installed"
    ).StatefulDataLoader
    expected = specified.global_batches(order_of_rows("shuffled", TOTAL, 0), BATCH, 2)
    for used in range(3):
        dataset = ShardDataset(corpus, order="shuffled", seed=9, global_batch=BATCH, rank=1, world=2)
        dataset.load_state_dict(dataset.state_dict(batches=2))
        batches = loader_type(dataset, batch_size=None, num_workers=3)
        running = iter(batches)
        found = [next(running)[1].tolist() for _ in range(used)]
        assert found == [batch[1] for batch in expected[2 : 2 + used]]
        assert job_state(batches.state_dict())["batches_done"] == 2 + used


@pytest.mark.parametrize("resumed", [False, True])
def test_the_states_of_workers_that_begin_one_after_the_other(corpus, torch, monkeypatch, resumed):  # noqa: F811
    """The state of a worker did not depend on its number, and on how far the other workers were."""
    from ringmain.torch import ShardDataset, job_state

    dataset = ShardDataset(corpus, order="shuffled", seed=9, global_batch=BATCH, rank=1, world=2)
    first = dataset.state_dict(batches=2 if resumed else 0)
    if resumed:
        dataset.load_state_dict(first)
    monkeypatch.setattr("ringmain.torch.slots_of_worker", lambda: None)
    states, running = {}, []
    for worker in range(3):
        info = SimpleNamespace(id=worker, num_workers=3, seed=70 + worker)
        monkeypatch.setattr("ringmain._batch_dataset.get_worker_info", lambda info=info: info)
        # Shares the memory of the dataset, as a forked worker does.
        copied = copy.copy(dataset)
        copied._loops = copy.copy(dataset._loops)
        running.append(iter(copied))
        states[f"worker_{worker}"] = {"dataset_state": copied.state_dict()}
        assert states[f"worker_{worker}"]["dataset_state"]["worker"] == [worker, 3]
        next(running[-1])
    assert job_state({"_snapshot": {"_worker_snapshots": states}}) == first


@pytest.mark.parametrize("global_batch", [None, BATCH])
def test_a_loop_that_has_delivered_nothing_has_the_state_of_its_epoch(corpus, torch, global_batch):  # noqa: F811
    """The state was that of the loop before, at its end."""
    from ringmain.torch import ShardDataset

    def opened():
        return ShardDataset(corpus, order="shuffled", seed=9, global_batch=global_batch, rank=0, world=1)

    dataset = opened()
    list(dataset)
    second = iter(dataset)
    state = dataset.state_dict()
    assert state["epoch"] == 1
    later = opened()
    later.load_state_dict(state)
    assert row_batches(later) == row_batches(second)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_a_loader_that_takes_few_snapshots_has_the_state_of_the_job(corpus, torch, workers):  # noqa: F811
    """Between two snapshots, the loader counts the batches."""
    from ringmain.torch import ShardDataset, job_state

    loader_type = pytest.importorskip(
        "torchdata.stateful_dataloader", reason="torchdata is not installed"
    ).StatefulDataLoader

    def opened():
        dataset = ShardDataset(corpus, order="shuffled", seed=9, global_batch=BATCH, rank=1, world=2)
        return loader_type(dataset, batch_size=None, num_workers=workers, snapshot_every_n_steps=3)

    expected = specified.global_batches(order_of_rows("shuffled", TOTAL, 0), BATCH, 2)
    for used in range(len(expected)):
        batches = opened()
        running = iter(batches)
        assert [next(running)[1].tolist() for _ in range(used)] == [batch[1] for batch in expected[:used]]
        state = batches.state_dict()
        assert job_state(state)["batches_done"] == used
        later = opened()
        later.load_state_dict(state)
        assert row_batches(later) == [batch[1] for batch in expected[used:]]
        for rank in range(3):
            options = {"order": "shuffled", "seed": 9, "global_batch": BATCH}
            dataset = ShardDataset(corpus, rank=rank, world=3, **options)
            dataset.load_state_dict(state)
            shares = specified.global_batches(order_of_rows("shuffled", TOTAL, 0), BATCH, 3)[used:]
            assert row_batches(loader(torch, dataset, 2)) == [batch[rank] for batch in shares]


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_samples(torch, workers):
    from ringmain.torch import BetonBatches

    options = {"traversal": "quasi_random", "seed": 9, "open_pages": 2, "global_batch": 64}
    beton = ringmain.Beton(VECTOR)
    datasets = [BetonBatches(VECTOR, rank=rank, world=3, **options) for rank in range(3)]
    for epoch in range(2):
        expected = specified.global_batches(order_of_samples("quasi_random", epoch), 64, 3)
        for rank, dataset in enumerate(datasets):
            found = list(loader(torch, dataset, workers))
            assert [batch.ids.tolist() for batch in found] == [batch[rank] for batch in expected]
            for fields, ids in found[:2]:
                same = beton.read_batch(ids.tolist())
                assert list(fields) == list(same)
                np.testing.assert_array_equal(fields["mat"].numpy(), same["mat"])
                np.testing.assert_array_equal(fields["label"].numpy(), same["label"])
                np.testing.assert_array_equal(fields["blob"][0].numpy(), same["blob"][0])
    state = datasets[0].state_dict(batches=2)
    later = BetonBatches(beton, rank=1, world=2, **options)
    later.load_state_dict(state)
    expected = specified.global_batches(order_of_samples("quasi_random", state["epoch"]), 64, 2)
    assert row_batches(loader(torch, later, workers)) == [batch[1] for batch in expected[2:]]
    with pytest.raises(ValueError, match="batch_size=None"):
        next(iter(torch.utils.data.DataLoader(later, batch_size=2)))
    assert "BetonBatches(Beton(" in repr(later)


@pytest.fixture
def group(torch, tmp_path, environment):
    """torch.distributed with one process."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield torch.distributed.group.WORLD
    torch.distributed.destroy_process_group()


def test_ranks_that_contradict_torch_distributed_are_refused(corpus, torch, group, environment, monkeypatch):  # noqa: F811
    """Two processes with the same number would read the same rows. Both are in torch.distributed, where one of
    them has another number."""
    from ringmain.torch import ShardDataset

    assert ringmain.job_place() == ringmain.job_place(0, 1) == ringmain.job_place(group=group) == (0, 1, 0, 1)
    with pytest.raises(ValueError, match="given place is rank 1 of 2, but .* torch.distributed is rank 0 of 1"):
        ShardDataset(corpus, rank=1, world=2)
    environment(RANK=1, WORLD_SIZE=2)
    with pytest.raises(ValueError, match="torch.distributed is rank 0 of 1, but .*WORLD_SIZE is rank 1 of 2"):
        ShardDataset(corpus)
    # Lightning sets WORLD_SIZE, but not RANK.
    monkeypatch.delenv("RANK")
    assert ringmain.job_place() == (0, 1, 0, 1)
    spawned_copy = pickle.dumps(ShardDataset(corpus))
    with monkeypatch.context() as spawned:
        # A worker that is not forked has neither RANK nor torch.distributed. It raised an error.
        spawned.setattr(torch.distributed, "is_initialized", lambda: False)
        assert sum(len(batch.row_ids) for batch in pickle.loads(spawned_copy)) == TOTAL
        # A process without a number cannot make a dataset.
        with pytest.raises(ValueError, match="RANK is not set"):
            ShardDataset(corpus)
    # The ranks of a group need not be those of the job.
    dataset = ShardDataset(corpus, group=group)
    assert "rank=0, world=1" in repr(dataset)
    # A worker that is not forked has no group.
    assert len(list(pickle.loads(pickle.dumps(dataset)))) == len(list(dataset))
    with pytest.raises(ValueError, match="given place is rank 1 of 2, but .* group"):
        ShardDataset(corpus, rank=1, world=2, group=group)


def test_the_place_in_ray_train(tmp_path):
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    train = pytest.importorskip("ray.train.torch", reason="Ray Train is not installed")
    pytest.importorskip("torch", reason="torch is not installed")
    # Ray sends a function of a test module by name, and its workers cannot import that module.
    def report_place(config):
        from pathlib import Path

        import ray.train

        import ringmain

        place = ringmain.job_place()
        assert place[:2] == (ray.train.get_context().get_world_rank(), 2)
        try:
            ringmain.job_place(1 - place.rank, 2)
        except ValueError as error:
            Path(config["folder"], str(place.rank)).write_text(str(error))

    ray.init(num_cpus=4, include_dashboard=False, _node_ip_address="127.0.0.1")
    try:
        train.TorchTrainer(
            report_place,
            train_loop_config={"folder": str(tmp_path)},
            scaling_config=ray.train.ScalingConfig(num_workers=2),
            run_config=ray.train.RunConfig(storage_path=str(tmp_path / "runs")),
        ).fit()
    finally:
        ray.shutdown()
    for rank in range(2):
        assert f"is rank {rank} of 2" in (tmp_path / str(rank)).read_text()


@pytest.mark.parametrize("version", [1, 2])
def test_outside_of_ray_train_there_is_no_place(version, environment):
    """The first version of Ray Train has a rank 0 of 1 there: a process of torchrun that had imported it got an error."""
    pytest.importorskip("ray.train", reason="Ray Train is not installed")
    program = (
        "import os, ray.train, ringmain; assert ringmain.job_place() == (0, 1, 0, 1); "
        "os.environ.update(RANK='1', WORLD_SIZE='2'); assert ringmain.job_place()[:2] == (1, 2)"
    )
    environment(RAY_TRAIN_V2_ENABLED=version - 1)
    subprocess.run([sys.executable, "-c", program], check=True)
