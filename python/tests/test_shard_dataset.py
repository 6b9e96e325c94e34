"""Shards in torch DataLoaders. Torch is optional: without it pytest skips these tests."""

import copy
import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from test_shards import TOTAL, VALUES, corpus  # noqa: F401

import ringmain


def test_without_torch_the_error_says_so(monkeypatch):
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


def copy_of_worker(dataset):
    """Returns a copy that shares the memory that a worker's copy shares."""
    worker = copy.copy(dataset)
    worker._loops = copy.copy(dataset._loops)
    return worker


def loader(torch, dataset, workers, **options):
    return torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers, **options)


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_a_loader_delivers_every_row_once(corpus, torch, dataset_type, workers):  # noqa: F811
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


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_that_batches_again_is_refused(corpus, torch, dataset_type, workers):  # noqa: F811
    dataset = dataset_type(corpus, batch_rows=6)
    for options in ({}, {"batch_size": 4}):
        loader = torch.utils.data.DataLoader(dataset, num_workers=workers, **options)
        with pytest.raises(ValueError, match="batch_size=None"):
            next(iter(loader))
    with pytest.raises(ValueError, match="batch_size=None"):
        torch.utils.data.default_collate([next(iter(dataset))])


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_a_loader_has_a_length(corpus, torch, dataset_type, workers, recwarn):  # noqa: F811
    dataset = dataset_type(corpus, order="shuffled", batch_rows=6)
    each = loader(torch, dataset, workers)
    assert len(each) == dataset.batches(workers) == len(list(each))
    assert len(dataset) == dataset.batches(0)
    assert not [one for one in recwarn if "Length of IterableDataset" in str(one.message)]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_every_start_method(corpus, torch, dataset_type, method):  # noqa: F811
    engine = ringmain.Engine(memory_limit=64 << 20)
    dataset = dataset_type(corpus, engine=engine, batch_rows=6)
    assert ids_of(dataset) == list(range(TOTAL))  # the parent reads first
    workers = 2 if method == "fork" else 1  # with the other methods each worker imports torch
    found = ids_of(loader(torch, dataset, workers, multiprocessing_context=method))
    assert sorted(found) == list(range(TOTAL))


def test_ranks_and_workers_deliver_every_row_once(corpus, torch, dataset_type, monkeypatch):  # noqa: F811
    found = []
    for rank in range(2):
        dataset = dataset_type(corpus, rank=rank, world=2, batch_rows=5)
        for worker in range(3):
            info = SimpleNamespace(id=worker, num_workers=3, seed=worker)
            monkeypatch.setattr("ringmain._batch_dataset.get_worker_info", lambda info=info: info)
            found += ids_of(copy_of_worker(dataset))
    assert sorted(found) == list(range(TOTAL))
    with pytest.raises(ValueError, match="together"):
        dataset_type(corpus, rank=1)
    with pytest.raises(ValueError, match="order"):
        dataset_type(corpus, order="none")
    with pytest.raises(TypeError):
        dataset_type(corpus, none=1)


def test_persistent_workers_see_the_epoch(corpus, torch, dataset_type):  # noqa: F811
    dataset = dataset_type(corpus, order="shuffled", batch_rows=6)
    batches = loader(torch, dataset, 2, persistent_workers=True)
    orders = []
    for epoch in (0, 1, 0):
        dataset.set_epoch(epoch)
        orders.append(ids_of(batches))
        assert sorted(orders[-1]) == list(range(TOTAL))
    assert orders[0] == orders[2] != orders[1]


LOADERS = [
    (0, {}),
    (2, {}),
    (3, {"persistent_workers": True}),
    (2, {"multiprocessing_context": "spawn"}),
    (2, {"multiprocessing_context": "spawn", "persistent_workers": True}),
]


@pytest.mark.parametrize(("workers", "options"), LOADERS)
def test_every_loop_reads_the_next_epoch(corpus, torch, dataset_type, workers, options):  # noqa: F811
    """Without `set_epoch`, every loop repeated the order of the first one."""
    dataset = counted(corpus, dataset_type)
    batches = loader(torch, dataset, workers, **options)
    loops = []
    for epoch in range(4):
        loops.append(ids_of(batches))
        assert dataset.epoch == epoch and sorted(loops[-1]) == list(range(TOTAL))
    again = counted(corpus, dataset_type)
    for epoch, found in enumerate(loops):
        again.set_epoch(epoch)
        assert ids_of(loader(torch, again, workers)) == found
    assert len({tuple(loop) for loop in loops}) == 4


