import gc
import multiprocessing
import os
import pickle
import struct
import sys
import threading
import time

import interrupts
import numpy as np
import pytest

import ringmain
from ringmain import _split

WIDTH = 5
LENGTHS = [13, 1, 40, 7]
TOTAL = sum(LENGTHS)
VALUES = np.arange(TOTAL * WIDTH, dtype=np.float32).reshape(TOTAL, WIDTH) / 7


def write_shard(path, rows):
    header = b"GAMSAE01" + struct.pack("<QQII", *rows.shape, 0, 0)
    path.write_bytes(header + rows.astype("<f4").tobytes())


@pytest.fixture
def corpus(tmp_path):
    start = 0
    for at, rows in enumerate(LENGTHS):
        write_shard(tmp_path / f"part-{at:03}.shard", VALUES[start : start + rows])
        start += rows
    return tmp_path


def ids_of(source):
    return [int(row_id) for _, row_ids in source for row_id in row_ids]


@pytest.mark.parametrize("dtype", ["float32", "float64", np.float32, np.dtype("f8")])
@pytest.mark.parametrize("order", ["sequential", "shuffled", "blocks"])
def test_rows_are_delivered_as_they_are_in_the_files(corpus, engine, order, dtype):
    options = {"block_rows": 4} if order == "blocks" else {}
    source = ringmain.ShardSource(
        corpus, engine=engine, order=order, seed=3, batch_rows=8, dtype=dtype, **options
    )
    assert (source.total_rows, source.width, source.batch_rows) == (TOTAL, WIDTH, 8)
    assert source.epoch_rows == source.remaining_rows == TOTAL
    assert source.engine is engine
    found, batches = [], 0
    for rows, row_ids in source:
        assert rows.dtype == np.dtype(dtype) and row_ids.dtype == np.uint64
        assert rows.shape == (len(row_ids), WIDTH) and rows.flags.c_contiguous
        np.testing.assert_array_equal(rows, VALUES[row_ids].astype(dtype))
        found.extend(row_ids.tolist())
        batches += 1
    assert batches == len(source)
    assert sorted(found) == list(range(TOTAL))
    assert (found == sorted(found)) == (order == "sequential")
    source.reset()
    assert ids_of(source) == found


def test_the_files_are_listed_with_their_rows(corpus, tmp_path):
    (tmp_path / "empty").mkdir()
    write_shard(tmp_path / "empty" / "none.shard", np.zeros((0, WIDTH)))
    paths = sorted(corpus.glob("*.shard"))
    source = ringmain.ShardSource([paths[1], tmp_path / "empty" / "none.shard", paths[0]])
    expected = [(path, rows) for path, rows in ((paths[1], LENGTHS[1]), (paths[0], LENGTHS[0])) if rows]
    assert source.files == [(str(path), rows) for path, rows in expected]
    assert sum(rows for _, rows in ringmain.ShardSource(corpus).files) == TOTAL


def test_arrays_are_writable_and_return_to_the_pool(tmp_path):
    rows = np.arange(4096 * 64, dtype=np.float32).reshape(4096, 64)
    write_shard(tmp_path / "a.shard", rows)
    engine = ringmain.Engine("pread")
    source = ringmain.ShardSource(tmp_path, engine=engine, batch_rows=512, prefetch_bytes=0)
    batch, row_ids = next(source)
    held = engine.pool_stats()["in_use_bytes"]
    assert held >= batch.nbytes
    assert batch.flags.writeable and not batch.flags.owndata
    batch *= 2
    part = batch[3:5]
    other = next(source)[0]
    np.testing.assert_array_equal(part, rows[3:5] * 2)
    np.testing.assert_array_equal(other, rows[512:1024])
    del batch, other
    np.testing.assert_array_equal(part, rows[3:5] * 2)  # a view keeps the memory
    np.testing.assert_array_equal(row_ids, range(512))
    del part, row_ids
    gc.collect()
    assert engine.pool_stats()["in_use_bytes"] == 0
    for _ in range(3):
        source.reset()
        assert sum(len(rows) for rows, _ in source) == 4096
    assert engine.pool_stats()["fresh"] <= 4


