"""Reads the same elements while all, some or none of them are in the page cache."""

import contextlib
import ctypes
import os

import numpy as np

import ringmain
import ringmain.safetensors

MIB = 1 << 20

# After each change of the state, the engine's knowledge about the file is wrong.
STATES = ["warm", "cold", "half", "warm", "half"]


@contextlib.contextmanager
def descriptor(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def put(path, state):
    """Fills the page cache with the file, drops the file from it, or drops every other MiB."""
    with descriptor(path) as fd:
        size = os.fstat(fd).st_size
        if state != "cold":
            for start in range(0, size, MIB):
                os.pread(fd, MIB, start)
        if state != "warm":
            os.fsync(fd)  # only clean pages can be dropped
        if state == "cold":
            # One call for the whole file: the kernel keeps a large folio that is only partly in the
            # range.
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if state == "half":
            for start in range(0, size, 2 * MIB):
                os.posix_fadvise(fd, start, MIB, os.POSIX_FADV_DONTNEED)


class _Range(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("len", ctypes.c_uint64)]


class _Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently")]


def cached_pages(path):
    """Returns how many pages of the file are cached, or None if cachestat(2) does not tell."""
    CACHESTAT = 451
    counts = _Counts()
    with descriptor(path) as fd:
        whole = _Range(0, 0)
        arguments = (ctypes.c_uint(fd), ctypes.byref(whole), ctypes.byref(counts), ctypes.c_uint(0))
        failed = ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(CACHESTAT), *arguments)
    return None if failed else counts.cached


ROWS, COLUMNS = 1029, 1024  # rows of 4 KiB; the file is not a whole number of MiB


def write_array(path, seed):
    array = np.random.default_rng(seed).integers(0, 2**31, (ROWS, COLUMNS), np.int32)
    np.save(path, array)
    return array


def check_array(view, array, seed):
    """Compares single elements, windows and selections."""
    random = np.random.default_rng(seed)
    for count in (1, 16, 75, 300):
        for start in random.integers(0, ROWS - count, 4):
            np.testing.assert_array_equal(np.asarray(view[start : start + count]), array[start : start + count])
    for row, column in random.integers(0, COLUMNS, (6, 2)):
        assert view[row, column] == array[row, column]
        np.testing.assert_array_equal(np.asarray(view[row, column:]), array[row, column:])
    for start in range(0, 12 * 3, 3):  # neighbouring windows in order
        np.testing.assert_array_equal(np.asarray(view[start : start + 3]), array[start : start + 3])
    rows = random.permutation(ROWS)[:100]
    mask = random.random(ROWS) < 0.1
    for key in (slice(None, None, 7), slice(None, None, -50), rows, mask, (rows[:40], 5)):
        np.testing.assert_array_equal(view.read(key), array[key])
    np.testing.assert_array_equal(np.asarray(view.T), array.T)


def check_batches(views, arrays, seed):
    """Compares windows of all files that are read as one batch, in random order."""
    random = np.random.default_rng(seed)
    wanted = [
        (int(random.integers(len(views))), int(start), int(random.choice([1, 4, 16, 100])))
        for start in random.integers(0, ROWS, 60)
    ]
    found = ringmain.read_many([views[at][start : start + count] for at, start, count in wanted])
    for (at, start, count), array in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(array, arrays[at][start : start + count])


def check_model(path, tensors, engine):
    found = ringmain.safetensors.load_file(path, engine=engine)
    assert set(found) == set(tensors)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(found[name], tensor)
    with ringmain.safetensors.safe_open(path, "np", engine=engine) as file:
        np.testing.assert_array_equal(file.get_tensor("b"), tensors["b"])
        np.testing.assert_array_equal(file.get_slice("a")[3:300:7], tensors["a"][3:300:7])


def check_all(folder, arrays, tensors, engine):
    """Runs all checks in all states of the page cache, with the same views."""
    paths = [os.path.join(folder, f"{at}.npy") for at in range(len(arrays))]
    model = os.path.join(folder, "model.safetensors")
    views = [ringmain.open_npy(path, engine=engine) for path in paths]
    for seed, state in enumerate(STATES):
        for path in (*paths, model):
            put(path, state)
        check_batches(views, arrays, seed)
        for path, view, array in zip(paths, views, arrays, strict=True):
            put(path, state)
            check_array(view, array, seed)
        check_model(model, tensors, engine)


def write_all(folder):
    """Writes the files for `check_all` and returns their contents."""
    from safetensors.numpy import save_file

    arrays = [write_array(os.path.join(folder, f"{at}.npy"), at) for at in range(2)]
    random = np.random.default_rng(9)
    tensors = {"a": random.random((700, 999), np.float32), "b": random.random(12_345, np.float32)}
    tensors["c"] = np.arange(7, dtype=np.int64)
    save_file(tensors, os.path.join(folder, "model.safetensors"))
    return arrays, tensors
