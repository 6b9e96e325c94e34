"""`Beton.epoch`: batches of samples, epoch after epoch."""

import json
import multiprocessing
import pickle
import re
import sys

import interrupts
import numpy as np
import pytest
from beton_files import EXPECTED, VECTOR, check_sample, write_images

import ringmain


@pytest.mark.parametrize(
    ("traversal", "options"),
    [("sequential", {}), ("random", {"seed": 3}), ("quasi_random", {"seed": 3, "open_pages": 1})],
)
def test_an_epoch_delivers_every_sample_once(engine, traversal, options):
    beton = ringmain.Beton(VECTOR, engine=engine, images="stored")
    epoch = beton.epoch(traversal, batch_size=32, **options)
    assert (len(epoch), epoch.batch_size) == (10, 32)
    found = []
    for batch, ids in epoch:
        assert ids.dtype == np.uint64
        for at, id in enumerate(ids):
            one = {name: column[at] for name, column in batch.items()}
            check_sample(one, EXPECTED["samples"][id], "stored")
        found += ids.tolist()
    assert sorted(found) == list(range(300))
    assert (found == sorted(found)) == (traversal == "sequential")
    # The next loop reads the next epoch.
    again = [int(id) for _, ids in epoch for id in ids]
    assert epoch.epoch == 1 and sorted(again) == sorted(found)
    assert (again == found) == (traversal == "sequential")
    epoch.set_epoch(0)
    assert [int(id) for _, ids in epoch for id in ids] == found


def test_memory_managers_deliver_the_same_batches():
    def ids(engine, **options):
        epoch = ringmain.Beton(VECTOR, engine=engine).epoch("random", batch_size=50, **options)
        return [(ids.tolist(), batch["mat"].tobytes()) for batch, ids in epoch]

    mmap, pread = ringmain.Engine("mmap"), ringmain.Engine("pread")
    expected = ids(pread)
    assert ids(mmap, memory_manager="os_cache") == expected
    assert ids(pread, memory_manager="process_cache", cache_pages=2) == expected
    with pytest.raises(ValueError, match="mmap"):
        ids(pread, memory_manager="os_cache")


def test_ranks_drop_last_and_states(engine):
    beton = ringmain.Beton(VECTOR, engine=engine)
    found = []
    for rank in range(3):
        found += [int(id) for _, ids in beton.epoch("random", rank=rank, world=3) for id in ids]
    assert sorted(found) == list(range(300))
    epoch = beton.epoch(batch_size=64, drop_last=True)
    assert len(epoch) == len(list(epoch)) == 4
    epoch = beton.epoch("random", seed=2, epoch=4, batch_size=64)
    next(epoch)
    state = pickle.loads(pickle.dumps(epoch.state_dict()))
    rest = [ids.tolist() for _, ids in epoch]
    later = beton.epoch("random", seed=2, batch_size=64)
    later.load_state_dict(state)
    assert [ids.tolist() for _, ids in later] == rest
    later.reset()
    later.skip_batches(1)
    assert [ids.tolist() for _, ids in later] == rest
    with pytest.raises(ValueError, match="order, its seed"):
        beton.epoch("sequential").load_state_dict(state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"traversal": "none"}, "quasi_random"),
        ({"traversal": "quasi_random"}, "open_pages"),
        ({"open_pages": 1}, "open_pages"),
        ({"memory_manager": "none"}, "process_cache"),
        ({"memory_manager": "process_cache"}, "cache_pages"),
        ({"cache_pages": 3}, "cache_pages"),
        ({"damaged": "none"}, "leave_out"),
        ({"rank": 1}, "rank"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": -1}, "batch_size cannot be -1"),
        ({"seed": -1}, "seed"),
        ({"epoch": 2**64}, "epoch"),
        ({"world": -1}, "world"),
        ({"rank": -1}, "rank"),
        ({"open_pages": -1}, "open_pages"),
        ({"cache_pages": -1}, "cache_pages"),
        ({"prefetch_bytes": -1}, "prefetch_bytes"),
    ],
)
def test_invalid_options_are_value_errors(options, message):
    with pytest.raises(ValueError, match=message):
        ringmain.Beton(VECTOR).epoch(**options)


def test_messages_use_the_option_names_of_python():
    beton = ringmain.Beton(VECTOR, engine=ringmain.Engine("pread"))
    with pytest.raises(ValueError, match='memory_manager.*"os_cache".*Engine\\("mmap"\\)'):
        beton.epoch(memory_manager="os_cache")


@pytest.mark.parametrize("backend", ["auto", "pread"])
def test_the_limit_that_an_error_names_is_enough(backend):
    """The engine of `auto` got only a part of the limit, so the limit in the error was too small."""

    def start(limit):
        beton = ringmain.Beton(VECTOR, engine=ringmain.Engine(backend, memory_limit=limit))
        return beton.epoch(batch_size=300)

    with pytest.raises(ValueError, match="raise memory_limit to") as caught:
        start(64 << 10)
    limit = int(re.search(r"raise memory_limit to (\d+)$", str(caught.value))[1])
    assert len(start(limit)) == 1