def test_ranks_deliver_every_row_once(corpus):
    for world in (1, 2, 3, 7):
        found = []
        for rank in range(world):
            source = ringmain.ShardSource(
                corpus, order="shuffled", seed=1, batch_rows=4, rank=rank, world=world
            )
            found += ids_of(source)
        assert sorted(found) == list(range(TOTAL))


def test_every_loop_reads_an_epoch(corpus):
    """The second loop used to read nothing, without an error."""
    source = ringmain.ShardSource(corpus, order="shuffled", seed=3, batch_rows=8)
    loops = [ids_of(source) for _ in range(3)]
    assert source.epoch == 2
    source.set_epoch(1)
    assert ids_of(source) == loops[1] != loops[0]
    assert all(sorted(loop) == list(range(TOTAL)) for loop in loops)
    # A source that was moved to the end has no batches left in this epoch.
    source.skip_rows(TOTAL)
    assert ids_of(source) == []
    assert ids_of(source) == loops[2]


def test_a_new_loop_continues_where_the_last_one_was_left(corpus):
    source = ringmain.ShardSource(corpus, batch_rows=8)
    for _rows, _row_ids in source:
        break
    assert ids_of(source) == list(range(8, TOTAL))


def test_a_resumed_loop_over_epochs_continues(corpus):
    """`set_epoch` used to begin the epoch of the state again."""
    source = ringmain.ShardSource(corpus, batch_rows=8)
    source.set_epoch(1)
    next(source)
    state = source.state_dict()
    later = ringmain.ShardSource(corpus, batch_rows=8)
    later.load_state_dict(state)
    loops = []
    for epoch in range(later.epoch, 3):
        later.set_epoch(epoch)
        loops.append(len(ids_of(later)))
    assert loops == [TOTAL - 8, TOTAL]


