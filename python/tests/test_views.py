"""What a view is, what it gives, and what it refuses."""

import collections.abc
import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

import ringmain
from ringmain import ContiguousMemmap


@pytest.fixture
def original():
    return np.random.default_rng(0).random((20, 50)).astype(np.float32)


@pytest.fixture
def view(mapped, original, engine):
    return ContiguousMemmap(mapped(original), engine=engine)


def test_what_is_read_is_what_was_written(view, original):
    assert (view.shape, view.dtype, view.ndim, view.size) == ((20, 50), np.float32, 2, 1000)
    assert (view.strides, view.itemsize, view.nbytes, len(view)) == ((200, 4), 4, 4000, 20)
    read = np.asarray(view)
    assert type(read) is np.ndarray and read.dtype == original.dtype
    np.testing.assert_array_equal(read, original)
    assert str(view) == "ContiguousMemmap(shape=(20, 50), dtype=float32)"


KEYS = [
    slice(None),
    0,
    -1,
    np.int64(3),
    (0,),
    slice(1, 3),
    slice(-3, None),
    (slice(1, 3),),
    (5, slice(10, 20)),
    (slice(4, 5), slice(10, 20)),
    (3, 4),
    (-1, -1),
    (np.uint8(3), np.int16(-4)),
    ...,
    (..., slice(None)),
    (2, ...),
    (2, 3, ...),
    None,
    (None, 2),
    (2, None, slice(3, 9)),
    slice(5, 6, 7),
    slice(2, 2),
    slice(30, 40),
    slice(5, 2),
    (slice(None), slice(0, 0)),
    slice(-(2**70), 2**70),
    (),
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_basic_indexing_gives_what_numpy_gives(view, original, key):
    got, expected = view[key], original[key]
    if expected.ndim == 0 and not isinstance(expected, np.ndarray):
        assert type(got) is type(expected)
    elif expected.size == 0:
        assert type(got) is np.ndarray
    else:
        assert type(got) is ContiguousMemmap
        assert got.strides == expected.strides or 1 in expected.shape
    assert got.shape == expected.shape
    np.testing.assert_array_equal(np.asarray(got), expected)
    np.testing.assert_array_equal(view.read(key), expected)


def test_views_of_views(view, original):
    part = view[3:17][2:9]
    np.testing.assert_array_equal(np.asarray(part[-1, 5:9]), original[3:17][2:9][-1, 5:9])
    np.testing.assert_array_equal([np.asarray(row) for row in part], original[5:12])


@pytest.mark.parametrize(
    "key",
    [slice(None, None, 2), slice(None, None, -1), (slice(None), 10), (slice(1, 3), slice(5, 15))],
    ids=str,
)
def test_what_is_not_one_range_is_refused_and_read_by_read(view, original, key):
    with pytest.raises(TypeError, match=r"Non-contiguous.*read\(key\)"):
        view[key]
    read = view.read(key)
    assert read.flags.c_contiguous and read.flags.writeable
    np.testing.assert_array_equal(read, original[key])


@pytest.mark.parametrize(
    "key",
    [[0, 2, 4], np.array([1, 2]), (slice(None), [1]), np.ones(20, bool), True, np.True_, (0, [1]),
     np.array(3)],
    ids=str,
)
def test_fancy_indexing_is_refused_and_the_way_out_named(view, key):
    with pytest.raises(TypeError, match=r"fancy indexing.*read\(key\).*np\.asarray\(arr\)\[key\]"):
        view[key]


@pytest.mark.parametrize("key", [20, -21, (0, 50), (0, 0, 0), "a", 1.5, (..., ...), object()], ids=str)
def test_what_is_not_there_is_an_index_error(view, original, key):
    for index in (view, original):
        with pytest.raises(IndexError):
            index[key]
    with pytest.raises(IndexError):
        view.read(key)


def test_a_step_of_zero_is_a_value_error_as_in_numpy(view):
    with pytest.raises(ValueError):
        view[::0]


def test_views_in_other_shapes(view, original):
    cases = {
        "T": lambda array: array.T,
        "reshape": lambda array: array.reshape(10, 100),
        "reshape tuple": lambda array: array.reshape((4, -1)),
        "reshape one": lambda array: array.reshape(-1),
        "transpose": lambda array: array.transpose(),
        "transpose axes": lambda array: array.reshape(4, 5, 50).transpose(1, -1, 0),
        "transpose tuple": lambda array: array.reshape(4, 5, 50).transpose((2, 0, 1)),
        "swapaxes": lambda array: array.swapaxes(0, -1),
        "squeeze": lambda array: array.reshape(1, 20, 1, 50).squeeze(),
        "squeeze axis": lambda array: array.reshape(1, 20, 1, 50).squeeze(2),
        "squeeze axes": lambda array: array.reshape(1, 20, 1, 50).squeeze(axis=(0, -2)),
        "ravel": lambda array: array.ravel(),
        "view": lambda array: array.view(np.uint8),
        "view wider": lambda array: array.view("<f8"),
        "reshape nothing": lambda array: array.reshape(None),
        "reshape A": lambda array: array.reshape(10, 100, order="A"),
        "reshape A of T": lambda array: array.T.reshape(100, 10, order="A"),
        "reshape F of T": lambda array: array.T.reshape(-1, order="F"),
        "reshape F": lambda array: array.T.reshape((10, 5, 20), order="F"),
        "reshape without a copy": lambda array: array.reshape(4, -1, copy=False),
        "ravel F": lambda array: array.T.ravel("F"),
        "ravel A": lambda array: array.ravel("A"),
        "ravel A of T": lambda array: array.T.ravel("A"),
        "ravel K": lambda array: array.ravel("K"),
        "ravel K of any order": lambda array: array.reshape(4, 5, 50).transpose(2, 0, 1).ravel("K"),
        "view of a kind": lambda array: array.view(np.ndarray),
        "view by type": lambda array: array.view(type=np.ndarray),
        "view of both": lambda array: array.view("u1", np.ndarray),
        "T of a part": lambda array: array[3:7].T,
        "part of T": lambda array: array[3].reshape(5, 10).T,
    }
    for name, make in cases.items():
        got, expected = make(view), make(original)
        assert type(got) is ContiguousMemmap, name
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype), name
        np.testing.assert_array_equal(np.asarray(got), expected, err_msg=name)
        assert np.asarray(got).flags.c_contiguous