def test_damaged_samples_fail_or_are_left_out(tmp_path):
    samples = [(at, bytes([at]) * 10) for at in range(20)]
    path = tmp_path / "a.beton"
    ringmain.BetonWriter(path, {"n": "int", "b": "bytes"}).from_iterable(samples)
    data = bytearray(path.read_bytes())
    row = bytes([7, 0, 0, 0, 0, 0, 0, 0])
    at = data.index(row, 2 * 1041)  # the row of sample 7: its number, and then a pointer
    data[at + 8 : at + 16] = b"\xff" * 8
    path.write_bytes(data)
    beton = ringmain.Beton(path)
    with pytest.raises(ValueError, match="sample 7, field `b`"):
        beton[7]
    epoch = beton.epoch(batch_size=8, damaged="leave_out")
    assert [int(n) for batch, _ in epoch for n in batch["n"]] == [n for n in range(20) if n != 7]
    assert epoch.left_out == 1


def write_bad_jpegs(path, bad, count=20):
    """Writes a dataset of JPEGs and returns their image. The JPEGs of the samples in `bad` cannot be
    decoded."""
    stored = ringmain.Beton(VECTOR, images="stored")
    id = next(id for id in range(30) if EXPECTED["samples"][id]["img"][0] == 0)
    jpeg = stored[id]["img"].tobytes()
    cut = jpeg[: len(jpeg) // 2]
    ringmain.BetonWriter(path, {"n": "int", "img": "image"}).from_iterable(
        [(at, cut if at in bad else jpeg) for at in range(count)]
    )
    return ringmain.Beton(VECTOR)[id]["img"]


def test_jpegs_that_cannot_be_decoded(tmp_path, engine):
    """They did not count as damaged samples, and after the error their batch was lost."""
    bad = {3, 5, 8, 9, 10, 11}
    image = write_bad_jpegs(tmp_path / "a.beton", bad)
    beton = ringmain.Beton(tmp_path / "a.beton", engine=engine)
    with pytest.raises(ValueError, match="sample 3, field `img`"):
        beton[3]
    epoch = beton.epoch(batch_size=4, damaged="leave_out")
    found = []
    for batch, ids in epoch:
        assert batch["n"].tolist() == ids.tolist()
        assert all(np.array_equal(one, image) for one in batch["img"])
        found += ids.tolist()
    assert found == [id for id in range(20) if id not in bad]  # a whole batch was left out
    assert epoch.left_out == len(bad)

    epoch = beton.epoch(batch_size=4)
    for _ in range(2):
        state = epoch.state_dict()
        with pytest.raises(ValueError, match="sample 3"):
            next(epoch)
        assert epoch.state_dict() == state
    epoch.skip_batches(1)
    with pytest.raises(ValueError, match="sample 5"):
        next(epoch)
    epoch.skip_batches(2)
    assert [ids.tolist() for _, ids in epoch] == [[12, 13, 14, 15], [16, 17, 18, 19]]
    assert epoch.left_out == 0


def test_every_rank_delivers_its_share_of_a_global_batch(tmp_path):
    """A share without an undamaged sample was left out, so this rank had fewer batches than the others."""
    write_bad_jpegs(tmp_path / "a.beton", {4, 5, 11}, 12)
    beton = ringmain.Beton(tmp_path / "a.beton")
    options = {"global_batch": 4, "world": 2, "damaged": "leave_out"}
    epoch = beton.epoch(rank=0, **options)
    found = [(batch["n"].tolist(), ids.tolist()) for batch, ids in epoch]
    assert found == [([0, 1], [0, 1]), ([], []), ([8, 9], [8, 9])]
    assert epoch.left_out == 2 and epoch.state_dict()["batches_done"] == 3
    assert [ids.tolist() for _, ids in beton.epoch(rank=1, **options)] == [[2, 3], [6, 7], [10]]


@pytest.mark.parametrize("damage", [b"\xff\xff\xff", b"{,}"])
def test_json_that_cannot_be_parsed(tmp_path, damage):
    path = tmp_path / "a.beton"
    texts = ["abc" if at == 7 else "xyz" for at in range(20)]
    ringmain.BetonWriter(path, {"t": "json"}).from_iterable([(text,) for text in texts])
    # The damage replaces the text and the quotation mark before it.
    path.write_bytes(path.read_bytes().replace(b'"abc', damage + b'"'))
    beton = ringmain.Beton(path)
    with pytest.raises(ValueError, match="sample 7, field `t`"):
        beton[7]
    with pytest.raises(ValueError, match="sample 7, field `t`"):
        list(beton.epoch(batch_size=8))
    epoch = beton.epoch(batch_size=8, damaged="leave_out")
    assert [id for _, ids in epoch for id in ids] == [id for id in range(20) if id != 7]
    assert epoch.left_out == 1


@pytest.mark.parametrize("raised", [KeyboardInterrupt, MemoryError, RecursionError])
def test_only_the_text_makes_a_json_damaged(tmp_path, monkeypatch, raised):
    """Every exception became a ValueError: Ctrl-C while a text was parsed left its sample out."""
    path = tmp_path / "a.beton"
    ringmain.BetonWriter(path, {"t": "json"}).from_iterable([(at,) for at in range(5)])
    loads = json.loads

    def loads_or_raise(text):
        if loads(text) == 3:
            raise raised
        return loads(text)

    monkeypatch.setattr(json, "loads", loads_or_raise)
    beton = ringmain.Beton(path)
    # A text that is nested too deep is damage.
    expected = ValueError if raised is RecursionError else raised
    with pytest.raises(expected):
        beton[3]
    epoch = beton.epoch(batch_size=5, damaged="leave_out")
    if raised is RecursionError:
        assert [ids.tolist() for _, ids in epoch] == [[0, 1, 2, 4]]
    else:
        with pytest.raises(raised):
            list(epoch)
        assert epoch.left_out == 0


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot send Ctrl-C to one process")
@pytest.mark.parametrize("prefetch_bytes", [0, 1 << 20])
def test_ctrl_c_ends_an_epochs_wait_for_memory(tmp_path, prefetch_bytes):
    write_images(tmp_path / "a.beton", 40)
    engine = ringmain.Engine("pread", memory_limit=1 << 20)
    beton = ringmain.Beton(tmp_path / "a.beton", engine=engine)
    epoch, held = beton.epoch(batch_size=2, prefetch_bytes=prefetch_bytes, patience=600), []
    interrupts.raises_soon(lambda: held.extend(epoch), lambda: held)
    assert held
    found = [id for _, ids in held for id in ids.tolist()]
    held.clear()
    assert found + [id for _, ids in epoch for id in ids.tolist()] == list(range(40))


def test_an_epoch_waits_for_memory_as_long_as_its_patience(tmp_path):
    """An epoch always waited for five seconds; only ShardSource had the argument."""
    write_images(tmp_path / "a.beton", 40)
    engine = ringmain.Engine("pread", memory_limit=1 << 20)
    beton = ringmain.Beton(tmp_path / "a.beton", engine=engine)
    epoch, held = beton.epoch(batch_size=2, patience=0.05), []
    with pytest.raises(MemoryError, match="raise the memory limit"):
        held.extend(pickle.loads(pickle.dumps(epoch)))
    assert held
    held.clear()
    with pytest.raises(ValueError, match="patience cannot be -1: it can be any number of seconds"):
        beton.epoch(patience=-1)


def test_a_loop_continues_after_a_break_and_otherwise_begins_the_next_epoch(engine):
    """The rule of loops was not documented."""
    epoch = ringmain.Beton(VECTOR, engine=engine).epoch("random", batch_size=32)
    for _, first in epoch:
        break
    rest = [id for _, ids in epoch for id in ids.tolist()]
    assert sorted(first.tolist() + rest) == list(range(300)) and epoch.epoch == 0
    assert sum(len(ids) for _, ids in epoch) == 300 and epoch.epoch == 1


def _rest_of(epoch, queue):
    queue.put([ids.tolist() for _, ids in epoch])


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this platform"
)
def test_a_forked_child_continues_an_epoch(engine):
    epoch = ringmain.Beton(VECTOR, engine=engine).epoch("random", batch_size=32)
    next(epoch)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_rest_of, args=(epoch, queue))
    child.start()
    found = queue.get(timeout=120)
    child.join()
    assert found == [ids.tolist() for _, ids in epoch] and len(found) == 9


