"""Batches that workers send through slots: no batch shows rows of another. These tests need torch."""

import gc
import multiprocessing
import os
import pickle
import sys
import threading
import time
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
from test_shards import TOTAL, VALUES, corpus  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")

from ringmain import _slots  # noqa: E402
from ringmain.torch import Batch, ShardDataset  # noqa: E402


def loader(dataset, **options):
    options = {"num_workers": 2, **options}
    return torch.utils.data.DataLoader(dataset, batch_size=None, **options)


def check(batches):
    for rows, row_ids in batches:
        np.testing.assert_array_equal(rows.numpy(), VALUES[row_ids.numpy()])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_kept_batches_do_not_change(corpus, method):  # noqa: F811
    dataset = ShardDataset(corpus, batch_rows=1, order="shuffled")
    kept = list(loader(dataset, multiprocessing_context=method))
    assert len(kept) > 2 * _slots._SLOTS_MAX  # some of them had no slot
    assert all(isinstance(batch, Batch) for batch in kept)
    check(kept)
    assert sorted(int(at) for _, ids in kept for at in ids) == list(range(TOTAL))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_some_batches_are_kept_and_most_are_dropped(corpus, dtype):  # noqa: F811
    dataset = ShardDataset(corpus, batch_rows=5, order="shuffled", dtype=dtype)
    batches = loader(dataset, persistent_workers=True)
    kept = []
    for epoch in range(6):
        dataset.set_epoch(epoch)
        for number, batch in enumerate(batches):
            check([batch])
            if number % 7 == epoch:
                kept.append(Batch(batch.rows[1:], batch.row_ids[1:]))  # a part keeps the slot
        check(kept)
    del batches
    gc.collect()
    check(kept)


def doubled(batch):
    return batch.rows * 2, batch.row_ids


def renamed(batch):
    return {"rows": batch.rows, "ids": batch.row_ids}


def nothing(batch):
    return len(batch.rows)


def test_a_collate_function_makes_new_objects(corpus):  # noqa: F811
    dataset = ShardDataset(corpus, batch_rows=3)
    for rows, ids in list(loader(dataset, collate_fn=doubled)):
        np.testing.assert_array_equal(rows.numpy(), 2 * VALUES[ids.numpy()])
    for batch in list(loader(dataset, collate_fn=renamed)):
        np.testing.assert_array_equal(batch["rows"].numpy(), VALUES[batch["ids"].numpy()])
    assert sum(loader(dataset, collate_fn=nothing)) == TOTAL


class AsWorker:
    """Makes this process act as a worker that receives its own batches."""

    def __enter__(self):
        self.before, _slots._mine = _slots._mine, (os.getpid(), _slots.Slots())
        return _slots._mine[1]

    def __exit__(self, *_):
        _slots._mine = self.before


def filled(value, rows=4):
    return np.full((rows, 3), value, np.float32), np.arange(rows, dtype=np.int64) + value


def sent(batch):
    return pickle.loads(bytes(ForkingPickler.dumps(batch)))


def test_a_slot_is_used_again_when_its_batch_is_dropped():
    with AsWorker() as slots:
        for value in range(100):
            received = sent(slots.batch(*filled(value)))
            assert received.rows.unique() == value and received.row_ids[0] == value
        # The last batch is still held while the next one is filled.
        assert len(slots._slots) == 2
        rows = received.rows[2]
        del received
        for value in range(50):
            sent(slots.batch(*filled(value)))
        assert rows.unique() == 99
        # These are dropped without being sent, as by a collate function that returns other objects.
        for value in range(50):
            slots.batch(*filled(value))
        assert len(slots._slots) == 2


def test_a_batch_that_is_sent_twice_arrives_as_two():
    with AsWorker() as slots:
        batch = slots.batch(*filled(1))
        first, second = sent(batch), sent(batch)
        del batch, first
        for value in range(2, 9):
            sent(slots.batch(*filled(value)))
        assert second.rows.unique() == 1


def test_other_pickles_contain_the_rows():
    with AsWorker() as slots:
        text = pickle.dumps(slots.batch(*filled(5)))
        sent(slots.batch(*filled(6)))
        assert sent(pickle.loads(text)).rows.unique() == 5


@pytest.mark.parametrize("on_its_way", [sent, lambda batch: batch], ids=["received", "filled"])
def test_slots_that_are_held_during_a_fork_are_not_used_again(on_its_way):
    with AsWorker() as slots:
        held = on_its_way(slots.batch(*filled(1)))
        theirs, ours = multiprocessing.get_context("fork").Pipe()
        child = os.fork()
        if child == 0:
            theirs.recv()  # waits until the parent has dropped the batch
            os._exit(0 if bool((held.rows == 1).all()) else 1)
        del held
        for value in range(2, 9):
            sent(slots.batch(*filled(value)))
        ours.send("now")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_number_of_slots_is_limited():
    with AsWorker() as slots:
        kept = [sent(slots.batch(*filled(value))) for value in range(3 * _slots._SLOTS_MAX)]
        assert len(slots._slots) == _slots._SLOTS_MAX
        assert [int(batch.rows[0, 0]) for batch in kept] == list(range(len(kept)))


