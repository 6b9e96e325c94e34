"""Reads of views, into new arrays and into memory of the caller."""

import gc

import numpy as np
import pytest

import ringmain
from ringmain import ContiguousMemmap


def test_a_view_reads_the_elements_that_were_written(view, original):
    assert (view.shape, view.dtype, view.ndim, view.size) == ((20, 50), np.float32, 2, 1000)
    assert (view.strides, view.itemsize, view.nbytes, len(view)) == ((200, 4), 4, 4000, 20)
    read = np.asarray(view)
    assert type(read) is np.ndarray and read.dtype == original.dtype
    np.testing.assert_array_equal(read, original)
    assert str(view) == "ContiguousMemmap(shape=(20, 50), dtype=float32)"


def test_conversion_and_copy(view, original):
    np.testing.assert_array_equal(np.asarray(view, dtype=np.float64), original.astype(np.float64))
    assert np.asarray(view, dtype=np.float64).dtype == np.float64
    np.testing.assert_array_equal(np.array(view, copy=True), original)
    np.testing.assert_array_equal(np.array(view, dtype="i4", copy=None), original.astype("i4"))
    with pytest.raises(ValueError, match="copy"):
        np.array(view, copy=False)


def test_an_array_that_was_read_belongs_to_the_caller(mapped, original, engine):
    memmap = mapped(original)
    view = ContiguousMemmap(memmap, engine=engine)
    read = np.asarray(view)
    assert not np.shares_memory(read, memmap)
    assert read.flags.writeable and read.flags.aligned
    read += 1
    np.testing.assert_array_equal(np.asarray(view), original)
    np.testing.assert_array_equal(memmap, original)


def test_the_memory_of_large_arrays_returns_to_the_pool(mapped, backend):
    """The caller may keep more bytes of arrays than the pool has."""
    engine = ringmain.Engine(backend, memory_limit=8 << 20)
    array = np.arange(1 << 20, dtype=np.float64).reshape(64, -1)
    view = ContiguousMemmap(mapped(array, before=3), engine=engine)
    assert engine.pool_stats()["in_use_bytes"] == 0
    read = np.asarray(view[3:5])
    assert read.flags.aligned and engine.pool_stats()["in_use_bytes"] >= read.nbytes
    last = read[1][7:9]
    del read
    gc.collect()
    assert engine.pool_stats()["in_use_bytes"] > 0, "a view of the array still needs it"
    np.testing.assert_array_equal(last, array[4, 7:9])
    del last
    assert engine.pool_stats()["in_use_bytes"] == 0
    held = [np.asarray(view[row]) for row in range(64)]
    np.testing.assert_array_equal(np.stack(held), array)
    whole = np.asarray(view)
    np.testing.assert_array_equal(whole, array)
    stats = engine.pool_stats()
    assert stats["in_use_bytes"] + stats["idle_bytes"] <= stats["limit_bytes"]


def test_out_is_filled_or_refused(view, original):
    out = np.empty((20, 50), np.float32)
    assert view.read(out=out) is out
    np.testing.assert_array_equal(out, original)
    assert view.read(slice(None, None, 2), out=out[:10]).base is out
    np.testing.assert_array_equal(out[:10], original[::2])
    np.testing.assert_array_equal(view.read([3, 1], out=out[:2]), original[[3, 1]])
    with pytest.raises(TypeError, match="dtype"):
        view.read(out=np.empty((20, 50), np.float64))
    with pytest.raises(TypeError, match="dtype"):
        view.read(out=np.empty((20, 50), ">f4"))
    for shape in ((50, 20), (1000,)):
        with pytest.raises(ValueError, match="shape"):
            view.read(out=np.empty(shape, np.float32))
    with pytest.raises(ValueError, match="C-contiguous"):
        view.read(out=np.empty((50, 20), np.float32).T)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        view.read(out=out)


