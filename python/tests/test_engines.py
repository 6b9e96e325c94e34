"""`Engine`: its options, and the engines that callers share."""

import pickle
import weakref

import numpy as np
import pytest

import ringmain
from ringmain import ContiguousMemmap


def test_an_engine_describes_itself(engine, backend):
    assert engine.backend == backend and f"backend {backend}" in engine.describe()
    for limit in (8192, 20_000, 1 << 20):
        assert ringmain.Engine(backend, memory_limit=limit).memory_limit == limit
    with pytest.raises(ValueError, match="memory_limit"):
        ringmain.Engine(backend, memory_limit=100)
    probe = ringmain.probe()
    assert {entry["name"] for entry in probe["backends"]} >= {"pread", "mmap", "uring"}


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
    assert len({id(view.engine) for view in views}) == 1, "the views share one engine"
    np.testing.assert_array_equal(views[0], np.arange(10))
    assert pickle.loads(pickle.dumps(views[0])).engine is views[0].engine


def test_views_without_an_engine_share_the_default_one(mapped, original):
    one, two = ContiguousMemmap(mapped(original)), ContiguousMemmap(mapped(original, "other"))
    assert one.engine is two.engine
    assert pickle.loads(pickle.dumps(one)).engine is one.engine
    assert weakref.ref(one)() is one


def test_pickles_contain_all_options_of_an_engine():
    given = {"memory_limit": 1 << 20, "depth": 7, "chunk_bytes": 65536, "residency": "release",
             "open_files": 5, "warmth": "leave", "access": "random"}  # fmt: skip
    engine = ringmain.Engine("pread", **given)
    pickled = pickle.dumps(engine)
    assert pickle.loads(pickled) is engine
    del engine
    _, (_, options) = pickle.loads(pickled).__reduce__()
    assert options == {"backend": "pread", **given}