def test_short_batches_can_be_dropped(corpus):
    source = ringmain.ShardSource(corpus, order="shuffled", batch_rows=8, drop_last=True)
    sizes = [len(row_ids) for _, row_ids in source]
    assert sizes == [8] * (TOTAL // 8) and len(source) == len(sizes)
    assert len(pickle.loads(pickle.dumps(source))) == len(sizes)


def test_epochs_differ_and_are_repeatable(corpus):
    def epoch(number):
        options = {"order": "shuffled", "seed": 5, "batch_rows": 16}
        return ids_of(ringmain.ShardSource(corpus, epoch=number, **options))

    source = ringmain.ShardSource(corpus, order="shuffled", seed=5, batch_rows=16)
    assert ids_of(source) == epoch(0)
    source.set_epoch(7)
    assert source.epoch == 7
    assert ids_of(source) == epoch(7) != epoch(0)


def test_files_and_rows_are_given_as_lists(corpus):
    paths = [corpus / "part-002.shard", str(corpus / "part-000.shard")]
    source = ringmain.ShardSource(paths, rows=[52, 1, 40], batch_rows=3)
    assert (source.total_rows, source.epoch_rows) == (53, 3)
    (first, ids), (second, more) = source
    assert ids.tolist() == [1] and more.tolist() == [40, 52]
    np.testing.assert_array_equal(first, VALUES[14 + 1 : 14 + 2])
    np.testing.assert_array_equal(second, VALUES[[0, 12]])
    one = ringmain.ShardSource(corpus / "part-001.shard")
    assert len(one) == one.total_rows == 1


@pytest.mark.parametrize("order", ["sequential", "shuffled"])
def test_a_state_continues_where_it_was_taken(corpus, order, engine):
    def opened(**options):
        return ringmain.ShardSource(
            corpus, engine=engine, order=order, seed=2, batch_rows=6, **options
        )

    source = opened()
    source.set_epoch(3)
    before = [int(row_id) for _ in range(4) for row_id in next(source)[1]]
    state = pickle.loads(pickle.dumps(source.state_dict()))
    assert type(state) is dict and all(type(value) is int for value in state.values())
    rest = ids_of(source)
    later = opened(dtype="float64", prefetch_bytes=0)
    later.load_state_dict(state)
    assert later.remaining_rows == len(rest)
    assert ids_of(later) == rest
    assert sorted(before + rest) == list(range(TOTAL))
    with pytest.raises(ValueError, match="rank or world"):
        opened(world=2).load_state_dict(state)


def test_a_dict_that_is_not_a_state_is_an_error(corpus):
    """The errors were those of a JSON parser: "missing field `version` at line 1 column 2"."""
    source = ringmain.ShardSource(corpus)
    state = source.state_dict()
    for wrong in ({}, {"epoch": 1}, {**state, "epoch": "1"}, {**state, "epoch": -1}, {"a": object()}):
        with pytest.raises(ValueError, match=r"not a valid state of a ShardSource: .*state_dict\(\)") as caught:
            source.load_state_dict(wrong)
        assert "column" not in str(caught.value) and "u64" not in str(caught.value)
    with pytest.raises(TypeError, match=r"state must be a dict that state_dict\(\) returned, not list"):
        source.load_state_dict([])


def test_skips_seeks_and_resets(corpus):
    source = ringmain.ShardSource(corpus, batch_rows=4)
    source.seek(20)
    assert next(source)[1].tolist() == [20, 21, 22, 23]
    source.skip_rows(2)
    assert next(source)[1][0] == 26
    source.reset()
    source.skip_batches(4)  # the first shard: batches of 4, 4, 4 and 1 rows
    assert next(source)[1].tolist() == [13]
    with pytest.raises(IndexError, match=f"the shards have {TOTAL} rows"):
        source.seek(TOTAL)
    for move in (source.skip_rows, source.skip_batches, source.set_epoch, source.seek):
        with pytest.raises(ValueError, match="cannot be -1"):
            move(-1)


def test_pickles_contain_only_the_options(corpus, monkeypatch):
    monkeypatch.chdir(corpus)
    engine = ringmain.Engine("pread", memory_limit=64 << 20)
    source = ringmain.ShardSource(
        ".", engine=engine, order="blocks", block_rows=4, seed=9, rank=1, world=2, batch_rows=5,
        dtype="float64", rows=range(30),
    )  # fmt: skip
    source.set_epoch(4)
    expected = ids_of(source)
    data = pickle.dumps(source)
    assert len(data) < 2000
    monkeypatch.chdir("/")
    copy = pickle.loads(data)
    assert repr(copy.engine) == repr(engine) and copy.epoch == 4
    assert next(copy)[0].dtype == np.float64
    copy.reset()
    assert ids_of(copy) == expected


def test_rows_can_be_a_mask(corpus):
    mask = np.arange(TOTAL) % 3 == 0
    for rows in (mask, mask.tolist(), np.flatnonzero(mask)):
        source = ringmain.ShardSource(corpus, rows=rows)
        assert ids_of(source) == np.flatnonzero(mask).tolist()
        assert ids_of(pickle.loads(pickle.dumps(source))) == np.flatnonzero(mask).tolist()
    for length in (TOTAL - 1, TOTAL + 1):
        with pytest.raises(ValueError, match=f"mask of {length}.*{TOTAL} rows"):
            ringmain.ShardSource(corpus, rows=np.resize(mask, length) & (np.arange(length) < 5))
    with pytest.raises(ValueError, match="one axis"):
        ringmain.ShardSource(corpus, rows=mask[None])


def test_errors_about_arguments_do_not_name_a_file(corpus):
    state = ringmain.ShardSource(corpus, order="shuffled", seed=1).state_dict()
    with pytest.raises(ValueError, match="^the state belongs to another source: the order, its seed"):
        ringmain.ShardSource(corpus, order="shuffled", seed=2).load_state_dict(state)
    with pytest.raises(IndexError, match=f"^cannot get row {TOTAL}: the shards have {TOTAL} rows"):
        ringmain.ShardSource(corpus, rows=[TOTAL])


def test_an_engine_is_given_by_name(corpus):
    source = ringmain.ShardSource(corpus, engine="pread")
    assert source.engine.backend == "pread"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "random"}, "sequential"),
        ({"order": "blocks"}, "block_rows"),
        ({"block_rows": 3}, "block_rows"),
        ({"dtype": "int32"}, "float64"),
        ({"rank": 2, "world": 2}, "rank"),
        ({"batch_rows": 0}, "batch_rows"),
        ({"rows": []}, "`rows`"),
        ({"seed": -1}, r"seed cannot be -1: it can be 0 to 2\*\*64 - 1"),
        ({"epoch": -1}, "epoch"),
        ({"rank": -1}, "rank"),
        ({"world": 2**64}, "world"),
        ({"block_rows": -1, "order": "blocks"}, "block_rows"),
        ({"batch_rows": -1}, "batch_rows"),
        ({"rows": [3, -1]}, "rows"),
        ({"prefetch_bytes": -1}, "prefetch_bytes"),
        ({"patience": -1.0}, "patience cannot be -1: it can be any number of seconds"),
    ],
)
def test_invalid_options_are_value_errors(corpus, options, message):
    with pytest.raises(ValueError, match=message):
        ringmain.ShardSource(corpus, **options)