def test_shapes_that_cannot_be_are_refused(view):
    for refused in (
        lambda: view.reshape(7, 7),
        lambda: view.reshape(-1, -1),
        lambda: view.transpose(0, 0),
        lambda: view.swapaxes(0, 2),
        lambda: view.squeeze(0),
        lambda: view[:, :][0, :3].view(np.float64),
        lambda: view.squeeze((0, 0)),
        lambda: view.reshape(1, 20, 50).squeeze((0, -3)),
        lambda: view.reshape(-2, -500),
        lambda: view.reshape([1] * 63 + [20, 50]),
        lambda: view.reshape(2**70),
        lambda: view.reshape(10, 100, order="K"),
        lambda: view.ravel("X"),
        lambda: view.T.reshape(-1, copy=False),
    ):
        with pytest.raises(ValueError):
            refused()
    for axis in (2, -3, 2**70):
        for refused in (lambda: view.squeeze(axis), lambda: view.swapaxes(0, axis), lambda: view.transpose(0, axis)):
            with pytest.raises(np.exceptions.AxisError):
                refused()
    with pytest.raises(TypeError, match="sub-type of ndarray"):
        view.view(type=int)
    with pytest.raises(TypeError, match="np.asarray"):
        view.reshape(10, 100, copy=True)
    for copied_by_numpy in (lambda: view.T.reshape(-1), lambda: view.T.ravel(), lambda: view.ravel("F")):
        with pytest.raises(TypeError, match="np.asarray"):
            copied_by_numpy()


