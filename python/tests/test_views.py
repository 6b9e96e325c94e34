"""Views: their attributes, indices and shapes, and the operations that they refuse."""

import collections.abc
import copy
import pickle
import weakref

import numpy as np
import pytest

import ringmain
from ringmain import ContiguousMemmap

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
def test_basic_indexing_is_the_same_as_in_numpy(view, original, key):
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
def test_indexing_refuses_selections_with_gaps_but_read_reads_them(view, original, key):
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
def test_the_error_for_fancy_indexing_names_the_alternatives(view, key):
    with pytest.raises(TypeError, match=r"fancy indexing.*read\(key\).*np\.asarray\(arr\)\[key\]"):
        view[key]


@pytest.mark.parametrize("key", [20, -21, (0, 50), (0, 0, 0), "a", 1.5, (..., ...), object()], ids=str)
def test_an_invalid_index_is_an_index_error(view, original, key):
    for index in (view, original):
        with pytest.raises(IndexError):
            index[key]
    with pytest.raises(IndexError):
        view.read(key)


def test_a_step_of_zero_is_a_value_error_as_in_numpy(view):
    with pytest.raises(ValueError):
        view[::0]


def test_iteration(view, original):
    assert isinstance(view, collections.abc.Iterable)
    for rows in (iter, reversed):
        read = [np.asarray(row) for row in rows(view)]
        np.testing.assert_array_equal(read, list(rows(original)))
    assert [type(element) for element in view[0, :2]] == [np.float32] * 2


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


def test_impossible_shapes_are_refused(view):
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


def test_dir_lists_only_what_a_view_has(view):
    """dir() and the completion of an interpreter listed some 50 names that only raise an error."""
    assert [name for name in dir(view) if not hasattr(view, name)] == []
    assert {"shape", "T", "read", "reshape", "__array__"} <= set(dir(view))
    assert "sum" not in dir(view) and "__add__" in dir(view)


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
        lambda: view != view,
        lambda: np.add.reduce(view),
    ):
        with pytest.raises(TypeError, match=r"does not support ufunc '\w+'"):
            compute()


def test_the_truth_value_of_a_view_is_refused(tmp_path):
    """`bool(view[:1])` was True over a zero, where NumPy returns False, because Python called `len`."""
    np.zeros(3, np.int64).tofile(tmp_path / "zeros")
    view = ringmain.open_raw(tmp_path / "zeros", np.int64)
    for part in (view, view[:1], view[0, ...]):
        with pytest.raises(TypeError, match=r"len\(arr\) > 0.*np\.asarray\(arr\)\.any\(\)"):
            bool(part)
        with pytest.raises(TypeError, match="truth value"):
            not part
    assert len(view) > 0 and not np.asarray(view[:1]).any()


def test_views_are_keys_of_containers(view):
    """Most containers compare identities first. Those of weakref call `==`."""
    other = view[1:]
    assert view in [view, other] and view in {other, view} and {other: 2, view: 1}[view] == 1
    assert [view, other].index(view) == 0 and [view, other] == [view, other]
    weak = weakref.WeakKeyDictionary({other: 2, view: 1})
    assert weak[view] == 1 and view in weakref.WeakSet([other, view])
    assert view == view


def test_the_error_for_a_field_names_the_alternative(tmp_path):
    """The error for `view["x"]` of a structured dtype had no way out."""
    array = np.zeros(3, [("x", "f4"), ("y", "i8")])
    np.save(tmp_path / "file.npy", array)
    view = ringmain.open_npy(tmp_path / "file.npy")
    for read in (view.__getitem__, view.read):
        with pytest.raises(IndexError, match=r"np\.asarray\(arr\)\['x'\]"):
            read("x")
    with pytest.raises(IndexError, match=r"np\.asarray\(arr\)\[\['x', 'y'\]\]"):
        view.read(["x", "y"])


def test_the_repr_of_a_view_names_the_file_and_the_offset(tmp_path):
    np.save(tmp_path / "file.npy", np.zeros((4, 6), np.float32))
    view = ringmain.open_npy(tmp_path / "file.npy")[1:]
    path = tmp_path / "file.npy"
    assert repr(view) == f"ContiguousMemmap(shape=(3, 6), dtype=float32, path={str(path)!r}, offset=152)"


def test_pickles_contain_the_layout_and_the_options(view, original, backend):
    for part, expected in ((view, original), (view[3:9], original[3:9]), (view[2:4].T, original[2:4].T)):
        data = pickle.dumps(part)
        assert len(data) < 700
        again = pickle.loads(data)
        assert (again.shape, again.dtype, again.strides) == (part.shape, part.dtype, part.strides)
        np.testing.assert_array_equal(np.asarray(again), expected)
        assert again.engine.backend == backend
    # A process that unpickles several views of one engine makes only one engine.
    first, second = (pickle.loads(pickle.dumps(view[row])) for row in (1, 2))
    assert first.engine is second.engine is view.engine
    assert copy.deepcopy([view])[0].engine is view.engine