def test_files_that_are_not_shards_are_errors(corpus, engine):
    with pytest.raises(FileNotFoundError) as caught:
        ringmain.ShardSource([corpus / "none.shard"], engine=engine)
    assert caught.value.filename == str(corpus / "none.shard")
    (corpus / "bad.shard").write_bytes(b"no shard" * 10)
    with pytest.raises(ValueError, match=r"bad\.shard"):
        ringmain.ShardSource(corpus, engine=engine)
    (corpus / "empty").mkdir()
    with pytest.raises(ValueError, match="empty"):
        ringmain.ShardSource(corpus / "empty", engine=engine)


def test_paths_are_any_iterable_of_files(corpus):
    """Generators were refused, with an error about Rust types."""
    files = sorted(corpus.glob("*.shard"))
    for paths in (iter(files), tuple(map(str, files)), (os.fsencode(file) for file in files), os.fsencode(corpus)):
        assert ids_of(ringmain.ShardSource(paths)) == list(range(TOTAL))
    assert ids_of(ringmain.ShardSource(corpus.glob("*-003.shard"))) == list(range(7))
    for paths, message in [
        (None, "paths must be a folder, a file or a list of files, not NoneType"),
        (3, "not int"),
        ([3], "not a list of int"),
        (set(files), "no order.*sorted"),
    ]:
        with pytest.raises(TypeError, match=message) as caught:
            ringmain.ShardSource(paths)
        assert "enum" not in str(caught.value)
    with pytest.raises(ValueError):
        ringmain.ShardSource([])


def test_rows_that_come_twice_are_an_error(corpus):
    """They were delivered once, without an error."""
    with pytest.raises(ValueError, match=r"rows has row 3 twice.*np\.unique"):
        ringmain.ShardSource(corpus, rows=[5, 3, 9, 3])
    for rows in ([9, 3, 5], {9, 3, 5}, np.array([9, 3, 5]), (row for row in (9, 3, 5))):
        assert ids_of(ringmain.ShardSource(corpus, rows=rows)) == [3, 5, 9]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": "abc"}, "rows must be a list of row numbers, or a mask.*, not str"),
        ({"rows": 3}, "rows must be a list of row numbers, or a mask.*, not int"),
        ({"rows": ["a"]}, "a number in rows must be an int, not str"),
        ({"batch_rows": "a"}, "batch_rows must be an int, not str"),
        ({"seed": 1.5}, "seed must be an int, not float"),
        ({"order": 3}, "order must be a str, not int"),
        ({"drop_last": "yes"}, "drop_last must be a bool, not str"),
        ({"patience": "long"}, "patience must be a number, not str"),
    ],
)
def test_errors_about_types_name_the_argument(corpus, options, message):
    """They were PyO3's, without the name: "'str' object cannot be interpreted as an integer"."""
    with pytest.raises(TypeError, match=message):
        ringmain.ShardSource(corpus, **options)