def test_conversion_and_copy(view, original):
    np.testing.assert_array_equal(np.asarray(view, dtype=np.float64), original.astype(np.float64))
    assert np.asarray(view, dtype=np.float64).dtype == np.float64
    np.testing.assert_array_equal(np.array(view, copy=True), original)
    np.testing.assert_array_equal(np.array(view, dtype="i4", copy=None), original.astype("i4"))
    with pytest.raises(ValueError, match="copy"):
        np.array(view, copy=False)


def test_what_was_read_is_the_callers_own(mapped, original, engine):
    memmap = mapped(original)
    view = ContiguousMemmap(memmap, engine=engine)
    read = np.asarray(view)
    assert not np.shares_memory(read, memmap)
    assert read.flags.writeable and read.flags.aligned
    read += 1
    np.testing.assert_array_equal(np.asarray(view), original)
    np.testing.assert_array_equal(memmap, original)


def test_attributes_of_arrays_are_refused_and_others_unknown(view):
    for name in ("mean", "sum", "astype", "flat", "data", "tolist", "base"):
        with pytest.raises(AttributeError, match=rf"does not support '\.{name}'.*np\.asarray\(arr\)"):
            getattr(view, name)
        assert not hasattr(view, name)
    with pytest.raises(AttributeError, match="has no attribute 'colour'"):
        view.colour
    with pytest.raises(AttributeError):
        view.shape = (3,)


def test_arithmetic_is_refused(view, original):
    for compute in (
        lambda: view + 1,
        lambda: 1 + view,
        lambda: original + view,
        lambda: view - original,
        lambda: np.add(view, 1),
        lambda: np.sqrt(view),
        lambda: -view,
        lambda: view @ view,
        lambda: view**2,
        lambda: 2**view,
        lambda: view < 3,
        lambda: view == original,
        lambda: view == 3,
        lambda: view != 3,
        lambda: view == view[:],
        lambda: view != view[:],
        lambda: np.add.reduce(view),
    ):
        with pytest.raises(TypeError, match=r"does not support ufunc '\w+'"):
            compute()
    assert view == view and view in {view} and {view: 1}[view] == 1


def test_only_mappings_of_files_are_wrapped(original, tmp_path):
    for other in (original, original[2:], [1, 2], None):
        with pytest.raises(TypeError, match="memmap-backed"):
            ContiguousMemmap(other)
    np.save(tmp_path / "a.npy", original)
    loaded = np.load(tmp_path / "a.npy", mmap_mode="r")
    np.testing.assert_array_equal(np.asarray(ContiguousMemmap(loaded)), original)
    for copied in (loaded.copy(), loaded[3:5].copy()[1:]):
        with pytest.raises(TypeError, match="memmap-backed.*copy of one in memory"):
            ContiguousMemmap(copied)
    with open(tmp_path / "a.npy", "rb") as file:
        np.testing.assert_array_equal(
            np.asarray(ContiguousMemmap(np.memmap(file, np.uint8, "r"))),
            np.fromfile(tmp_path / "a.npy", np.uint8),
        )


def test_the_place_is_that_of_the_root_of_the_bases(mapped, engine):
    """A slice of a mapping has its parent's `offset`, and an ndarray view of it has none."""
    array = np.arange(10_000, dtype=np.int16).reshape(100, 100)
    memmap = mapped(array, before=6000)  # beyond a page, so that np.memmap maps from within the file
    for make in (
        lambda a: a,
        lambda a: a[7:90],
        lambda a: a[7:90][3:],
        lambda a: np.asarray(a[7:90])[2:],
        lambda a: a[7:90].view(np.ndarray)[5],
        lambda a: a[7:90].view(np.int32),
        lambda a: a[10:20].T,
        lambda a: a[10:20].reshape(2, 5, 100).transpose(2, 0, 1),
        lambda a: a[5:5],
    ):
        view = ContiguousMemmap(make(memmap), engine=engine)
        np.testing.assert_array_equal(np.asarray(view), make(array))