@pytest.mark.parametrize(("workers", "options"), LOADERS[:3])
def test_a_loop_after_a_break_reads_the_next_epoch(corpus, torch, dataset_type, workers, options):  # noqa: F811
    """Workers of one loop must not read different epochs, even if some had not begun at the break."""
    dataset = counted(corpus, dataset_type, batch_rows=4)
    batches = loader(torch, dataset, workers, **options)
    for epoch in range(6):
        if epoch % 2 == 0:
            next(iter(batches))
        else:
            assert sorted(ids_of(batches)) == list(range(TOTAL))
            assert dataset.epoch == epoch


def test_loops_at_the_same_time_read_whole_epochs(corpus, torch, dataset_type):  # noqa: F811
    dataset = counted(corpus, dataset_type)
    batches = loader(torch, dataset, 2)
    found = [[], []]
    for pair in zip(batches, batches, strict=True):
        for ids, (_, row_ids) in zip(found, pair, strict=True):
            ids += row_ids.tolist()
    assert sorted(found[0]) == sorted(found[1]) == list(range(TOTAL))


@pytest.mark.parametrize(("workers", "options"), LOADERS[:3])
def test_loops_after_a_resumed_one_read_the_next_epochs(corpus, torch, dataset_type, workers, options):  # noqa: F811
    whole = counted(corpus, dataset_type, epoch=5)
    loops = [ids_of(loader(torch, whole, workers)) for _ in range(3)]
    assert len({tuple(loop) for loop in loops}) == 3
    dataset = counted(corpus, dataset_type)
    dataset.load_state_dict(counted(corpus, dataset_type, epoch=5).state_dict(batches=2, num_workers=workers))
    batches = loader(torch, dataset, workers, **options)
    rest = ids_of(batches)
    assert rest == loops[0][-len(rest) :] and len(rest) < TOTAL and dataset.epoch == 5
    assert [ids_of(batches), ids_of(batches)] == loops[1:]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_that_was_set_stays(corpus, torch, dataset_type, workers):  # noqa: F811
    dataset = counted(corpus, dataset_type)
    first = ids_of(loader(torch, dataset, workers))
    dataset.set_epoch(0)
    assert [ids_of(loader(torch, dataset, workers)) for _ in range(2)] == [first, first]
    assert dataset.epoch == 0


def test_the_state_of_a_loop_has_its_epoch(corpus, torch, dataset_type):  # noqa: F811
    dataset = counted(corpus, dataset_type)
    batches = loader(torch, dataset, 2)
    assert len(ids_of(batches)) == TOTAL
    for used, _ in enumerate(batches, 1):
        state = dataset.state_dict(batches=used, num_workers=2)
        assert (state["epoch"], state["batches"]) == (1, used)


def test_torchdata_resumes_and_reads_the_next_epochs(corpus, dataset_type):  # noqa: F811
    """Its loader loads the states in the workers, before they iterate."""
    loader_type = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def opened():
        return loader_type(counted(corpus, dataset_type), batch_size=None, num_workers=2)

    batches = opened()
    loops = [[ids.tolist() for _, ids in batches] for _ in range(3)]
    assert len({str(loop) for loop in loops}) == 3
    batches = opened()
    assert [ids.tolist() for _, ids in batches] == loops[0]
    running = iter(batches)
    begun = [next(running)[1].tolist() for _ in range(3)]
    state = batches.state_dict()
    later = opened()
    later.load_state_dict(state)
    assert begun + [ids.tolist() for _, ids in later] == loops[1]
    assert [ids.tolist() for _, ids in later] == loops[2]


def test_paths_may_be_a_glob(corpus, torch, dataset_type):  # noqa: F811
    dataset = dataset_type(iter(sorted(corpus.glob("*.shard"))), batch_rows=6)
    for workers in (0, 2):
        assert sorted(ids_of(loader(torch, dataset, workers))) == list(range(TOTAL))


