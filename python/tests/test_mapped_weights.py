"""`MappedWeights` and `WeightCache`: arrays and tensors over the mapping of a file."""

import contextlib
import json
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

import ringmain

try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")

ARRAYS = {
    "a": np.arange(12, dtype=np.float32).reshape(3, 4),
    "bytes": np.arange(3, dtype=np.uint8),
    "odd": np.arange(5, dtype=np.float64),  # after three bytes, so not at a multiple of 8
    "empty": np.zeros((0, 4), np.int16),
    "one": np.array(7, np.int64),
}
NAMES = {"float32": "F32", "uint8": "U8", "float64": "F64", "int16": "I16", "int64": "I64"}


def write(path, arrays=ARRAYS, added=()):
    """Writes a safetensors file; `added` has tensors as name, type, shape and bytes."""
    header, data = {}, b""
    tensors = [(name, NAMES[array.dtype.name], array.shape, array.tobytes()) for name, array in arrays.items()]
    for name, dtype, shape, content in [*tensors, *added]:
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "model.safetensors")


@pytest.fixture
def weights(path):
    return ringmain.MappedWeights(path, unchanging=True)


def mapped_kib(path, field="Rss"):
    """How much of the file this process has mapped and touched."""
    found, is_ours = 0, False
    for line in open("/proc/self/smaps"):
        if "-" in line.split()[0]:
            is_ours = line.rstrip().endswith(str(path))
        elif is_ours and line.startswith(f"{field}:"):
            found += int(line.split()[1])
    return found


def test_tensors_are_read_only_arrays_over_the_file(weights, path):
    assert list(weights) == list(ARRAYS) and len(weights) == 5 and "a" in weights and "b" not in weights
    for name, array in ARRAYS.items():
        found = weights[name]
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found, array)
        assert not found.flags.writeable and not found.flags.owndata
        with pytest.raises(ValueError, match="read-only"):
            found[...] = 0
        np.testing.assert_array_equal(weights.get_bytes(name), np.frombuffer(array.tobytes(), np.uint8))
    assert weights.info("a") == ("F32", (3, 4))
    assert (weights.path, weights.nbytes) == (path, path.stat().st_size)
    assert weights.is_intact() and not weights.unmet and not weights.is_locked
    assert weights["a"].ctypes.data == weights["a"].ctypes.data, "both are over the same memory"


def test_an_array_keeps_the_file_mapped(tmp_path):
    path = write(tmp_path / "large.safetensors", {"large": np.ones(1 << 20, np.uint8)})
    weights = ringmain.MappedWeights(path, unchanging=True)
    array = weights["large"][5:]
    del weights
    assert array.sum() == (1 << 20) - 5
    if sys.platform == "linux":
        assert mapped_kib(path) >= 1024
        del array
        assert mapped_kib(path) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_workers_share_the_pages(tmp_path):
    path = write(tmp_path / "large.safetensors", {"large": np.ones(16 << 20, np.uint8)})
    weights = ringmain.MappedWeights(path, unchanging=True)
    command = [sys.executable, "-c", SHARING, os.path.dirname(__file__)]
    with touched_all_the_time(weights):
        done = subprocess.run(command, input=pickle.dumps(weights), capture_output=True, timeout=300)
    rss, pss, private = map(int, done.stdout.split())
    # Both processes have all pages, and each counts for half of them. A copy would count in full.
    assert rss >= 16 << 10 and pss <= rss * 0.6 and private == 0, done


# The kernel takes pages of a file back when it likes. Both processes touch them until each has all of them.
SHARING = """
import pickle, sys, time
sys.path.insert(0, sys.argv[1])
from test_mapped_weights import mapped_kib

weights = pickle.load(sys.stdin.buffer)
deadline = time.monotonic() + 240
while True:
    assert weights["large"].sum() == 16 << 20
    rss, pss, private = (mapped_kib(weights.path, field) for field in ("Rss", "Pss", "Private_Dirty"))
    if rss >= 16 << 10 and pss <= rss * 0.6 or time.monotonic() > deadline:
        break
print(rss, pss, private)
"""


@contextlib.contextmanager
def touched_all_the_time(weights):
    """A thread touches all pages until the block ends."""
    is_over = threading.Event()

    def touch():
        while not is_over.wait(0.01):
            weights["large"].sum()

    thread = threading.Thread(target=touch)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_the_promise_must_be_made(path):
    for make in (lambda **made: ringmain.MappedWeights(path, **made), lambda **made: ringmain.WeightCache(1000, **made)):
        with pytest.raises(TypeError, match="unchanging"):
            make()
        with pytest.raises(ValueError, match="no program writes to the file or truncates it"):
            make(unchanging=False)


