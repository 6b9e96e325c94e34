"""`BetonLoader`: decoded batches of a `.beton` file. Torch is optional: without it pytest skips these tests."""

import os
import pickle
import threading

import numpy as np
import pytest

import ringmain

COUNT = 50


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("beton") / "a.beton"
    fields = {"label": "int", "img": "image", "meta": "json"}
    samples = [(at, np.full((4 + at % 3, 5, 3), at, np.uint8), {"at": at}) for at in range(COUNT)]
    ringmain.BetonWriter(path, fields, page_size=2 << 20).from_iterable(samples)
    return path


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def loader_type(torch):
    import ringmain.torch

    return ringmain.torch.BetonLoader


def threads_left():
    return [thread.name for thread in threading.enumerate() if thread.name == "ringmain-ahead"]


def ids_of(loader):
    return [id for batch in loader for id in batch.ids.tolist()]


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_batches_are_tensors_of_decoded_samples(path, torch, loader_type, ahead):
    loader = loader_type(path, batch_size=8, resize=(3, 2), layout="nchw", dtype="float32", ahead=ahead)
    assert len(loader) == 7
    found = []
    for fields, ids in loader:
        assert fields["img"].shape == (len(ids), 3, 3, 2) and fields["img"].dtype == torch.float32
        assert (fields["img"] == ids[:, None, None, None]).all() and (fields["label"] == ids).all()
        assert [meta["at"] for meta in fields["meta"]] == ids.tolist()
        found += ids.tolist()
    assert found == list(range(COUNT)) and not threads_left()


def test_each_loop_is_another_epoch(path, loader_type):
    loader = loader_type(path, batch_size=8, shuffle=True, seed=3)
    beton = ringmain.Beton(path)
    for epoch in range(3):
        expected = [id for _, ids in beton.epoch("random", seed=3, epoch=epoch, batch_size=8) for id in ids]
        assert ids_of(loader) == expected and loader.epoch == epoch
    loader.set_epoch(1)
    expected = [id for _, ids in beton.epoch("random", seed=3, epoch=1, batch_size=8) for id in ids]
    assert ids_of(loader) == expected
    # A random crop depends on the epoch, also here.
    crops = ringmain.Beton(path, resize=(2, 2), random_crop=(0.1, 0.5))
    for fields, ids in loader_type(crops, batch_size=8, epoch=5):
        np.testing.assert_array_equal(fields["img"], crops.read_batch(ids.tolist(), epoch=5)["img"])


@pytest.mark.parametrize("ahead", [0, 2])
@pytest.mark.parametrize("taken", [0, 1, 4, 7])
def test_a_state_counts_the_batches_that_the_loop_took(path, loader_type, taken, ahead):
    options = {"batch_size": 8, "shuffle": True, "ahead": ahead}
    whole = list(loader_type(path, **options))
    loader = loader_type(path, **options)
    batches = iter(loader)
    for _ in range(taken):
        next(batches)
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    again = loader_type(path, **options)
    again.load_state_dict(state)
    expected = [id for batch in whole[taken:] for id in batch.ids.tolist()]
    assert ids_of(again) == expected
    assert sorted(ids_of(again)) == list(range(COUNT)), "the next epoch"
    # The loader itself goes back too, although its thread was ahead.
    loader.load_state_dict(state)
    assert ids_of(loader) == expected


@pytest.mark.parametrize("ahead", [0, 2])
def test_a_state_before_the_first_batch_of_a_later_loop_is_in_its_epoch(path, loader_type, ahead):
    """It was at the end of the epoch before, or in the middle of it after a `break`."""
    options = {"batch_size": 8, "shuffle": True, "ahead": ahead}
    epochs = loader_type(path, **options)
    expected = [ids_of(epochs) for _ in range(3)]
    loader = loader_type(path, **options)
    for epoch, taken in enumerate([7, 2], start=1):
        batches = iter(loader)  # the loop of the epoch before
        for _ in range(taken):
            next(batches)
        del batches
        batches = iter(loader)
        state = pickle.loads(pickle.dumps(loader.state_dict()))
        del batches
        again = loader_type(path, **options)
        again.load_state_dict(state)
        assert again.epoch == epoch and ids_of(again) == expected[epoch]
        loader.load_state_dict(state)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_resumes_it(path, loader_type, workers):
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")

    def make():
        dataset = loader_type(path, batch_size=4, shuffle=True)
        return stateful.StatefulDataLoader(dataset, batch_size=None, num_workers=workers)

    loader, found = make(), []
    for number, batch in enumerate(loader):
        found += batch.ids.tolist()
        if number == 4:
            state = loader.state_dict()
            break
    del loader
    again = make()
    again.load_state_dict(state)
    found += ids_of(again)
    assert sorted(found) == list(range(COUNT))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataloader_counts_its_batches_and_resumes_it(path, torch, loader_type, workers):
    """`len(loader)` was the number without workers. In the parent of workers, the error of `state_dict` named
    arguments that it did not have."""

    def make():
        dataset = loader_type(path, batch_size=8, shuffle=True)
        return dataset, torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers)

    dataset, loader = make()
    # With workers, its state was returned for that of the loader's loop.
    assert sorted(ids_of(dataset)) == list(range(COUNT))
    dataset.set_epoch(0)
    expected = [batch.ids.tolist() for batch in loader]
    assert len(loader) == len(expected) == (8 if workers else 7)
    if workers:
        with pytest.raises(RuntimeError, match=r"state_dict\(batches=…, num_workers=…\)"):
            dataset.state_dict()
    again, rest = make()
    again.load_state_dict(dataset.state_dict(batches=5, num_workers=workers))
    assert [batch.ids.tolist() for batch in rest] == expected[5:]


