"""Compares with the real exca: reads files that exca wrote, and checks that both classes behave alike."""

import numpy as np
import pytest
from exca.cachedict.contiguous import ContiguousMemmap as ExcaMemmap
from exca.cachedict.dumpcontext import DumpContext

import ringmain


@pytest.fixture
def original():
    return np.random.default_rng(2).random((20, 50)).astype(np.float32)


def dump_and_load(folder, *arrays, cache_type="MemmapArray"):
    context = DumpContext(folder)
    with context:
        infos = [context.dump(array, cache_type=cache_type) for array in arrays]
    return [context.load(info) for info in infos]


def test_arrays_that_exca_dumped_are_wrapped_and_read(tmp_path, engine, original):
    arrays = [original, np.arange(7), original[3:9].astype(np.float16), np.zeros((3, 1, 2), ">i2")]
    for loaded, array in zip(dump_and_load(tmp_path, *arrays), arrays, strict=True):
        view = ringmain.ContiguousMemmap(loaded, engine=engine)
        assert view.shape == array.shape
        np.testing.assert_array_equal(np.asarray(view), array)
        np.testing.assert_array_equal(np.asarray(view[1:3]), array[1:3])


# Phrases that the messages of both classes must have in common.
WORDS = ["fancy indexing", "Non-contiguous", "does not support", "has no attribute", "does not support ufunc", "memmap-backed"]


def describe(function, view):
    """Returns the type and the contents of the result, or the type of the exception and the phrases in
    its message."""
    try:
        result = function(view)
        if isinstance(result, (ExcaMemmap, ringmain.ContiguousMemmap)):
            np.asarray(result)
    except Exception as error:
        return type(error), [word for word in WORDS if word in str(error)]
    kind = type(result).__name__
    if not kind.startswith(("ContiguousMemmap", "ndarray", "float", "int", "tuple", "dtype", "bool", "str")):
        return kind
    if isinstance(result, (tuple, str, bool)):
        return kind, result
    array = np.asarray(result)
    return kind, array.shape, str(array.dtype), array.tobytes()


USES = [use.strip() for use in """
    v.shape; v.dtype; v.ndim; v.size; v.strides; v.itemsize; v.nbytes; len(v); str(v)
    v[0]; v[-1]; v[2:5]; v[2:5, :]; v[1, 2]; v[1, 2:5]; v[...]; v[None]; v[..., 0]; v[()]; v[3:3]; v[:, 0:0]
    v[::2]; v[::-1]; v[:, 1]; v[:, 1:3]; v[[0, 1]]; v[np.array([1])]; v[:, [1]]; v[np.zeros(20, bool)]
    v[20]; v[0, 50]; v[0, 0, 0]; v["a"]; v[1.5]; v[..., ...]; v[True]; v[19:25]; v[5:6:3]; v[-5:]
    v.T; v.T[0:1]; v.T[1]; v.reshape(-1); v.reshape(2, -1); v.reshape((50, 20)); v.reshape(3, 3); v.transpose()
    v.transpose(1, 0); v.transpose((1, 0)); v.swapaxes(0, 1); v.squeeze(); v.squeeze(0); v.ravel()
    v.view(np.uint8); v.view("f8"); v.T.reshape(-1); v.T.ravel(); v.T.view("f8"); v[0].view("c16")
    v.ravel("K"); v.ravel("A"); v.ravel("F"); v.reshape(2, -1, order="A"); v.reshape(2, -1, copy=False); v.reshape(None)
    v.T.ravel("F"); v.T.ravel("K"); v.T.reshape(-1, order="F"); v.view(np.ndarray); v.view(type=np.ndarray); v.squeeze((0, 0))
    v.squeeze(2); v.swapaxes(0, 5); v.transpose(0, 0); v.reshape(-2, -500); list(reversed(v))[3]; v.reshape([1] * 64 + [1000])
    v.mean(); v.sum; v.astype; v.base; v.flat; v.data; v.colour
    np.asarray(v); np.array(v); np.asarray(v, dtype="f8"); np.array(v, dtype="i4", copy=True)
    np.add(v, 1); np.sqrt(v); np.ones(50, "f4") + v; v == v; v != v; hash(v) == hash(v); np.add.reduce(v)
    v + 1; 1 + v; v * v; -v; v < 1; bool(v); float(v); list(v)[3]; v.shape[0]; np.stack([v, v]); np.mean(v)
    """.replace("\n", ";").split(";") if use.strip()]


# Uses for which our messages say more than exca's: it leaves them to Python or NumPy.
OURS = {"v[True]": "fancy indexing", **dict.fromkeys(["v + 1", "1 + v", "v * v", "-v", "v < 1"], "does not support ufunc")}


# Uses that exca's class answers without looking at the elements, so that its answer differs from NumPy's.
REFUSED = {"bool(v)": "truth value", "v != v": "does not support ufunc"}


@pytest.mark.parametrize("use", USES)
def test_a_view_behaves_as_excas_class(tmp_path, original, use):
    (loaded,) = dump_and_load(tmp_path, original)
    ours, theirs = ringmain.ContiguousMemmap(loaded), ExcaMemmap(loaded)
    function = eval(f"lambda v: {use}", {"np": np})
    if use in OURS:
        with pytest.raises(TypeError, match=OURS[use]):
            function(ours)
        with pytest.raises(TypeError):
            function(theirs)
    elif use in REFUSED:
        with pytest.raises(TypeError, match=REFUSED[use]):
            function(ours)
        assert isinstance(function(theirs), bool)
    else:
        assert describe(function, ours) == describe(function, theirs)


@pytest.mark.parametrize("part", ["m[:, 3]", "m[::2]", "m[3:9, 5:20]", "m[:, 3].reshape(4, 5)", "m[4:6].T"])
@pytest.mark.parametrize(
    "use",
    ["np.asarray(v)", "v.shape", "v.strides", "v[0]", "v[0:1]", "v[1:3]", "v[3:3]", "v.T", "v[:1].ravel()",
     "len(v)", "v.view('u1')", "v.swapaxes(0, -1)", "v[::2]"],
)
def test_a_view_with_gaps_behaves_as_excas_class(tmp_path, original, part, use):
    (loaded,) = dump_and_load(tmp_path, original)
    array = eval(part, {"m": loaded})
    function = eval(f"lambda v: {use}", {"np": np})
    assert describe(function, ringmain.ContiguousMemmap(array)) == describe(function, ExcaMemmap(array))
