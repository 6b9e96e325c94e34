"""Compares random selections with NumPy."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ringmain
from ringmain import _selection

SHAPE = (5, 1, 7, 4)
NUMBERS = np.arange(np.prod(SHAPE), dtype=np.int32).reshape(SHAPE)
ORDERS = [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)]
# The engine has no element types of three or six bytes. Its arrays have one more axis instead.
DTYPES = ["<i4", "S3", np.dtype([("a", "<u2"), ("b", "<i4")])]


@pytest.fixture(scope="module")
def views(tmp_path_factory):
    folder = tmp_path_factory.mktemp("selections")
    engine = ringmain.Engine("auto", memory_limit=64 << 10)
    views = Views()
    for at, dtype in enumerate(DTYPES):
        array = as_type(dtype)
        path = folder / str(at)
        path.write_bytes(b"odd" + array.tobytes())
        view = ringmain.open_raw(path, dtype, SHAPE, 3, engine=engine)
        for order in ORDERS:
            views[at, order] = view.transpose(order), array.transpose(order)
    # A view with gaps between its elements, which can only be made from a mapping.
    path = folder / "gaps"
    wide = np.arange(2 * NUMBERS.size, dtype=np.int32).reshape(5, 1, 7, 8)
    path.write_bytes(wide.tobytes())
    memmap = np.memmap(path, np.int32, "r", shape=wide.shape)
    gaps = ringmain.ContiguousMemmap(memmap[::-1, ..., 1::2], engine=engine), wide[::-1, ..., 1::2]
    views |= {("gaps", order): tuple(array.transpose(order) for array in gaps) for order in ORDERS}
    return views


def as_type(dtype):
    dtype = np.dtype(dtype)
    if dtype.names:
        array = np.empty(SHAPE, dtype)
        array["a"], array["b"] = NUMBERS, -NUMBERS
        return array
    return NUMBERS.astype(dtype)


KINDS = st.sampled_from([0, 0, 0, 1, 2, "gaps"])


class Views(dict):
    """A view and an array for each type and order of the axes. The repr is short, because hypothesis
    prints it for each example."""

    def __repr__(self):
        return "views"


def slices():
    bound = st.none() | st.integers(-9, 9)
    return st.builds(slice, bound, bound, st.none() | st.integers(-3, 3).filter(bool))


def basic():
    return slices() | st.integers(-8, 8) | st.just(Ellipsis) | st.none()


def lists():
    return (
        st.lists(st.integers(-8, 8), max_size=5)
        | st.lists(st.integers(-2, 2), min_size=2, max_size=2).map(np.array)
        | st.lists(st.lists(st.integers(-2, 2), min_size=2, max_size=2), min_size=1, max_size=3).map(np.array)
        | st.lists(st.booleans(), min_size=1, max_size=7).map(np.array)
        | st.sampled_from([True, False, np.True_, np.array(False), np.array(1), np.array(-2), range(3), range(0)])
        | st.integers(0, 2**35 - 1).map(lambda bits: np.array([bits >> at & 1 == 1 for at in range(35)]).reshape(5, 7))
    )


def keys(parts):
    return parts | st.lists(parts, max_size=5).map(tuple)


def outcome(select):
    try:
        return np.asarray(select())
    except (IndexError, ValueError) as error:
        return IndexError if isinstance(error, IndexError) else ValueError


def check(view, array, key):
    expected, got = outcome(lambda: array[key]), outcome(lambda: view.read(key))
    if isinstance(expected, type):
        assert got is expected
        return
    if got is IndexError and expected.size == 0:
        return  # NumPy ignores wrong indices in empty selections, and warns that it will refuse them
    assert got.shape == expected.shape and got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)
    assert type(view.read(key)) is type(array[key])


@pytest.mark.filterwarnings("ignore:Out of bound index found:DeprecationWarning")
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=KINDS, order=st.sampled_from(ORDERS), key=keys(basic()))
def test_basic_selections(views, kind, order, key):
    view, array = views[kind, order]
    check(view, array, key)
    expected = outcome(lambda: array[key])
    if isinstance(expected, type):
        with pytest.raises(expected):
            view[key]
        return
    try:
        part = view[key]
    except TypeError as error:
        assert "Non-contiguous" in str(error)
        return
    assert part.shape == expected.shape
    np.testing.assert_array_equal(np.asarray(part), expected)


@pytest.mark.filterwarnings("ignore:Out of bound index found:DeprecationWarning")
@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=KINDS, order=st.sampled_from(ORDERS), key=keys(basic() | lists()))
def test_fancy_selections(views, kind, order, key):
    check(*views[kind, order], key)


@pytest.mark.parametrize("kind", [0, 1, 2, "gaps"])
def test_more_indices_than_axes_are_index_errors(views, kind):
    """The surplus index was applied to the bytes of an element. The result was memory that was never
    read, or a panic."""
    view, array = views[kind, ORDERS[0]]
    for key in (
        (0, 0, 0, 0, 0),
        (0, 0, 0, 0, slice(None)),
        (slice(None),) * 5,
        (slice(None, None, 2), 0, 0, 0, slice(0, 1)),
        (..., 0, 0, 0, 0, slice(0, 3)),
        (0, 0, 0, 0, [0]),
    ):
        for select in (lambda: array[key], lambda: view.read(key)):
            with pytest.raises(IndexError):
                select()
        with pytest.raises(TypeError if [0] in key else IndexError):
            view[key]
    single = view[0, 0, 0, 0, ...]
    assert single.shape == () and np.asarray(single) == array[0, 0, 0, 0]
    with pytest.raises(TypeError, match="0-d"):
        list(single)


def test_an_ellipsis_without_axes_separates_lists(views):
    """Lists on its two sides were treated as neighbours."""
    for kind in (0, 1, 2, "gaps"):
        view, array = (whole.squeeze(1) for whole in views[kind, ORDERS[0]])
        for key in (
            (slice(None), [1], ..., 2),
            (slice(None), 1, ..., [2]),
            (slice(None), [[1]], ..., [2]),
            (slice(None), ..., [1], 2),
            ([1], 2, ..., slice(None)),
            ([1], 2, slice(None), ...),
            (slice(None), np.array(1), ..., [True, False, True, False]),
        ):
            got = view.read(key)
            assert got.shape == array[key].shape, key
            np.testing.assert_array_equal(got, array[key])


@pytest.mark.parametrize("step", [2**63 - 1, -(2**63 - 1), 2**62, 2**70, -(2**70)])
def test_steps_larger_than_any_axis(views, step):
    """The sum of a start and such a step overflowed."""
    view, array = views[0, ORDERS[0]]
    for key in ((slice(1, None, step), ..., slice(None, None, 2)), (slice(None, None, 2), 0, slice(3, None, step))):
        np.testing.assert_array_equal(view.read(key), array[key])


@pytest.mark.parametrize("index", [2**62, -(2**62), 5, -6, 2**63, np.uint64(2**63), 10**30])
def test_indices_out_of_bounds_are_index_errors(views, index):
    for key in ([index], [0, index], index, (slice(None, None, 2), index), (0, [index])):
        with pytest.raises(IndexError):
            views[0, ORDERS[0]][0].read(key)


def test_a_selection_of_many_parts(tmp_path, engine):
    """The selections are larger than the part that is read between two checks for signals."""
    array = np.arange(24 << 20, dtype=np.uint32).reshape(-1, 1024)
    path = tmp_path / "large"
    array.tofile(path)
    view = ringmain.open_raw(path, array.dtype, array.shape, engine=engine)
    rows = np.random.default_rng(3).permutation(len(array))
    np.testing.assert_array_equal(view.read(rows), array[rows])
    for key in (slice(None, None, -1), slice(3, None, 2), (slice(None, None, -2), slice(5, 600))):
        np.testing.assert_array_equal(view.read(key), array[key])
    np.testing.assert_array_equal(view.reshape(2, -1, 1024).read((1, slice(None, None, -1))), array[len(array) // 2 :][::-1])
    np.testing.assert_array_equal(np.asarray(view), array)
    # Rows that are longer than such a part.
    halves, rows = view.reshape(2, -1), array.reshape(2, -1)
    for key in ([1], slice(None, None, -1), (..., slice(None, None, -500))):
        np.testing.assert_array_equal(halves.read(key), rows[key])


@pytest.mark.parametrize(
    ("shape", "strides", "key", "runs", "result"),
    [
        ((100, 50, 1), (50, 1, 1), [0, 5], [0, 250], (2, 50, 1)),
        ((100, 1, 50, 1), (50, 7, 1, 7), [0, 5], [0, 250], (2, 1, 50, 1)),
        ((100, 50), (50, 1), ([0, 5], slice(None), None), [0, 250], (2, 50, 1)),
        ((100, 50, 1), (50, 1, 1), ([0, 5], slice(None), slice(None, None, -1)), [0, 250], (2, 50, 1)),
    ],
)
def test_an_axis_of_length_1_does_not_divide_a_run(shape, strides, key, runs, result):
    """Each element was a run of its own, with 24 bytes of bookkeeping for each byte."""
    places, run_bytes, found, is_element = _selection.plan(shape, strides, 1, key)
    assert (places.tolist(), run_bytes, found, is_element) == (runs, 50, result, False)


@pytest.mark.parametrize("key", [[0, 5], ([5], ..., None), (..., [0, 0]), (slice(None), [1], 0), ([], ..., None)])
def test_selections_of_arrays_with_axes_of_length_1(tmp_path, key):
    array = np.arange(600, dtype=np.uint16).reshape(6, 100, 1)
    array.tofile(tmp_path / "a")
    view = ringmain.open_raw(tmp_path / "a", "<u2", array.shape)
    for axes in [(0, 1, 2), (2, 1, 0), (1, 2, 0)]:
        view_, array_ = view.transpose(axes), array.transpose(axes)
        try:
            expected = array_[key]
        except IndexError:
            with pytest.raises(IndexError):
                view_.read(key)
            continue
        found = view_.read(key)
        assert found.shape == expected.shape and np.array_equal(found, expected)