def test_a_loop_without_workers_follows_one_with_workers(path, torch, loader_type):
    """Its first state was asked for while the workers still counted as ahead of the loop, which was an error."""
    dataset = loader_type(path, batch_size=8)
    for loop in (torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=1), dataset):
        assert ids_of(loop) == list(range(COUNT))


def test_a_loop_that_is_dropped_or_replaced_leaves_no_thread(path, loader_type):
    loader = loader_type(path, batch_size=2)
    for _ in loader:
        break
    assert not threads_left()
    first = iter(loader)
    next(first)
    second = iter(loader)
    next(second)
    assert len(threads_left()) == 1
    with pytest.raises(StopIteration):
        next(first)
    copy = pickle.loads(pickle.dumps(loader))
    assert len(ids_of(copy)) == COUNT
    del first, second, loader, copy
    assert not threads_left()


@pytest.mark.parametrize("ahead", [0, 2])
def test_an_error_comes_at_its_place_and_loses_nothing(path, loader_type, ahead):
    calls = []

    def fail_once(images, ids):
        calls.append(ids.tolist())
        if len(calls) == 3:
            raise ArithmeticError("too bright")

    beton = ringmain.Beton(path, resize=(2, 2), transform=fail_once)
    loader = loader_type(beton, batch_size=8, ahead=ahead)
    found = []
    with pytest.raises(ArithmeticError, match="too bright") as raised:
        for batch in loader:
            found += batch.ids.tolist()
    assert "samples 16, 17" in raised.value.__notes__[0] and found == list(range(16))
    assert not threads_left()
    loader.load_state_dict(loader.state_dict())
    assert found + ids_of(loader) == list(range(COUNT))


def test_batches_are_pinned_if_there_is_a_gpu(path, torch, loader_type, monkeypatch):
    import ringmain._beton_loader as module

    seen = []

    def pinned(batch):
        seen.append(batch.ids.tolist())
        return batch

    monkeypatch.setattr(module, "pinned", pinned)
    for has_gpu, chosen, is_pinned in [(True, None, True), (False, None, False), (True, False, False), (False, True, True)]:
        monkeypatch.setattr(torch.cuda, "is_available", lambda has_gpu=has_gpu: has_gpu)
        seen.clear()
        list(loader_type(path, batch_size=30, pin_memory=chosen))
        assert len(seen) == (2 if is_pinned else 0)


def test_the_workers_of_a_dataloader_pin_nothing(path, torch, loader_type, monkeypatch):
    """Torch refuses CUDA in a forked worker: the first batch was an error."""
    import ringmain._beton_loader as module

    def pinned(batch):
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(module, "pinned", pinned)
    dataset = loader_type(path, batch_size=8)
    options = {"batch_size": None, "num_workers": 2, "multiprocessing_context": "fork"}
    loader = torch.utils.data.DataLoader(dataset, **options)
    assert sorted(ids_of(loader)) == list(range(COUNT))


def test_a_forked_child_gets_an_error_instead_of_a_hang(path, loader_type):
    loader = loader_type(path, batch_size=8)
    batches = iter(loader)
    next(batches)
    child = os.fork()
    if child == 0:
        try:
            next(batches)
        except RuntimeError as error:
            os._exit(17 if "begin another loop here" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
    assert len([batch for batch in batches]) == 6


def test_invalid_options_are_errors(path, loader_type):
    with pytest.raises(ValueError, match="shuffle and traversal"):
        loader_type(path, shuffle=True, traversal="random")
    with pytest.raises(TypeError, match="resize: pass these options to ringmain.Beton"):
        loader_type(ringmain.Beton(path), resize=(2, 2))
    with pytest.raises(ValueError, match="ahead cannot be -1"):
        loader_type(path, ahead=-1)