def test_drop_last_must_leave_a_batch(corpus, torch, dataset_type):  # noqa: F811
    """The loop was empty, without an error."""
    with pytest.raises(ValueError, match="smaller batch_rows"):
        counted(corpus, dataset_type, batch_rows=TOTAL + 1, drop_last=True)
    dataset = counted(corpus, dataset_type, batch_rows=TOTAL // 2, drop_last=True)
    assert len(list(loader(torch, dataset, 2))) == 2
    with pytest.raises(ValueError, match="smaller batch_rows"):
        list(loader(torch, dataset, 3))  # a worker has a third of the rows


def test_a_state_is_resumed_in_this_process(corpus, torch, dataset_type):  # noqa: F811
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


def counted(corpus, dataset_type, **options):  # noqa: F811
    return dataset_type(corpus, **{"order": "shuffled", "seed": 1, "batch_rows": 9, **options})


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_a_state_is_resumed_with_workers(corpus, torch, dataset_type, workers):  # noqa: F811
    """At every position, including those where some workers have ended and others have not."""
    dataset = counted(corpus, dataset_type)
    whole = [ids.tolist() for _, ids in loader(torch, dataset, workers)]
    assert len(whole) == dataset.batches(workers)
    for used in range(len(whole) + 1):
        state = dataset.state_dict(batches=used, num_workers=workers)
        later = counted(corpus, dataset_type)
        later.load_state_dict(pickle.loads(pickle.dumps(state)))
        assert [ids.tolist() for _, ids in loader(torch, later, workers)] == whole[used:]
    later.load_state_dict(state)
    with pytest.raises(ValueError, match="num_workers"):
        list(loader(torch, later, max(1, workers) + 1))
    assert list(loader(torch, later, workers)) == []  # the refused loader did not use the state


@pytest.mark.parametrize(("workers", "step"), [(2, 1), (2, 3), (3, 2)])
def test_a_state_is_resumed_again_and_again(corpus, torch, dataset_type, workers, step):  # noqa: F811
    """A state that was taken in a resumed iteration lost rows. The resumed loader asks its first worker
    first again, but that worker had another part than the count assumed."""
    dataset = counted(corpus, dataset_type)
    whole = [ids.tolist() for _, ids in loader(torch, dataset, workers)]
    found = []
    while len(found) < len(whole):
        state = dataset.state_dict(batches=len(found), num_workers=workers)
        dataset = counted(corpus, dataset_type)
        dataset.load_state_dict(state)
        batches = iter(loader(torch, dataset, workers))
        found += [next(batches)[1].tolist() for _ in range(min(step, len(whole) - len(found)))]
        del batches
    assert found == whole


@pytest.mark.parametrize(
    ("workers", "is_seeded", "options"),
    [
        (0, False, {}),
        (2, False, {}),
        (2, True, {}),
        (2, False, {"persistent_workers": True}),
        (1, False, {"multiprocessing_context": "spawn"}),
    ],
)
def test_the_epoch_after_a_resumed_one_is_whole(corpus, torch, dataset_type, workers, options, is_seeded):  # noqa: F811
    """Later epochs were cut short too, because only the workers' copies forgot the state."""
    state = counted(corpus, dataset_type).state_dict(batches=3, num_workers=workers)
    dataset = counted(corpus, dataset_type)
    dataset.load_state_dict(state)
    batches, lengths = loader(torch, dataset, workers, **options), []
    for _ in range(3):
        if is_seeded:
            torch.manual_seed(0)
        lengths.append(len(ids_of(batches)))
    assert lengths[1:] == [TOTAL, TOTAL] and lengths[0] < TOTAL


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("is_persistent", [False, True])
def test_the_loop_in_the_documentation_resumes(corpus, torch, dataset_type, workers, is_persistent):  # noqa: F811
    """`set_epoch` forgot the state that was loaded."""

    def opened():
        dataset = counted(corpus, dataset_type)
        options = {"persistent_workers": is_persistent and workers > 0}
        return dataset, loader(torch, dataset, workers, **options)

    def epochs(dataset, batches, end):
        for epoch in range(dataset.epoch, end):
            dataset.set_epoch(epoch)
            yield [ids.tolist() for _, ids in batches]

    first, second, third = epochs(*opened(), 3)
    dataset, batches = opened()
    dataset.set_epoch(1)
    state = dataset.state_dict(batches=3, num_workers=workers)
    dataset, batches = opened()
    dataset.load_state_dict(state)
    assert list(epochs(dataset, batches, 3)) == [second[3:], third]
    dataset.set_epoch(0)
    assert [ids.tolist() for _, ids in batches] == first
    # `set_epoch` with another epoch forgets the state.
    dataset, batches = opened()
    dataset.load_state_dict(state)
    dataset.set_epoch(2)
    dataset.set_epoch(1)
    assert [ids.tolist() for _, ids in batches] == second


def test_states_of_other_rows_are_refused(corpus, dataset_type):  # noqa: F811
    """A state with `batches` did not record which rows the batches have."""
    state = counted(corpus, dataset_type).state_dict(batches=3, num_workers=2)
    counted(corpus, dataset_type, dtype="float64").load_state_dict(state)
    for options, message in [
        ({"batch_rows": 10}, "batch_rows=9"),
        ({"order": "sequential"}, "order"),
        ({"seed": 2}, "order"),
        ({"rows": range(40)}, "list of rows"),
        ({"rank": 0, "world": 2}, "rank"),
    ]:
        with pytest.raises(ValueError, match=message):
            counted(corpus, dataset_type, **options).load_state_dict(state)
    dataset = counted(corpus, dataset_type)
    for changes, message in [
        ({"batches": -1}, "batches"),
        ({"batches": "3"}, "not a valid state"),
        ({"batches": 10**9}, "there are"),
        ({"num_workers": -2}, "num_workers"),
        ({"start": None}, "not a valid state"),
    ]:
        with pytest.raises(ValueError, match=message):
            dataset.load_state_dict({**state, **changes})
    for key in ("epoch", "rank", "start", "batch_rows"):
        with pytest.raises(ValueError, match="not a valid state|rank"):
            dataset.load_state_dict({name: value for name, value in state.items() if name != key})
    for counts in ({"batches": -1}, {"batches": 1, "num_workers": -1}):
        with pytest.raises(ValueError, match="must be at least 0"):
            dataset.state_dict(**counts)
    (corpus / "part-003.shard").unlink()
    with pytest.raises(ValueError, match="shards"):
        counted(corpus, dataset_type).load_state_dict(state)


def test_a_position_that_only_workers_know_is_an_error(corpus, torch, dataset_type):  # noqa: F811
    """`state_dict` returned the beginning of the epoch instead."""
    dataset = counted(corpus, dataset_type)
    start = dataset.state_dict()
    batches = iter(loader(torch, dataset, 2))
    next(batches)
    with pytest.raises(RuntimeError, match="batches="):
        dataset.state_dict()
    del batches
    dataset.set_epoch(0)
    assert dataset.state_dict() == start
    next(iter(dataset))
    assert "source" in dataset.state_dict()


def test_a_state_that_is_loaded_after_the_workers_started_is_an_error(corpus, torch, dataset_type):  # noqa: F811
    dataset = counted(corpus, dataset_type)
    batches = loader(torch, dataset, 1, persistent_workers=True)
    assert len(ids_of(batches)) == TOTAL
    dataset.load_state_dict(dataset.state_dict(batches=1, num_workers=1))
    with pytest.raises(RuntimeError, match="another DataLoader"):
        list(batches)


def test_a_loader_that_keeps_the_states_of_its_workers(corpus, dataset_type, monkeypatch):  # noqa: F811
    """The loader of torchdata takes the state of each worker's copy of the dataset. When it resumes, it
    loads the states in the workers before they iterate."""

    def as_worker(worker):
        info = worker if worker is None else SimpleNamespace(id=worker, num_workers=2, seed=worker)
        monkeypatch.setattr("ringmain._batch_dataset.get_worker_info", lambda: info)

    dataset, found, states = counted(corpus, dataset_type), [], []
    for worker in range(2):
        part = copy_of_worker(dataset)
        as_worker(worker)
        found += ids_of([next(iter(part))])
        states.append(part.state_dict())
        as_worker(None)
    for worker, state in enumerate(states):
        part = copy_of_worker(dataset)
        as_worker(worker)
        part.load_state_dict(state)
        found += ids_of(part)
        as_worker(None)
    assert sorted(found) == list(range(TOTAL))


def test_repr(corpus, dataset_type):  # noqa: F811
    text = repr(counted(corpus, dataset_type, rank=1, world=2))
    assert str(corpus) in text and "rank=1, world=2" in text and "batch_rows=9" in text


def test_a_pickle_does_not_contain_the_source(corpus, dataset_type):  # noqa: F811
    dataset = dataset_type(corpus, batch_rows=6)
    next(iter(dataset))
    unpickled = pickle.loads(pickle.dumps(dataset))
    assert ids_of(unpickled) == list(range(TOTAL))
    assert dataset.batches() == len(list(dataset))