class Cached(torch.utils.data.IterableDataset):
    """Keeps the batches in the worker and delivers them again."""

    def __init__(self, dataset):
        self.dataset, self.kept = dataset, []

    def __iter__(self):
        if self.kept:
            yield from self.kept
            return
        for batch in self.dataset:
            self.kept.append(batch)
            yield batch


def test_a_worker_may_keep_batches_that_it_has_sent(corpus):  # noqa: F811
    batches = loader(Cached(ShardDataset(corpus, batch_rows=2)), persistent_workers=True)
    for _ in range(3):
        found = []
        for batch in batches:
            check([batch])
            found += batch.row_ids.tolist()
        assert sorted(found) == list(range(TOTAL))


def double_data(batch):
    batch.rows.data = batch.rows * 2
    return batch


def other_memory(batch):
    batch.rows.set_(batch.rows * 2)
    return batch


def fewer(batch):
    return type(batch)(batch.rows.resize_(1, batch.rows.shape[1]), batch.row_ids.resize_(1))


def turned(batch):
    batch.rows.t_()
    return batch


def doubles(batch):
    batch.rows.data = batch.rows.double()
    return batch


def in_place(batch):
    batch.rows.mul_(2)
    return batch


def with_gradient(batch):
    batch.rows.requires_grad_()
    return batch


@pytest.mark.parametrize(
    "change", [double_data, other_memory, fewer, turned, doubles, in_place, with_gradient]
)
def test_a_collate_function_changes_the_batch(corpus, change):  # noqa: F811
    dataset = ShardDataset(corpus, batch_rows=3)
    wanted = list(loader(dataset, collate_fn=change, num_workers=0))
    found = list(loader(dataset, collate_fn=change, num_workers=1))
    assert len(wanted) == len(found) > 9
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.rows.dtype == theirs.rows.dtype and torch.equal(ours.rows, theirs.rows)
        assert torch.equal(ours.row_ids, theirs.row_ids)
        assert ours.rows.requires_grad == theirs.rows.requires_grad


def test_a_child_of_a_worker_does_not_free_its_slots():
    with AsWorker() as slots:
        batch = slots.batch(*filled(1))
        child = os.fork()
        if child == 0:
            del batch
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        others = [slots.batch(*filled(value)) for value in range(2, 9)]
        assert batch.rows.unique() == 1 and sent(batch).rows.unique() == 1
        assert [int(other.rows[0, 0]) for other in others] == list(range(2, 9))


def test_threads_of_a_worker_do_not_share_slots():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    wrong = []

    def fill(slots, first):
        for value in range(first, first + 1500):
            batch = slots.batch(*filled(value))
            if not bool((batch.rows == value).all()):
                wrong.append(value)

    try:
        with AsWorker() as slots:
            threads = [threading.Thread(target=fill, args=(slots, at * 10_000)) for at in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not wrong


def test_forks_of_the_receiver_do_not_use_up_the_slots():
    with AsWorker() as slots:
        for value in range(40):
            held = sent(slots.batch(*filled(value)))
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
            assert held.rows.unique() == value
            del held
        assert len(slots._slots) <= 2
        assert isinstance(slots.batch(*filled(1)), _slots._SlotBatch)


def test_a_message_can_only_be_read_once():
    with AsWorker() as slots:
        message = bytes(ForkingPickler.dumps(slots.batch(*filled(1))))
        first = pickle.loads(message)
        with pytest.raises(RuntimeError, match="can only be read once"):
            pickle.loads(message)
        assert first.rows.unique() == 1


def mapped_of_others():
    """Returns the mapped slots of other processes. Tests in which this process acts as a worker leave
    slots of this process."""
    return [key for key in _slots._received if key[0] != os.getpid()]


def test_slots_of_ended_workers_are_unmapped(corpus):  # noqa: F811
    for _ in range(3):
        for batch in loader(ShardDataset(corpus, batch_rows=3)):
            check([batch])
    del batch
    gc.collect()
    assert not _slots._leases
    # A worker may end a moment after its last batch was dropped.
    deadline = time.monotonic() + 120
    while mapped_of_others() and time.monotonic() < deadline:
        time.sleep(0.05)
        _slots._forget_ended()
    assert not mapped_of_others()


def test_batches_of_different_sizes_fit_their_slots():
    with AsWorker() as slots:
        for rows in [1, 9, 100, 3]:
            received = sent(slots.batch(*filled(7, rows)))
            assert received.rows.shape == (rows, 3) and received.rows.unique() == 7
            assert received.row_ids.tolist() == list(range(7, 7 + rows))
            del received