def test_mappings_that_are_not_one_range_are_wrapped(mapped, engine):
    array = np.arange(10_000, dtype=np.int16).reshape(100, 100)
    memmap = mapped(array, before=6001)
    for make in (
        lambda a: a[:, 3],
        lambda a: a[::2],
        lambda a: a[::-1],
        lambda a: a[5:50:3, ::-7],
        lambda a: a[:, 10:20].T,
        lambda a: a.reshape(10, 10, 100)[:, 2],
        lambda a: a[20:40].view("S6,<f4")["f1"],
        lambda a: np.broadcast_to(a[3], (4, 100)),
        lambda a: np.broadcast_to(a[3, 4:5], (2, 2)),
        lambda a: a[::2, :0],
    ):
        view, expected = ContiguousMemmap(make(memmap), engine=engine), make(array)
        assert (view.shape, view.strides, view.dtype) == (expected.shape, expected.strides, expected.dtype)
        for again in (view, pickle.loads(pickle.dumps(view))):
            np.testing.assert_array_equal(np.asarray(again), expected)
        np.testing.assert_array_equal(np.asarray(view.T), expected.T)
        np.testing.assert_array_equal(view.read(slice(None, None, 2)), expected[::2])
        np.testing.assert_array_equal(ringmain.read_many([view, view])[1], expected)
    column = ContiguousMemmap(memmap[:, 3], engine=engine)
    assert column[5] == array[5, 3] and np.asarray(column[5:6]) == array[5, 3]
    np.testing.assert_array_equal(column.read([3, -1]), array[[3, -1], 3])
    np.testing.assert_array_equal(np.asarray(column.reshape(10, 10)), array[:, 3].reshape(10, 10))
    with pytest.raises(TypeError, match=r"Non-contiguous.*read\(key\)"):
        column[5:7]


def test_a_file_that_grew_and_one_that_was_cut(tmp_path, engine):
    path = tmp_path / "grows"
    path.write_bytes(bytes(range(200)))
    view = ringmain.open_raw(path, np.uint8, 100, engine=engine)
    with open(path, "ab") as file:
        file.write(b"more")
    assert np.asarray(view)[-1] == 99
    path.write_bytes(b"short")
    with pytest.raises(OSError, match="past its end") as raised:
        np.asarray(view)
    assert raised.value.filename == str(path) and raised.value.errno


def test_open_raw_and_open_npy(tmp_path, engine, original):
    raw = tmp_path / "raw"
    raw.write_bytes(b"head" + original.tobytes())
    view = ringmain.open_raw(raw, "float32", (20, 50), 4, engine=engine)
    np.testing.assert_array_equal(np.asarray(view), original)
    for name, array in {"c": original, "f": np.asfortranarray(original), "0d": np.array(3.5)}.items():
        np.save(tmp_path / f"{name}.npy", array)
        view = ringmain.open_npy(str(tmp_path / f"{name}.npy"), engine=engine)
        assert (view.shape, view.dtype) == (array.shape, array.dtype)
        np.testing.assert_array_equal(np.asarray(view), array)
    for shape in ((21, 50), 10**12, (2**62, 2**62)):
        with pytest.raises(ValueError):
            ringmain.open_raw(raw, "float32", shape, engine=engine)
    with pytest.raises(ValueError, match="not a .npy file"):
        ringmain.open_npy(raw, engine=engine)