def test_a_replaced_file_stays_as_it_was_mapped(weights, path):
    array = weights["a"]
    write(path.with_name("new"), {"a": ARRAYS["a"] + 1})
    os.replace(path.with_name("new"), path)
    np.testing.assert_array_equal(array, ARRAYS["a"])
    np.testing.assert_array_equal(ringmain.MappedWeights(path, unchanging=True)["a"], ARRAYS["a"] + 1)
    assert weights.is_intact(), "the mapped file did not change"


def test_options_are_applied_or_listed(path):
    weights = ringmain.MappedWeights(path, unchanging=True, huge_pages=True, read_ahead_pages=256, populate=True, lock=True)
    assert set(weights.unmet) <= {"huge pages", "locked pages"} and all(weights.unmet.values())
    assert weights.is_locked == ("locked pages" not in weights.unmet)
    weights.unlock()
    assert not weights.is_locked
    weights.populate()
    weights.lock()
    assert weights.is_locked
    weights.unlock()
    again = pickle.loads(pickle.dumps(weights))
    np.testing.assert_array_equal(again["a"], ARRAYS["a"])
    assert again._options == weights._options


def test_bad_files_and_names_are_errors(tmp_path, weights):
    with pytest.raises(FileNotFoundError):
        ringmain.MappedWeights(tmp_path / "absent", unchanging=True)
    with pytest.raises(KeyError, match="no tensor has this name"):
        weights["b"]
    with pytest.raises(ValueError, match="read_ahead_pages"):
        ringmain.MappedWeights(weights.path, unchanging=True, read_ahead_pages=-1)
    (tmp_path / "bad").write_bytes(b"no header, but more than eight bytes")
    with pytest.raises(ValueError, match="bad"):
        list(ringmain.MappedWeights(tmp_path / "bad", unchanging=True))
    with pytest.raises(ValueError, match="get_bytes"):
        path = write(tmp_path / "f4", added=[("half", "F4", (2, 2), b"ab")])
        ringmain.MappedWeights(path, unchanging=True)["half"]
    assert bytes(ringmain.MappedWeights(path, unchanging=True).get_bytes("half")) == b"ab"


@needs_torch
def test_tensors_are_over_the_file_too(weights):
    for name, array in ARRAYS.items():
        tensor = weights.tensor(name)
        assert tuple(tensor.shape) == array.shape
        np.testing.assert_array_equal(tensor.numpy(), array)
    assert weights.tensor("a").data_ptr() == weights["a"].ctypes.data
    assert weights.tensor("odd").data_ptr() % 8 == 0, "torch needs elements at multiples of their size"


@needs_torch
def test_types_that_numpy_does_not_have(tmp_path):
    expected = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    content = expected.view(torch.int16).numpy().tobytes()
    path = write(tmp_path / "bf16", {}, added=[("b", "BF16", (2, 3), content)])
    weights = ringmain.MappedWeights(path, unchanging=True)
    assert torch.equal(weights.tensor("b"), expected)


def test_a_cache_keeps_what_was_used_last(tmp_path):
    paths = [write(tmp_path / f"{at}", {"x": np.full(4000, at, np.uint8)}) for at in range(4)]
    size = paths[0].stat().st_size
    cache = ringmain.WeightCache(3 * size, unchanging=True)
    kept = cache.open(paths[0])["x"]
    for path in paths:
        assert cache.open(path)["x"][0] == int(path.name)
    assert cache.stats() == {"entries": 3, "total_bytes": 3 * size, "limit_bytes": 3 * size,
                             "hits": 1, "misses": 4, "evictions": 1}  # fmt: skip
    assert (kept == 0).all(), "an array keeps its mapping"
    assert cache.evict(1) == size and cache.clear() == size and cache.stats()["entries"] == 1
    with pytest.raises(MemoryError, match="no room"):
        ringmain.WeightCache(size - 1, unchanging=True).open(paths[0])
    again = pickle.loads(pickle.dumps(cache))
    assert again.stats()["limit_bytes"] == 3 * size and again.stats()["entries"] == 0
    del kept
    assert cache.clear() == size


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_has_a_cache_of_its_own(path):
    cache = ringmain.WeightCache(1 << 20, unchanging=True)
    array = cache.open(path)["a"]
    child = os.fork()
    if child == 0:
        is_right = cache.stats()["entries"] == 0 and (cache.open(path)["a"] == array).all()
        os._exit(0 if is_right and cache.stats()["entries"] == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert cache.stats()["entries"] == 1
