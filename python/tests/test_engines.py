"""`Engine`: its options, and the engines that callers share."""

import pickle
import subprocess
import sys
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


def test_pickles_contain_all_options_of_an_engine(tmp_path):
    given = {"memory_limit": 1 << 20, "depth": 7, "chunk_bytes": 65536, "residency": "release",
             "open_files": 5, "warmth": "leave", "access": "random", "threads": 2, "profile": "off",
             "disk_cache": tmp_path / "cache", "disk_cache_limit": 1 << 30}  # fmt: skip
    engine = ringmain.Engine("pread", **given)
    pickled = pickle.dumps(engine)
    assert pickle.loads(pickled) is engine
    del engine
    _, (_, options) = pickle.loads(pickled).__reduce__()
    options["profile"] = str(options["profile"])
    assert options == {"backend": "pread", **given}


def test_reads_are_recorded(tmp_path):
    path, trace = tmp_path / "data.npy", tmp_path / "epoch.trace"
    np.save(path, np.arange(1000))
    engine = ringmain.Engine("pread", record=trace)
    view = ringmain.open_npy(path, engine=engine)
    np.testing.assert_array_equal(view[10:20], np.arange(10, 20))
    # A process that unpickles the view does not record, and does not fail because the file exists.
    unpickled = "import pickle, sys; print(pickle.load(sys.stdin.buffer)[3])"
    child = subprocess.run([sys.executable, "-c", unpickled], input=pickle.dumps(view), capture_output=True, timeout=120)
    assert (child.returncode, child.stdout) == (0, b"3\n"), child.stderr
    status = engine.finish_recording()
    assert (status["path"], status["stopped"]) == (trace, None)
    lines = trace.read_text().splitlines()
    assert lines[0] == "ringmain recording 2"
    assert lines[-1].split() == ["e", str(status["batches"]), str(status["reads"]), str(status["bytes"])]
    assert [line for line in lines if line.startswith("b") and line.endswith(f" {128 + 80} 80")]
    with pytest.raises(FileExistsError, match="already exists"):
        ringmain.Engine("pread", record=trace)
    with pytest.raises(ValueError, match="record"):
        ringmain.Engine("pread").finish_recording()


def test_a_recording_is_complete_when_the_program_ends(tmp_path):
    path, trace = tmp_path / "data.npy", tmp_path / "epoch.trace"
    np.save(path, np.arange(1000))
    program = (
        "import ringmain, sys\n"
        "view = ringmain.open_npy(sys.argv[1], engine=ringmain.Engine('pread', record=sys.argv[2]))\n"
        "view[3]\n"
        "sys.modules['keeps the view'] = view\n"
    )
    subprocess.run([sys.executable, "-c", program, path, trace], check=True, timeout=120)
    assert trace.read_text().splitlines()[-1].startswith("e ")


def test_a_profile_can_be_named(tmp_path):
    path = tmp_path / "data.npy"
    np.save(path, np.arange(1000))
    np.testing.assert_array_equal(ringmain.open_npy(path, engine=ringmain.Engine(profile="off"))[:3], range(3))
    unusable = tmp_path / "unusable.toml"
    unusable.write_text("no profile")
    assert "unusable.toml" in ringmain.Engine(profile=unusable).describe()


def test_a_named_profile_must_exist(tmp_path):
    """The engine ignored a missing profile, also one whose name was misspelt."""
    with pytest.raises(FileNotFoundError, match="ringmain recommend --save") as caught:
        ringmain.Engine(profile=tmp_path / "missing.toml")
    assert caught.value.filename == str(tmp_path / "missing.toml")


def test_errors_about_types_name_the_argument(tmp_path):
    for options, message in [
        ({"backend": 3}, "backend must be a str, not int"),
        ({"depth": "deep"}, "depth must be an int, not str"),
        ({"warmth": 3}, "warmth must be a str, not int"),
        ({"profile": 3}, "expected str, bytes or os.PathLike object, not int"),
    ]:
        with pytest.raises(TypeError, match=message):
            ringmain.Engine(**options)


def test_small_batches_are_timed_only_sometimes(tmp_path):
    """The help promised a time after the first batch."""
    np.save(tmp_path / "data.npy", np.arange(1000))
    engine = ringmain.Engine("pread")
    view = ringmain.open_npy(tmp_path / "data.npy", engine=engine)
    ringmain.read_many([view[at : at + 1] for at in range(8)])
    assert engine.stats()["batch_seconds"]["max"] > 0
    text = " ".join(ringmain.Engine.stats.__doc__.split())
    assert "batches of eight reads or more and one in sixteen of the smaller ones" in text
