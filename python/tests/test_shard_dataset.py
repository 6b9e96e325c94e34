"""Shards in torch's loaders. Torch is not a dependency: without it these are skipped."""

import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from test_shards import TOTAL, VALUES, corpus  # noqa: F401

import ringmain


def test_without_torch_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "ringmain.torch", raising=False)
    with pytest.raises(ImportError, match="ringmain.ShardSource"):
        import ringmain.torch  # noqa: F401


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def dataset_type(torch):
    import ringmain.torch

    return ringmain.torch.ShardDataset


def ids_of(batches):
    return [int(row_id) for _, row_ids in batches for row_id in row_ids]


def loader(torch, dataset, workers, **options):
    return torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers, **options)


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_a_loader_has_every_row_once(corpus, torch, dataset_type, workers):  # noqa: F811
    dataset = dataset_type(corpus, order="shuffled", seed=4, batch_rows=6)
    orders = []
    for epoch in range(2):
        dataset.set_epoch(epoch)
        found = []
        for rows, row_ids in loader(torch, dataset, workers):
            assert rows.dtype == torch.float32 and row_ids.dtype == torch.int64
            np.testing.assert_array_equal(rows.numpy(), VALUES[row_ids.numpy()])
            found += row_ids.tolist()
        assert sorted(found) == list(range(TOTAL))
        orders.append(found)
    assert orders[0] != orders[1]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_by_every_way_to_start_one(corpus, torch, dataset_type, method):  # noqa: F811
    engine = ringmain.Engine(memory_limit=64 << 20)
    dataset = dataset_type(corpus, engine=engine, batch_rows=6)
    assert ids_of(dataset) == list(range(TOTAL))  # the parent has read before
    workers = 2 if method == "fork" else 1  # the others import torch in each
    found = ids_of(loader(torch, dataset, workers, multiprocessing_context=method))
    assert sorted(found) == list(range(TOTAL))


def test_ranks_and_injected_workers(corpus, torch, dataset_type, monkeypatch):  # noqa: F811
    found = []
    for rank in range(2):
        dataset = dataset_type(corpus, rank=rank, world=2, batch_rows=5)
        for worker in range(3):
            info = SimpleNamespace(id=worker, num_workers=3)
            monkeypatch.setattr(ringmain.torch, "get_worker_info", lambda info=info: info)
            found += ids_of(dataset)
    assert sorted(found) == list(range(TOTAL))
    with pytest.raises(ValueError, match="together"):
        dataset_type(corpus, rank=1)
    with pytest.raises(ValueError, match="order"):
        dataset_type(corpus, order="none")
    with pytest.raises(TypeError):
        dataset_type(corpus, none=1)


def test_workers_that_live_on_see_the_epoch(corpus, torch, dataset_type):  # noqa: F811
    dataset = dataset_type(corpus, order="shuffled", batch_rows=6)
    batches = loader(torch, dataset, 2, persistent_workers=True)
    orders = []
    for epoch in (0, 1, 0):
        dataset.set_epoch(epoch)
        orders.append(ids_of(batches))
        assert sorted(orders[-1]) == list(range(TOTAL))
    assert orders[0] == orders[2] != orders[1]


def test_going_on_in_this_process(corpus, torch, dataset_type):  # noqa: F811
    def opened():
        return dataset_type(corpus, order="shuffled", seed=1, batch_rows=6)

    dataset = opened()
    dataset.set_epoch(5)
    batches = iter(dataset)
    before = ids_of([next(batches), next(batches)])
    state = pickle.loads(pickle.dumps(dataset.state_dict()))
    later = opened()
    later.load_state_dict(state)
    assert later.epoch == 5 and later.state_dict() == state
    rest = ids_of(later)
    assert rest == ids_of(batches) and sorted(before + rest) == list(range(TOTAL))
    later.set_epoch(6)
    assert sorted(ids_of(later)) == list(range(TOTAL))  # a whole epoch again
    with pytest.raises(ValueError, match="rank"):
        dataset_type(corpus, rank=0, world=2).load_state_dict(state)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_going_on_with_workers(corpus, torch, dataset_type, workers):  # noqa: F811
    """At every place: also where some workers have ended and others not."""
    dataset = dataset_type(corpus, order="shuffled", seed=1, batch_rows=9)
    whole = [ids.tolist() for _, ids in loader(torch, dataset, workers)]
    assert len(whole) == dataset.batches(workers)
    for used in (0, 3, len(whole) - 1, len(whole)):
        state = dataset.state_dict(batches=used, num_workers=workers)
        later = dataset_type(corpus, order="shuffled", seed=1, batch_rows=9)
        later.load_state_dict(state)
        rest = [ids.tolist() for _, ids in loader(torch, later, workers)]
        assert sorted(sum(whole[:used] + rest, [])) == list(range(TOTAL))
    later.load_state_dict(state)
    with pytest.raises(ValueError, match="num_workers"):
        list(loader(torch, later, workers + 1))


def test_a_pickle_has_no_source(corpus, dataset_type):  # noqa: F811
    dataset = dataset_type(corpus, batch_rows=6)
    next(iter(dataset))
    copy = pickle.loads(pickle.dumps(dataset))
    assert ids_of(copy) == list(range(TOTAL))
    assert dataset.batches() == len(list(dataset))