def test_an_epoch_is_pickled_as_its_options(tmp_path, engine):
    beton = ringmain.Beton(VECTOR, engine=engine, images="stored")
    epoch = beton.epoch("random", seed=3, batch_size=32, rank=1, world=2, drop_last=True)
    epoch.set_epoch(5)
    next(epoch)
    copy = pickle.loads(pickle.dumps(epoch))
    assert copy.epoch == 5 and copy.batch_size == 32
    epoch.reset()
    assert [ids.tolist() for _, ids in copy] == [ids.tolist() for _, ids in epoch]


def test_drop_last_must_leave_a_batch():
    """The loop was empty, without an error."""
    beton = ringmain.Beton(VECTOR)
    for options in ({"batch_size": 301}, {"batch_size": 200, "rank": 0, "world": 2}):
        with pytest.raises(ValueError, match="no batch has that many.*pass a smaller batch_size"):
            beton.epoch("random", drop_last=True, **options)
        assert len(beton.epoch("random", **options)) >= 1
    assert len(beton.epoch(batch_size=300, drop_last=True)) == 1


def test_errors_about_states_and_types_name_the_argument():
    epoch = ringmain.Beton(VECTOR).epoch()
    with pytest.raises(ValueError, match=r"not a valid state of a BetonEpoch: .*state_dict\(\)"):
        epoch.load_state_dict({})
    with pytest.raises(TypeError, match="traversal must be a str, not int"):
        ringmain.Beton(VECTOR).epoch(3)


def test_the_repr_of_an_epoch_names_the_file_and_the_options():
    epoch = ringmain.Beton(VECTOR).epoch("random", seed=3, batch_size=32, epoch=2)
    assert repr(epoch) == f"BetonEpoch({VECTOR}, traversal=random, epoch=2, batch_size=32, 300 samples to come)"