def test_drop_last_must_leave_a_batch(corpus):
    """The loop was empty, without an error."""
    message = "no batch has that many.*pass a smaller batch_rows"
    for options in (
        {"order": "shuffled", "batch_rows": TOTAL + 1},
        {"order": "shuffled", "batch_rows": 40, "rank": 1, "world": 2},
        {"order": "shuffled", "batch_rows": 4, "rows": [1, 2, 3]},
        {"batch_rows": 41},  # in sequential order a batch ends with its shard
        {"batch_rows": 41, "rank": 1, "world": 2},
    ):
        with pytest.raises(ValueError, match=message):
            ringmain.ShardSource(corpus, drop_last=True, **options)
        assert ids_of(ringmain.ShardSource(corpus, **options))
    # Another rank has a batch.
    lengths = [
        len(ringmain.ShardSource(corpus, drop_last=True, batch_rows=20, rank=rank, world=2)) for rank in range(2)
    ]
    assert lengths == [0, 1]


def test_reading_a_changed_shard_is_an_error(corpus):
    source = ringmain.ShardSource(corpus, batch_rows=4, prefetch_bytes=0)
    next(source)
    write_shard(corpus / "part-000.shard", VALUES[20:25])
    with pytest.raises((OSError, ValueError), match="part-000"):
        ids_of(source)


def test_held_batches_lead_to_a_memory_error(tmp_path):
    write_shard(tmp_path / "a.shard", np.zeros((4096, 256), np.float32))
    engine = ringmain.Engine("pread", memory_limit=4 << 20)
    source = ringmain.ShardSource(tmp_path, engine=engine, batch_rows=512, patience=0.05)
    held = []
    with pytest.raises(MemoryError, match="in use.*raise the memory limit"):
        held.extend(source)
    assert held
    held.clear()
    next(source)  # memory is free again, and the source still works


def held_up(tmp_path, **options):
    """Returns a source whose next batch waits for memory, and the batches that hold the memory."""
    write_shard(tmp_path / "a.shard", np.zeros((4096, 256), np.float32))
    engine = ringmain.Engine("pread", memory_limit=4 << 20)
    source = ringmain.ShardSource(tmp_path, engine=engine, batch_rows=512, patience=600, **options)
    held = []
    while engine.pool_stats()["in_use_bytes"] + (512 << 10) < engine.pool_stats()["limit_bytes"]:
        held.append(next(source))
    return source, held


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot send Ctrl-C to one process")
@pytest.mark.parametrize("prefetch_bytes", [0, 512 << 10])
def test_ctrl_c_ends_a_wait_for_memory(tmp_path, prefetch_bytes):
    """Ctrl-C used to have no effect before the patience had ended."""
    source, held = held_up(tmp_path, prefetch_bytes=prefetch_bytes)
    # Four batches fit. Before they are held, nothing waits for memory.
    interrupts.raises_soon(lambda: held.extend(source), lambda: len(held) >= 4)
    count = len(held)
    held.clear()
    assert len(list(source)) == len(source) - count  # no batch was lost


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_child_forked_during_a_wait_gets_a_clear_error(tmp_path):
    """The error said that another thread used the source, but the child does not have that thread."""
    source, held = held_up(tmp_path)
    thread = threading.Thread(target=lambda: held.extend(source))
    thread.start()
    while True:
        try:
            len(source)
        except RuntimeError:
            break
        time.sleep(0.01)
    child = os.fork()
    if child == 0:
        try:
            next(source)
        except RuntimeError as error:
            os._exit(7 if "forked" in str(error) else 1)
        finally:
            os._exit(2)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    while thread.is_alive():
        held.clear()
        thread.join(0.01)
    assert status == 7