def test_exceptions_are_pythons_own(tmp_path):
    with pytest.raises(FileNotFoundError) as raised:
        ringmain.open_raw(tmp_path / "absent", "u1", 1)
    assert (raised.value.errno, raised.value.filename) == (2, str(tmp_path / "absent"))
    with pytest.raises(IsADirectoryError):
        ringmain.open_raw(tmp_path, "u1", 1)
    with pytest.raises(ValueError, match="did you mean `pread`"):
        ringmain.Engine("pred")
    with pytest.raises(ValueError, match="chunk_bytes"):
        ringmain.Engine(chunk_bytes=1000)
    for option, choices in {
        "residency": '"keep" or "release"',
        "warmth": '"auto", "keep" or "leave"',
        "access": '"as-it-comes", "random" or "sequential"',
    }.items():
        with pytest.raises(ValueError, match=f'{option} cannot be "forever": it is {choices}$'):
            ringmain.Engine(**{option: "forever"})
    (tmp_path / "file").write_bytes(b"12345678")
    with pytest.raises(TypeError):
        ringmain.open_raw(tmp_path / "file", object, 1)
    with pytest.raises(TypeError):
        ringmain.open_raw(tmp_path / "file", "no such type", 1)
    with pytest.raises(TypeError, match="None is no dtype"):
        ringmain.open_raw(tmp_path / "file", None, 1)
    for open_it in (ringmain.open_npy, lambda path: ringmain.open_raw(path, "u1", 1)):
        with pytest.raises(ValueError, match="null byte"):
            open_it("a\0b")


