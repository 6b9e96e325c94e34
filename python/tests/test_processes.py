"""Forked, spawned and threaded readers, while the parent has read before."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

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
def test_workers_read_while_the_parent_has(tmp_path, array, backend, method):
    if method != "fork" and backend not in ("auto", "uring"):
        pytest.skip("what a new process makes does not depend on the backend")
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


def test_a_forked_child_uses_and_drops_what_it_inherited(tmp_path, array, backend):
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
                check(view, array, 2)
                os._exit(0)
            status = os.waitpid(grandchild, 0)[1]
        finally:
            os._exit(status)
    check(view, array, 3)
    assert os.waitpid(child, 0)[1] == 0
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
                    signal.alarm(60)
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
    path = tmp_path / "large"
    path.write_bytes(bytes(64 << 20))
    view = ringmain.open_raw(path, np.uint8, 64 << 20)
    counted, done = [0], threading.Event()

    def count():
        while not done.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        before, started = counted[0], time.monotonic()
        while counted[0] == before and time.monotonic() - started < 60:
            np.asarray(view)
    finally:
        done.set()
        thread.join()
    assert counted[0] > before


INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np, ringmain
view = ringmain.open_raw(sys.argv[1], np.uint8, (64, 4 << 20))
np.asarray(view[0])
def interrupt():
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    while True:
        sys.argv[2] == "whole" and np.asarray(view)
        sys.argv[2] == "many" and ringmain.read_many([view[row] for row in range(64)])
        sys.argv[2] == "rows" and view.read(list(range(64)))
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("way", ["whole", "many", "rows"])
def test_ctrl_c_ends_long_reads(tmp_path, way):
    path = tmp_path / "large"
    with open(path, "wb") as file:
        file.truncate(256 << 20)
    command = [sys.executable, "-c", INTERRUPTED, path, way]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout == "interrupted\n", done.stderr


def test_a_pickle_is_opened_where_it_is_unpickled(tmp_path, array, monkeypatch):
    np.save(tmp_path / "a.npy", array)
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps(ringmain.open_npy("a.npy")[3:5])
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(np.asarray(pickle.loads(data)), array[3:5])
    (tmp_path / "a.npy").unlink()
    with pytest.raises(FileNotFoundError):
        np.asarray(pickle.loads(data))