def test_threads_that_share_a_source_get_each_row_once(corpus):
    """A thread that cannot use the source because another one does gets a clear error."""
    source = ringmain.ShardSource(corpus, batch_rows=1)
    found, errors = [], []

    def consume():
        while True:
            try:
                found.append(int(next(source)[1][0]))
            except StopIteration:
                return
            except RuntimeError as error:
                errors.append(str(error))

    threads = [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(TOTAL))
    assert all("another thread" in error for error in errors)


def _rest_of(source, queue):
    queue.put(ids_of(source))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_process_continues(corpus, method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} on this platform")
    source = ringmain.ShardSource(corpus, batch_rows=4)
    next(source)
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=_rest_of, args=(source, queue))
    child.start()
    found = queue.get(timeout=120)
    child.join()
    # A forked child continues where its parent was. A spawned child gets a pickle of the source, which
    # begins at the first row.
    assert found == list(range(4 if method == "fork" else 0, TOTAL))
    assert ids_of(source) == list(range(4, TOTAL))


def test_the_workers_of_all_ranks_deliver_every_row_once(corpus):
    for world, workers in [(1, 1), (1, 3), (2, 2), (3, 4)]:
        found = []
        for rank in range(world):
            for worker in range(workers):
                place = {"rank": rank, "world": world, "worker": worker, "workers": workers}
                found += ids_of(ringmain.ShardSource(corpus, **place))
        assert sorted(found) == list(range(TOTAL))
    with pytest.raises(ValueError, match="rank 2 of 2"):
        ringmain.ShardSource(corpus, rank=2, world=2)
    with pytest.raises(ValueError, match="worker 1 of 1"):
        ringmain.ShardSource(corpus, worker=1, workers=1)


def asked_in_turn(lengths):
    """Returns, for each batch of a loader, the worker that it comes from."""
    left, order = list(lengths), []
    while any(left):
        for worker, batches in enumerate(left):
            if batches:
                left[worker] -= 1
                order.append(worker)
    return order


@pytest.mark.parametrize("lengths", [[3, 3], [4, 3, 3], [1, 1, 0], [5], [2, 4, 3], [0, 0]])
def test_the_parts_that_are_left_keep_the_order_of_the_batches(lengths):
    order = asked_in_turn(lengths)
    for batches in range(len(order) + 1):
        parts = _split.parts_left(batches, lengths)
        assert sorted(part for part, _ in parts) == list(range(len(lengths)))
        assert all(used == order[:batches].count(part) for part, used in parts)
        rest = asked_in_turn([lengths[part] - used for part, used in parts])
        assert [parts[worker][0] for worker in rest] == order[batches:]


def test_arrays_that_are_kept_do_not_stop_a_source(tmp_path):
    """They took all memory of the engine, and the next batch failed with MemoryError after 5 seconds."""
    rows = np.arange(1024 * 256, dtype=np.float32).reshape(1024, 256)
    write_shard(tmp_path / "a.shard", rows)
    rows.tofile(tmp_path / "rows")
    engine = ringmain.Engine("pread", memory_limit=4 << 20)
    source = ringmain.ShardSource(tmp_path / "a.shard", engine=engine, batch_rows=256, dtype="float32")
    view = ringmain.open_raw(tmp_path / "rows", "<f4", rows.shape, engine=engine)
    kept = [np.asarray(view[at : at + 128]) for at in range(0, 1024, 128) for _ in range(8)]
    found = []
    for values, row_ids in source:
        np.testing.assert_array_equal(values, rows[row_ids])
        found += row_ids.tolist()
        kept.append(np.asarray(view[:128]))
    assert found == list(range(1024))
    np.testing.assert_array_equal(kept[0], rows[:128])