def test_numbers_that_cannot_be_are_value_errors(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345678")
    for name, refused in {
        "shape.*-3": lambda: ringmain.open_raw(path, "u1", -3),
        "shape.*-2": lambda: ringmain.open_raw(path, "u1", (1, -2)),
        "shape.*one axis": lambda: ringmain.open_raw(path, "u1", (-1, -1)),
        "shape.*axis of 0": lambda: ringmain.open_raw(path, "u1", (0, -1)),
        "whole number of rows": lambda: ringmain.open_raw(path, "u1", (-1, 3)),
        "8 bytes .* rows of 3": lambda: ringmain.open_raw(path, "S3"),
        "order": lambda: ringmain.open_raw(path, "u1", 8, order="K"),
        "engine or backend": lambda: ringmain.open_raw(path, "u1", engine="pread", backend="mmap"),
        "did you mean `uring`": lambda: ringmain.open_raw(path, "u1", engine="urin"),
        "shape.*1180591620717411303424": lambda: ringmain.open_raw(path, "u1", 2**70),
        "offset": lambda: ringmain.open_raw(path, "u1", 1, -1),
        "memory_limit": lambda: ringmain.Engine(memory_limit=-1),
        "depth": lambda: ringmain.Engine(depth=2**70),
        "open_files": lambda: ringmain.Engine(open_files=-1),
        "chunk_bytes": lambda: ringmain.Engine(chunk_bytes=-1),
    }.items():
        with pytest.raises(ValueError, match=name):
            refused()
    for refused in (lambda: ringmain.open_raw(path, "u1", 1.5), lambda: ringmain.open_raw(path, "u1", "3"),
                    lambda: ringmain.open_raw(path, "u1", engine=3)):
        with pytest.raises(TypeError):
            refused()


def test_a_private_mapping_is_refused(tmp_path):
    path = tmp_path / "file"
    np.arange(10, dtype="i4").tofile(path)
    private = np.memmap(path, "i4", "c")
    private[0] = 99
    for array in (private, private[2:5], private.view("u1")):
        with pytest.raises(TypeError, match="memmap-backed.*mode='c'"):
            ContiguousMemmap(array)
    for mode in ("r", "r+"):
        np.testing.assert_array_equal(ContiguousMemmap(np.memmap(path, "i4", mode)), np.arange(10))


@pytest.mark.parametrize("dtype", ["u2", ">f4", "S3", [("a", "u1"), ("b", "<u4")]])
@pytest.mark.parametrize("offset", [0, 6])
def test_open_raw_finds_the_length(tmp_path, engine, dtype, offset):
    dtype = np.dtype(dtype)
    path = tmp_path / "tokens.bin"
    data = np.random.default_rng(1).integers(0, 255, offset + 24 * dtype.itemsize, np.uint8)
    data.tofile(path)
    expected = data[offset:].view(dtype)
    view = ringmain.open_raw(path, dtype, offset=offset, engine=engine)
    assert view.shape == np.memmap(path, dtype, "r", offset).shape == (24,)
    assert np.asarray(view).tobytes() == expected.tobytes()
    assert np.asarray(view[3:7]).tobytes() == expected[3:7].tobytes()
    for shape in (-1, (-1,), (-1, 6), (2, -1), (2, -1, 3), (24, -1)):
        view = ringmain.open_raw(path, dtype, shape, offset, engine=engine)
        assert view.shape == expected.reshape(shape).shape
        assert np.asarray(view).tobytes() == expected.tobytes()


def test_open_raw_in_fortran_order(tmp_path, engine):
    path = tmp_path / "file"
    path.write_bytes(b"??" + np.arange(24, dtype="i4").tobytes())
    for shape in ((4, 6), (2, -1, 4), 24):
        view = ringmain.open_raw(path, "i4", shape, 2, order="F", engine=engine)
        full = view.shape
        mapped = np.memmap(path, "i4", "r", 2, full, order="F")
        assert view.strides == mapped.strides
        np.testing.assert_array_equal(view, mapped)
        np.testing.assert_array_equal(view.read((slice(None), 1) if len(full) > 1 else 1),
                                      mapped[:, 1] if len(full) > 1 else mapped[1])  # fmt: skip


def test_an_engine_is_given_by_the_name_of_a_backend(tmp_path, backend):
    path = tmp_path / "file.npy"
    np.save(path, np.arange(10))
    views = [
        ringmain.open_npy(path, engine=backend),
        ringmain.open_npy(path, backend=backend),
        ringmain.open_raw(path, "u1", backend=backend),
        ContiguousMemmap(np.load(path, mmap_mode="r"), engine=backend),
    ]
    assert {view.engine.backend for view in views} == {backend}
    assert len({id(view.engine) for view in views}) == 1, "they share one"
    np.testing.assert_array_equal(views[0], np.arange(10))
    assert pickle.loads(pickle.dumps(views[0])).engine is views[0].engine


def test_functions_of_numpy_read_the_view(view, original, reads_of):
    for function in (np.sum, np.prod, np.max, np.min, np.amax, np.amin, np.any, np.all, np.flip,
                     np.ptp, np.mean, np.std, np.cumsum, np.flipud):  # fmt: skip
        np.testing.assert_array_equal(function(view), function(original))
    np.testing.assert_array_equal(np.sum(view, axis=0), original.sum(axis=0))
    np.testing.assert_array_equal(np.flip(view, axis=(0, 1)), np.flip(original, axis=(0, 1)))
    out = np.empty(original.shape[1], original.dtype)
    assert np.max(view, axis=0, out=out) is out
    np.testing.assert_array_equal(out, original.max(axis=0))
    # What only rearranges stays a view.
    for function in (np.transpose, np.squeeze, lambda it: np.reshape(it, -1), lambda it: np.moveaxis(it, 0, 1)):
        assert type(function(view)) is ContiguousMemmap
    assert (np.shape(view), np.ndim(view), np.size(view)) == (original.shape, 2, original.size)
    if view.engine.backend == "pread":
        assert reads_of(lambda: np.sum(view[:3])) == 1
        assert reads_of(lambda: (np.shape(view), np.transpose(view))) == 0


def test_pyarrow_takes_a_view(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    np.save(tmp_path / "file.npy", np.arange(10, dtype=np.int32))
    view = ringmain.open_npy(tmp_path / "file.npy")
    assert pyarrow.array(view[2:]).equals(pyarrow.array(np.arange(2, 10, dtype=np.int32)))
    assert pyarrow.array(view, type=pyarrow.int64()).type == pyarrow.int64()


def test_a_view_says_where_it_is(tmp_path):
    np.save(tmp_path / "file.npy", np.zeros((4, 6), np.float32))
    view = ringmain.open_npy(tmp_path / "file.npy")[1:]
    path = tmp_path / "file.npy"
    assert repr(view) == f"ContiguousMemmap(shape=(3, 6), dtype=float32, path={str(path)!r}, offset=152)"


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


def test_read_many_is_one_batch_of_any_views(tmp_path, engine, original):
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
    # What indexing gives for an empty selection is an array.
    some, none = ringmain.read_many([one[3], one[5:5]])
    np.testing.assert_array_equal(some, original[3])
    assert (none.shape, none.dtype) == ((0, 50), np.float32)
    assert ringmain.read_many([one[0:0], one[2:2]], stack=True).shape == (2, 0, 50)


def test_read_many_refuses_what_does_not_fit(view):
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


def test_large_arrays_go_back_to_the_pool(mapped, backend):
    """Arrays larger than the pool, held by the caller, are none of its business."""
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


def test_pickles_carry_the_place_and_the_options(view, original, backend):
    for part, expected in ((view, original), (view[3:9], original[3:9]), (view[2:4].T, original[2:4].T)):
        data = pickle.dumps(part)
        assert len(data) < 700
        again = pickle.loads(data)
        assert (again.shape, again.dtype, again.strides) == (part.shape, part.dtype, part.strides)
        np.testing.assert_array_equal(np.asarray(again), expected)
        assert again.engine.backend == backend
    # However many views a worker gets, it makes one engine of them.
    first, second = (pickle.loads(pickle.dumps(view[row])) for row in (1, 2))
    assert first.engine is second.engine is view.engine
    assert copy.deepcopy([view])[0].engine is view.engine


def test_pickles_carry_all_options_of_an_engine():
    given = {"memory_limit": 1 << 20, "depth": 7, "chunk_bytes": 65536, "residency": "release",
             "open_files": 5, "warmth": "leave", "access": "random"}  # fmt: skip
    engine = ringmain.Engine("pread", **given)
    pickled = pickle.dumps(engine)
    assert pickle.loads(pickled) is engine
    del engine
    _, (_, options) = pickle.loads(pickled).__reduce__()
    assert options == {"backend": "pread", **given}


def test_views_without_an_engine_share_one(mapped, original):
    one, two = ContiguousMemmap(mapped(original)), ContiguousMemmap(mapped(original, "other"))
    assert one.engine is two.engine
    assert pickle.loads(pickle.dumps(one)).engine is one.engine
    assert weakref.ref(one)() is one


def test_dlpack_is_one_read(mapped, original, reads_of):
    view = ContiguousMemmap(mapped(original), engine=ringmain.Engine("pread"))
    assert view.__dlpack_device__() == (1, 0)
    np.testing.assert_array_equal(np.from_dlpack(view[3:5]), original[3:5])
    assert reads_of(lambda: np.from_dlpack(view[3:5])) == 1
    assert reads_of(lambda: np.from_dlpack(view[3:5], copy=True)) == 1
    assert reads_of(lambda: np.asarray(view[3:5])) == 1
    assert reads_of(lambda: [np.asarray(row) for row in view[3:5]]) == 2, "it can count"
    with pytest.raises(BufferError, match="copy=False"):
        np.from_dlpack(view, copy=False)


def test_iteration(view, original):
    assert isinstance(view, collections.abc.Iterable)
    for rows in (iter, reversed):
        read = [np.asarray(row) for row in rows(view)]
        np.testing.assert_array_equal(read, list(rows(original)))
    assert [type(element) for element in view[0, :2]] == [np.float32] * 2


def test_engine_tells_what_it_is(engine, backend):
    assert engine.backend == backend and f"backend {backend}" in engine.describe()
    for limit in (8192, 20_000, 1 << 20):
        assert ringmain.Engine(backend, memory_limit=limit).memory_limit == limit
    with pytest.raises(ValueError, match="memory_limit"):
        ringmain.Engine(backend, memory_limit=100)
    probe = ringmain.probe()
    assert {entry["name"] for entry in probe["backends"]} >= {"pread", "mmap", "uring"}
