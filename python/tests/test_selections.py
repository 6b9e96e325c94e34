"""Random selections, against NumPy."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ringmain

SHAPE = (5, 1, 7, 4)
ARRAY = np.arange(np.prod(SHAPE), dtype=np.int32).reshape(SHAPE)
ORDERS = [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)]


@pytest.fixture(scope="module")
def views(tmp_path_factory):
    path = tmp_path_factory.mktemp("selections") / "array"
    path.write_bytes(b"odd" + ARRAY.tobytes())
    engine = ringmain.Engine("auto", memory_limit=64 << 10)
    view = ringmain.open_raw(path, "<i4", SHAPE, 3, engine=engine)
    return Views({order: (view.transpose(order), ARRAY.transpose(order)) for order in ORDERS})


class Views(dict):
    """A view and an array for each order of the axes; not to be printed for each example."""

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
        | st.integers(0, 2**35 - 1).map(lambda bits: np.array([bits >> at & 1 == 1 for at in range(35)]).reshape(5, 7))
    )


def keys(parts):
    return parts | st.lists(parts, max_size=5).map(tuple)


def outcome(select):
    try:
        return np.asarray(select())
    except (IndexError, ValueError) as error:
        return IndexError if isinstance(error, IndexError) else ValueError


def check(views, order, key):
    view, array = views[order]
    expected, got = outcome(lambda: array[key]), outcome(lambda: view.read(key))
    if isinstance(expected, type):
        assert got is expected
        return
    if got is IndexError and expected.size == 0:
        return  # NumPy ignores wrong indices where nothing is selected, and warns that it will not
    assert got.shape == expected.shape and got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


@pytest.mark.filterwarnings("ignore:Out of bound index found:DeprecationWarning")
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.sampled_from(ORDERS), key=keys(basic()))
def test_basic_selections(views, order, key):
    check(views, order, key)
    view, array = views[order]
    expected = outcome(lambda: array[key])
    if isinstance(expected, type):
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
@given(order=st.sampled_from(ORDERS), key=keys(basic() | lists()))
def test_fancy_selections(views, order, key):
    check(views, order, key)


@pytest.mark.parametrize("index", [2**62, -(2**62), 5, -6, 2**63, np.uint64(2**63), 10**30])
def test_numbers_far_off_are_index_errors(views, index):
    for key in ([index], [0, index], index, (slice(None, None, 2), index), (0, [index])):
        with pytest.raises(IndexError):
            views[ORDERS[0]][0].read(key)


def test_a_selection_of_many_parts(tmp_path, engine):
    """Larger than what is read before signals are looked for."""
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
