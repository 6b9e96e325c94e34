"""The real exca: what it wrote is read, and its class and ours do the same."""

import numpy as np
import pytest
from exca.cachedict import handlers
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


def test_what_exca_dumped_is_wrapped_and_read(tmp_path, engine, original):
    arrays = [original, np.arange(7), original[3:9].astype(np.float16), np.zeros((3, 1, 2), ">i2")]
    for loaded, array in zip(dump_and_load(tmp_path, *arrays), arrays, strict=True):
        view = ringmain.ContiguousMemmap(loaded, engine=engine)
        assert view.shape == array.shape
        np.testing.assert_array_equal(np.asarray(view), array)
        np.testing.assert_array_equal(np.asarray(view[1:3]), array[1:3])


def test_the_handler_is_switched_in_one_line(tmp_path, monkeypatch, original):
    monkeypatch.setattr(handlers, "ContiguousMemmap", ringmain.ContiguousMemmap)
    (loaded,) = dump_and_load(tmp_path, original, cache_type="ContiguousMemmapArray")
    assert type(loaded) is ringmain.ContiguousMemmap
    np.testing.assert_array_equal(np.asarray(loaded[4:7]), original[4:7])


def describe(function, view):
    """What came of it: the kind of object and its contents, or the kind of exception."""
    try:
        result = function(view)
        if isinstance(result, (ExcaMemmap, ringmain.ContiguousMemmap)):
            np.asarray(result)
    except Exception as error:
        return type(error)
    kind = type(result).__name__
    if not kind.startswith(("ContiguousMemmap", "ndarray", "float", "int", "tuple", "dtype", "bool", "str")):
        return kind
    if isinstance(result, (tuple, str, bool)):
        return kind, result
    array = np.asarray(result)
    return kind, array.shape, str(array.dtype), array.tobytes()


USES = [use.strip() for use in """
    v.shape; v.dtype; v.ndim; v.size; v.strides; v.itemsize; v.nbytes; len(v); repr(v); str(v)
    v[0]; v[-1]; v[2:5]; v[2:5, :]; v[1, 2]; v[1, 2:5]; v[...]; v[None]; v[..., 0]; v[()]; v[3:3]; v[:, 0:0]
    v[::2]; v[::-1]; v[:, 1]; v[:, 1:3]; v[[0, 1]]; v[np.array([1])]; v[:, [1]]; v[np.zeros(20, bool)]
    v[20]; v[0, 50]; v[0, 0, 0]; v["a"]; v[1.5]; v[..., ...]; v[True]; v[19:25]; v[5:6:3]; v[-5:]
    v.T; v.T[0:1]; v.T[1]; v.reshape(-1); v.reshape(2, -1); v.reshape((50, 20)); v.reshape(3, 3); v.transpose()
    v.transpose(1, 0); v.transpose((1, 0)); v.swapaxes(0, 1); v.squeeze(); v.squeeze(0); v.ravel()
    v.view(np.uint8); v.view("f8"); v.T.reshape(-1); v.T.ravel(); v.T.view("f8"); v[0].view("c16")
    v.mean(); v.sum; v.astype; v.base; v.flat; v.data; v.colour; v.__array_interface__
    np.asarray(v); np.array(v); np.asarray(v, dtype="f8"); np.array(v, dtype="i4", copy=True)
    np.add(v, 1); np.sqrt(v); np.ones(50, "f4") + v; v == v; v != v; hash(v) == hash(v); np.add.reduce(v)
    v + 1; 1 + v; v * v; -v; v < 1; bool(v); float(v); list(v)[3]; v.shape[0]; np.stack([v, v]); np.mean(v)
    """.replace("\n", ";").split(";") if use.strip()]


@pytest.mark.parametrize("use", USES)
def test_it_does_what_excas_does(tmp_path, original, use):
    (loaded,) = dump_and_load(tmp_path, original)
    ours, theirs = ringmain.ContiguousMemmap(loaded), ExcaMemmap(loaded)
    function = eval(f"lambda v: {use}", {"np": np})
    assert describe(function, ours) == describe(function, theirs)
