"""Reads every element type and compares with NumPy."""

import sys

import numpy as np
import pytest

import ringmain

CODES = [
    "?", "i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16",
    ">i2", ">u4", ">i8", ">f2", ">f4", ">f8", ">c8", ">c16", "g", "G", "S1", "S10", "<U5", "V7",
    "<M8[ns]", "<m8[s]",
]
STRUCTURED = [
    np.dtype([("a", "<f4"), ("b", "<i8")]),
    np.dtype([("a", "u1"), ("b", "<f4", (2, 3))]),
    np.dtype({"names": ["x"], "formats": ["<f8"], "offsets": [4], "itemsize": 16}),
]


def some_of(dtype, shape=(6, 4, 5)):
    """Returns an array of this dtype, made from bytes that are valid in every type."""
    size = int(np.prod(shape))
    data = np.random.default_rng(1).integers(0, 100, size * dtype.itemsize, np.uint8)
    if dtype.kind == "b":
        data %= 2
    if dtype.kind == "U":
        return np.array([f"é{at}" for at in range(size)], dtype).reshape(shape)
    return data.view(dtype).reshape(shape)


def assert_same(got, expected):
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    if got.dtype.names:  # the bytes between the fields may differ
        np.testing.assert_array_equal(got, expected)
    else:
        assert np.ascontiguousarray(got).tobytes() == np.ascontiguousarray(expected).tobytes()


@pytest.mark.parametrize("dtype", [np.dtype(code) for code in CODES] + STRUCTURED, ids=str)
def test_every_dtype_in_a_raw_file(tmp_path, dtype):
    array = some_of(dtype)
    path = tmp_path / "array"
    path.write_bytes(b"123" + array.tobytes())
    view = ringmain.open_raw(path, dtype, array.shape, 3)
    assert_same(np.asarray(view), array)
    assert np.asarray(view).flags.aligned
    for key in (2, slice(1, 4), (3, 2), (..., slice(None)), (1, ..., None), (slice(0, 0),)):
        assert_same(np.asarray(view[key]), array[key])
    element = view[1, 2, 3]
    assert type(element) is type(array[1, 2, 3])
    assert_same(np.asarray(element), np.asarray(array[1, 2, 3]))
    for key in ((slice(None, None, 2), 1), [3, 1], ([0, 5], slice(None), [1, 2]), (..., -1)):
        assert_same(view.read(key), array[key])
    assert_same(np.asarray(view.T), array.T)
    assert_same(np.asarray(view.reshape(-1, 10)), array.reshape(-1, 10))
    assert_same(np.asarray(view.reshape(6, 20).transpose(1, 0)), array.reshape(6, 20).T)
    assert_same(np.asarray(view.view(np.uint8)), array.view(np.uint8))
    memmap = np.memmap(path, dtype, "r", 3, array.shape)
    assert_same(np.asarray(ringmain.ContiguousMemmap(memmap)[2:]), array[2:])
    assert_same(ringmain.read_many([view[1], view[5]], stack=True), array[[1, 5]])


@pytest.mark.parametrize("dtype", [np.dtype(code) for code in CODES] + STRUCTURED, ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_dtype_in_an_npy_file(tmp_path, dtype, order):
    array = some_of(dtype)
    np.save(tmp_path / "a.npy", np.asarray(array, order=order))
    expected = np.load(tmp_path / "a.npy", mmap_mode="r")
    view = ringmain.open_npy(tmp_path / "a.npy")
    assert (view.dtype, view.strides) == (expected.dtype, expected.strides)
    assert_same(np.asarray(view), expected)
    assert_same(view.read([3, 1]), expected[[3, 1]])


def test_objects_are_not_unpickled(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{}, []], object))
    with pytest.raises(ValueError, match="never unpickled"):
        ringmain.open_npy(tmp_path / "a.npy")
    np.save(tmp_path / "b.npy", np.zeros(2, [("a", "O")]))
    with pytest.raises((ValueError, TypeError)):
        ringmain.open_npy(tmp_path / "b.npy")


def test_an_npy_file_of_ml_dtypes_has_the_dtype_that_numpy_loads(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.arange(6).astype(ml_dtypes.bfloat16)
    np.save(tmp_path / "a.npy", array)
    view = ringmain.open_npy(tmp_path / "a.npy")
    assert view.dtype == np.load(tmp_path / "a.npy").dtype
    assert_same(np.asarray(view.view("bfloat16")), array)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_types_of_ml_dtypes(tmp_path, name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(ml_dtypes, name))
    array = np.arange(12).astype(dtype).reshape(3, 4)
    (tmp_path / "a").write_bytes(array.tobytes())
    for given in (name, dtype):
        view = ringmain.open_raw(tmp_path / "a", given, (3, 4))
        assert_same(np.asarray(view), array)
        assert view[1, 2] == array[1, 2]


def test_without_ml_dtypes_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    (tmp_path / "a").write_bytes(b"1234")
    with pytest.raises(TypeError, match="install ml_dtypes"):
        ringmain.open_raw(tmp_path / "a", "bfloat16", 2)


def test_views_between_types_of_any_size(tmp_path):
    array = some_of(np.dtype("S12"), (5, 4))
    (tmp_path / "a").write_bytes(array.tobytes())
    view = ringmain.open_raw(tmp_path / "a", "S12", (5, 4))
    for dtype in ("u1", "<f4", "S6", "S12", "V12", "<U1", "S24", "S48"):
        assert_same(np.asarray(view.view(dtype)), array.view(dtype))
        assert_same(np.asarray(view.view(dtype).view("S12")), array)
    for dtype in ("S5", "S7", "<f8", "S36"):
        with pytest.raises(ValueError):
            view.view(dtype)