def test_read_many_reads_views_of_several_files(tmp_path, engine, original):
    other = np.arange(3000, dtype=np.int64).reshape(30, 100)
    np.save(tmp_path / "one.npy", original)
    np.save(tmp_path / "two.npy", other)
    one, two = (ringmain.open_npy(tmp_path / f"{name}.npy", engine=engine) for name in ("one", "two"))
    views = [one[3], two[5:9], one[:0 + 1], two.T, one[19], two[3, 4:5]]
    arrays = [original[3], other[5:9], original[:1], other.T, original[19], other[3, 4:5]]
    read = ringmain.read_many(views)
    assert isinstance(read, list)
    for got, expected in zip(read, arrays, strict=True):
        np.testing.assert_array_equal(got, expected)
    out = [np.zeros_like(array, order="C") for array in arrays]
    assert ringmain.read_many(iter(views), out=out) is out
    for got, expected in zip(out, arrays, strict=True):
        np.testing.assert_array_equal(got, expected)
    rows = [17, 0, 4, 4]
    stacked = ringmain.read_many([one[row] for row in rows], stack=True)
    np.testing.assert_array_equal(stacked, original[rows])
    into = np.zeros((4, 50), np.float32)
    assert ringmain.read_many([one[row] for row in rows], out=into) is into
    np.testing.assert_array_equal(into, original[rows])
    assert ringmain.read_many([]) == []
    # Indexing returns an array for an empty selection.
    some, none = ringmain.read_many([one[3], one[5:5]])
    np.testing.assert_array_equal(some, original[3])
    assert (none.shape, none.dtype) == ((0, 50), np.float32)
    assert ringmain.read_many([one[0:0], one[2:2]], stack=True).shape == (2, 0, 50)


def test_read_many_refuses_invalid_arguments(view):
    with pytest.raises(ValueError, match="one shape"):
        ringmain.read_many([view[0], view[0:2]], stack=True)
    with pytest.raises(ValueError, match="at least one"):
        ringmain.read_many([], stack=True)
    with pytest.raises(TypeError, match="has been read"):
        ringmain.read_many([view, np.zeros(3)])
    with pytest.raises(TypeError):
        ringmain.read_many([view, 3])
    with pytest.raises(ValueError, match="1 arrays were given for 2 views"):
        ringmain.read_many([view[0], view[1]], out=[np.empty(50, np.float32)])
    same = np.empty(50, np.float32)
    with pytest.raises(ValueError, match="share memory"):
        ringmain.read_many([view[0], view[1]], out=[same, same])


def test_read_many_of_several_engines(mapped, original):
    memmap = mapped(original)
    views = [ContiguousMemmap(memmap, engine=ringmain.Engine(name))[at]
             for at, name in enumerate(["pread", "mmap", "pread", "auto"])]
    np.testing.assert_array_equal(ringmain.read_many(views, stack=True), original[:4])


def test_numpy_functions_read_the_view(view, original, reads_of):
    for function in (np.sum, np.prod, np.max, np.min, np.amax, np.amin, np.any, np.all, np.flip,
                     np.ptp, np.mean, np.std, np.cumsum, np.flipud):  # fmt: skip
        np.testing.assert_array_equal(function(view), function(original))
    np.testing.assert_array_equal(np.sum(view, axis=0), original.sum(axis=0))
    np.testing.assert_array_equal(np.flip(view, axis=(0, 1)), np.flip(original, axis=(0, 1)))
    out = np.empty(original.shape[1], original.dtype)
    assert np.max(view, axis=0, out=out) is out
    np.testing.assert_array_equal(out, original.max(axis=0))
    # Functions that only rearrange axes return a view.
    for function in (np.transpose, np.squeeze, lambda it: np.reshape(it, -1), lambda it: np.moveaxis(it, 0, 1)):
        assert type(function(view)) is ContiguousMemmap
    assert (np.shape(view), np.ndim(view), np.size(view)) == (original.shape, 2, original.size)
    if view.engine.backend == "pread":
        assert reads_of(lambda: np.sum(view[:3])) == 1
        assert reads_of(lambda: (np.shape(view), np.transpose(view))) == 0


def test_pyarrow_accepts_a_view(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    np.save(tmp_path / "file.npy", np.arange(10, dtype=np.int32))
    view = ringmain.open_npy(tmp_path / "file.npy")
    assert pyarrow.array(view[2:]).equals(pyarrow.array(np.arange(2, 10, dtype=np.int32)))
    assert pyarrow.array(view, type=pyarrow.int64()).type == pyarrow.int64()


def test_dlpack_is_one_read(mapped, original, reads_of):
    view = ContiguousMemmap(mapped(original), engine=ringmain.Engine("pread"))
    assert view.__dlpack_device__() == (1, 0)
    np.testing.assert_array_equal(np.from_dlpack(view[3:5]), original[3:5])
    assert reads_of(lambda: np.from_dlpack(view[3:5])) == 1
    assert reads_of(lambda: np.from_dlpack(view[3:5], copy=True)) == 1
    assert reads_of(lambda: np.asarray(view[3:5])) == 1
    assert reads_of(lambda: [np.asarray(row) for row in view[3:5]]) == 2, "two reads are counted as two"
    with pytest.raises(BufferError, match="copy=False"):
        np.from_dlpack(view, copy=False)
