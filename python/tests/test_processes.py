"""Reads in forked and spawned processes and in threads, after the parent has read."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest
from test_shards import write_shard

import ringmain


@pytest.fixture
def array():
    return np.random.default_rng(4).integers(0, 2**31, (256, 4096), np.int32)


def check(view, array, seed):
    """Reads single windows, a batch and a selection, and compares."""
    rows = np.random.default_rng(seed).permutation(len(array))
    for row in rows[:40]:
        np.testing.assert_array_equal(np.asarray(view[row]), array[row])
    np.testing.assert_array_equal(ringmain.read_many([view[row] for row in rows], stack=True), array[rows])
    np.testing.assert_array_equal(view.read(rows[:50]), array[rows[:50]])


def work(view, expected_path, seed):
    check(view, np.load(expected_path), seed)
    return os.getpid()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_read_after_the_parent_has_read(tmp_path, array, backend, method):
    if method != "fork" and backend not in ("auto", "uring"):
        pytest.skip("a spawned process inherits nothing, so two backends are enough")
    view, held, expected = prepare(tmp_path, array, backend)
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        results = [pool.apply_async(work, (view, expected, seed)) for seed in range(6)]
        check(view, array, 7)
        workers = {result.get(timeout=120) for result in results}
    assert os.getpid() not in workers
    np.testing.assert_array_equal(held[0], array)
    check(view, array, 8)


def prepare(tmp_path, array, backend):
    expected = tmp_path / "expected.npy"
    np.save(expected, array)
    view = ringmain.open_npy(expected, engine=ringmain.Engine(backend))
    check(view, array, 0)
    return view, [np.asarray(view), *ringmain.read_many([view[3], view[5]])], expected


def test_a_forked_child_uses_and_drops_inherited_arrays(tmp_path, array, backend):
    view, held, _ = prepare(tmp_path, array, backend)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            np.testing.assert_array_equal(held[0], array)
            held[0][:] = 0
            held.clear()
            check(view, array, 1)
            grandchild = os.fork()
            if grandchild == 0:
                status = 2
                check(view, array, 2)
                os._exit(0)
            status = os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1])
        finally:
            os._exit(status)
    check(view, array, 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(held[0], array)


def test_forks_while_other_threads_read(tmp_path, array, backend):
    """A child must not wait for a lock that a thread of its parent held."""
    view, _, _ = prepare(tmp_path, array, backend)
    stop, failures = threading.Event(), []

    def read_on():
        seed = 0
        while not stop.is_set():
            seed += 1
            try:
                check(view, array, seed)
            except Exception as error:
                failures.append(error)
                return

    threads = [threading.Thread(target=read_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for seed in range(6):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    signal.alarm(120)
                    check(view, array, seed)
                    status = 0
                finally:
                    os._exit(status)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures


def test_threads_read_at_the_same_time(tmp_path, array, backend):
    view, _, _ = prepare(tmp_path, array, backend)
    failures = []

    def read(seed):
        try:
            check(view, array, seed)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_other_threads_run_while_one_reads(tmp_path):
    """Another thread must see a read half done. That it runs between two reads would prove nothing."""
    path = tmp_path / "large"
    path.write_bytes(b"1" * (256 << 20))
    view = ringmain.open_raw(path, np.uint8, 256 << 20, engine=ringmain.Engine("pread"))
    for _ in range(20):
        out, seen, done = np.zeros(256 << 20, np.uint8), threading.Event(), threading.Event()

        def watch():
            while not done.is_set() and not seen.is_set():
                if out[0] and not out[-1]:
                    seen.set()

        thread = threading.Thread(target=watch)
        thread.start()
        view.read(out=out)
        done.set()
        thread.join()
        if seen.is_set():
            return
    pytest.fail("no other thread ran while 256 MiB were read, 20 times")


INTERRUPTED = """
import signal, sys
import numpy as np, ringmain
rows, columns = 512, 4 << 20
engine = ringmain.Engine("pread", memory_limit=8 << 20)
view = ringmain.open_raw(sys.argv[1], np.uint8, (rows, columns), engine=engine)
half = slice(None, None, 2)
shape, read = {
    "whole": ((rows, columns), lambda out: view.read(out=out)),
    "many": ((rows, columns), lambda out: ringmain.read_many(list(view), out=list(out))),
    "rows": ((rows, columns), lambda out: view.read(list(range(rows)), out=out)),
    "nested rows": ((1, rows, columns), lambda out: view.read([list(range(rows))], out=out)),
    "strided": ((rows, columns // 2), lambda out: view.read((slice(None), half), out=out)),
    "from an ellipsis": ((rows, columns // 2), lambda out: view.read((..., half), out=out)),
    "one long row": ((1, view.size // 2), lambda out: view.reshape(1, -1).read((slice(0, 1), half), out=out)),
    "transposed": ((64, view.size // 64), lambda out: view.reshape(-1, 64).T.read(out=out)),
    "with gaps": ((rows * columns // 2,), lambda out: ringmain.ContiguousMemmap(
        np.memmap(sys.argv[1], np.uint8, "r")[::2], engine=engine).read(out=out)),
}[sys.argv[2]]
out = np.zeros(shape, np.uint8)
first, last = (1,) if out.ndim == 1 else (0,) * (out.ndim - 1) + (1,), (-1,) * out.ndim
first = (2, 0) if sys.argv[2] == "transposed" else first
# The timer counts the processor time of this process. On a busy machine, a thread that sleeps and then
# interrupts may come too late.
signal.signal(signal.SIGPROF, signal.default_int_handler)
signal.setitimer(signal.ITIMER_PROF, 0.05)
try:
    read(out)
except KeyboardInterrupt:
    print("interrupted", int(out[first]), int(out[last]))
"""

WAYS = ["whole", "many", "rows", "nested rows", "strided", "from an ellipsis", "one long row", "transposed", "with gaps"]


@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_ends_a_long_read(tmp_path, way):
    """A read is interrupted soon after its first bytes have arrived, so its last bytes must not arrive.
    The first and the last bytes of the file are 1; the hole between them reads as zeros."""
    path = tmp_path / "large"
    with open(path, "wb") as file:
        file.write(b"\1\1\1")
        file.seek((2 << 30) - 2)
        file.write(b"\1\1")
    command = [sys.executable, "-c", INTERRUPTED, path, way]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout == "interrupted 1 0\n", done.stderr


def test_unpickling_opens_the_file_from_any_folder(tmp_path, array, monkeypatch):
    np.save(tmp_path / "a.npy", array)
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps(ringmain.open_npy("a.npy")[3:5])
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(np.asarray(pickle.loads(data)), array[3:5])
    (tmp_path / "a.npy").unlink()
    with pytest.raises(FileNotFoundError):
        np.asarray(pickle.loads(data))


def engines_made(data, count):
    """Returns how many engines are made by a worker that unpickles a view for each task and drops it."""
    engine, made = None, 0
    for _ in range(count):
        view = pickle.loads(data)
        made += engine is None or view.engine is not engine()
        engine = weakref.ref(view.engine)
        del view
    return made


def test_a_worker_makes_one_engine_for_many_pickles(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    view = ringmain.open_npy(tmp_path / "a.npy", engine=ringmain.Engine("pread", memory_limit=1 << 20))
    data = pickle.dumps(view[3])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(engines_made, (data, 8)) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_source_says_that_it_was_in_use_at_a_fork(tmp_path):
    write_shard(tmp_path / "a.shard", np.ones((4096, 64), np.float32))
    source = ringmain.ShardSource(tmp_path, batch_rows=4096, prefetch_bytes=0)
    is_done = threading.Event()

    def read():
        while not is_done.is_set():
            for _ in source:
                pass

    thread = threading.Thread(target=read)
    thread.start()
    deadline = time.monotonic() + 300
    outcome = 0
    # Most forks happen while the thread reads. A child that forked between two reads can use the source.
    while outcome == 0 and time.monotonic() < deadline:
        child = os.fork()
        if child == 0:
            signal.alarm(300)
            try:
                assert source.epoch >= 0
                code = 0
            except RuntimeError as error:
                code = 7 if "forked while a thread of its parent used this" in str(error) else 1
            os._exit(code)
        outcome = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    is_done.set()
    thread.join()
    assert outcome == 7
    assert source.epoch >= 0
