"""`ringmain.exca`: exca's arrays as views, and exca's info files."""

import importlib.util
import json
import multiprocessing
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from exca.cachedict import CacheDict, contiguous, handlers
from exca.cachedict.dumpcontext import DumpContext

import ringmain

try:
    import torch  # exca registers its handler of tensors at the first dump after this
except ImportError:
    torch = None

View = ringmain.ContiguousMemmap


@pytest.fixture
def original():
    return np.random.default_rng(5).random((20, 50)).astype(np.float32)


@pytest.fixture(autouse=True)
def restored():
    """Every test must leave exca as it was."""
    before = state_of_exca()
    yield
    assert state_of_exca() == before


def state_of_exca():
    """Everything that an installation changes, with the order of the tables."""
    DumpContext._find_handler(int)  # registers the handlers of packages that are imported
    modules = [contiguous.ContiguousMemmap, handlers.ContiguousMemmap]
    return list(DumpContext.HANDLERS.items()), list(DumpContext.TYPE_DEFAULTS.items()), modules


def dump(folder, array, cache_type):
    context = DumpContext(folder)
    with context:
        return context, context.dump(array, cache_type=cache_type)


@pytest.mark.parametrize("cache_type", ["MemmapArray", "ContiguousMemmapArray", None])
def test_arrays_of_exca_are_loaded_as_views(tmp_path, original, cache_type):
    context, info = dump(tmp_path, original, cache_type)
    before = type(context.load(info))
    with ringmain.exca.installed("pread"):
        loaded = context.load(info)
        assert type(loaded) is View and loaded.engine.backend == "pread"
        np.testing.assert_array_equal(loaded, original)
        np.testing.assert_array_equal(loaded[4:7], original[4:7])
    assert type(context.load(info)) is before is not View
    np.testing.assert_array_equal(loaded, original)  # views stay usable


def test_an_installation_reads_what_exca_wrote_and_the_other_way_round(tmp_path):
    arrays = [np.arange(7), np.ones((3, 1, 2), ">i2"), np.array(2.5), np.array(["a", "bcd"])]
    for number, array in enumerate(arrays):
        context, written_by_exca = dump(tmp_path / f"{number}", array, "MemmapArray")
        with ringmain.exca.installed():
            loaded = context.load(written_by_exca)
            assert type(loaded) is View and (loaded.dtype, loaded.shape) == (array.dtype, array.shape)
            np.testing.assert_array_equal(loaded, array)
            context, written_by_us = dump(tmp_path / f"again-{number}", loaded, "MemmapArray")
        np.testing.assert_array_equal(context.load(written_by_us), array)


@pytest.mark.parametrize("cache_type", ["MemmapArray", "ContiguousMemmapArray", "Auto", None])
def test_loaded_views_can_be_dumped_again(tmp_path, original, cache_type):
    context, info = dump(tmp_path / "one", original, "MemmapArray")
    with ringmain.exca.installed():
        context, info = dump(tmp_path / "two", context.load(info)[3:9], cache_type)
        assert info["#type"] in ("MemmapArray", "ContiguousMemmapArray")
        loaded = context.load(info)
        assert type(loaded) is View
    np.testing.assert_array_equal(loaded, original[3:9])
    np.testing.assert_array_equal(context.load(info), original[3:9])


@pytest.mark.parametrize("keep_in_ram", [False, True])
def test_a_cache_dict_holds_views(tmp_path, original, keep_in_ram):
    with ringmain.exca.installed():
        cache = CacheDict(tmp_path, keep_in_ram=keep_in_ram)
        with cache.write():
            cache["plain"] = original
            plain = cache["plain"]
            cache["nested"] = {"x": original[:3], "label": "text"}
            cache["view"] = cache["plain"][5:9]
        again = CacheDict(tmp_path, keep_in_ram=keep_in_ram)
        assert [type(again["plain"]), type(again["nested"]["x"]), type(again["view"])] == [View] * 3
        assert again["nested"]["label"] == "text"
        np.testing.assert_array_equal(plain, original)  # exca has appended to its file since
    np.testing.assert_array_equal(again["plain"], original)
    np.testing.assert_array_equal(again["view"], original[5:9])


def test_install_and_uninstall_can_be_repeated(tmp_path, original):
    context, info = dump(tmp_path, original, "MemmapArray")
    before = state_of_exca()
    ringmain.exca.uninstall()
    assert state_of_exca() == before
    ringmain.exca.install()
    installed = state_of_exca()
    assert installed != before
    ringmain.exca.install("pread")
    assert state_of_exca() == installed, "a second call only replaces the engine"
    assert context.load(info).engine.backend == "pread"
    ringmain.exca.uninstall()
    ringmain.exca.uninstall()
    assert state_of_exca() == before


def test_blocks_can_be_nested_and_end_with_an_error(tmp_path, original):
    context, info = dump(tmp_path, original, "MemmapArray")
    backend = lambda: context.load(info).engine.backend
    with pytest.raises(KeyError), ringmain.exca.installed("pread"):
        with ringmain.exca.installed("mmap"):
            assert backend() == "mmap"
        assert backend() == "pread"
        raise KeyError
    ringmain.exca.install("mmap")
    with ringmain.exca.installed("pread"):
        ringmain.exca.uninstall()
        assert backend() == "pread", "the block goes on"


def test_what_was_set_by_hand_comes_back(tmp_path, original):
    """Before there was `install`, programs set these two by hand."""
    handlers.ContiguousMemmap, theirs = View, handlers.ContiguousMemmap
    DumpContext.TYPE_DEFAULTS[View] = handlers.ContiguousMemmapArray
    try:
        before = state_of_exca()
        with ringmain.exca.installed():
            assert DumpContext.TYPE_DEFAULTS[View] is not handlers.ContiguousMemmapArray
        assert state_of_exca() == before
    finally:
        handlers.ContiguousMemmap = theirs
        del DumpContext.TYPE_DEFAULTS[View]


def test_what_others_replace_meanwhile_is_left_alone():
    class Other(handlers.MemmapArray):
        pass

    theirs = DumpContext.HANDLERS["MemmapArray"]
    try:
        with ringmain.exca.installed():
            DumpContext.HANDLERS["MemmapArray"] = Other
        assert DumpContext.HANDLERS["MemmapArray"] is Other
    finally:
        DumpContext.HANDLERS["MemmapArray"] = theirs


def test_blocks_of_several_threads_overlap(tmp_path, original):
    """The first block ends while the second one goes on."""
    context, info = dump(tmp_path, original, "MemmapArray")
    inside, may_end = threading.Event(), threading.Event()

    def first():
        with ringmain.exca.installed("mmap"):
            inside.set()
            may_end.wait(300)

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(300)
    with ringmain.exca.installed("pread"):
        may_end.set()
        thread.join(300)
        assert context.load(info).engine.backend == "pread"
    assert type(context.load(info)) is not View


def test_a_bad_engine_is_refused_at_once():
    for engine, error, message in [("fast", ValueError, "fast"), (3, TypeError, "engine must be an Engine")]:
        before = state_of_exca()
        with pytest.raises(error, match=message):
            ringmain.exca.install(engine)
        assert state_of_exca() == before


def test_other_handlers_still_get_what_they_load(tmp_path):
    """exca's handler of tensors calls `MemmapArray.__load_from_info__` and copies the result."""
    if torch is None:
        pytest.skip("torch is not installed")
    tensor = torch.arange(12.0).reshape(3, 4)
    context, info = dump(tmp_path, tensor, "TorchTensor")
    loaded = handlers.MemmapArray.__load_from_info__(context, **{key: info[key] for key in info if key != "#type"})
    with ringmain.exca.installed():
        assert type(loaded) is np.memmap
        again = context.load(info)
        assert isinstance(again, torch.Tensor) and torch.equal(again, tensor)
        again += 1  # its memory is its own
        assert torch.equal(context.load(info), tensor)


FORKING = """
import os, sys, threading
import numpy as np
from exca.cachedict.dumpcontext import DumpContext
import ringmain

context = DumpContext(sys.argv[1])
with context:
    info = context.dump(np.arange(5.0), cache_type="MemmapArray")
is_over = threading.Event()

def switch():
    while not is_over.is_set():
        with ringmain.exca.installed("pread"):
            pass

thread = threading.Thread(target=switch)
thread.start()
for _ in range(50):
    child = os.fork()
    if child == 0:
        ringmain.exca.install("pread")
        is_right = isinstance(context.load(info), ringmain.ContiguousMemmap) and np.sum(context.load(info)) == 10
        ringmain.exca.uninstall()
        os._exit(0 if is_right else 1)
    assert os.waitpid(child, 0)[1] == 0
is_over.set()
thread.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_can_install_whatever_its_parent_was_doing(tmp_path):
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKING, tmp_path], check=True, timeout=300)


def summed(view, folder, info):
    """Runs in a worker, which gets the view as a pickle and has installed nothing."""
    return float(np.sum(view)), type(DumpContext(folder).load(info)).__name__


def test_views_go_to_spawned_workers(tmp_path, original):
    context, info = dump(tmp_path, original, "MemmapArray")
    with ringmain.exca.installed(), multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply_async(summed, (context.load(info), tmp_path, info)).get(300)
    assert found == (float(np.sum(original)), "memmap")


def run_without_exca(tmp_path, program):
    """Runs a program in which `import exca` finds only what is in the folder."""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, env=environment)


def test_a_missing_or_old_exca_is_an_error_that_says_what_to_install(tmp_path):
    missing = "import sys; sys.modules['exca'] = None; import ringmain; ringmain.exca.uninstall(); ringmain.exca.install()"
    done = run_without_exca(tmp_path, missing)
    assert "ImportError: ringmain.exca needs the package exca" in done.stderr, done.stderr
    # Until version 0.5.14, exca.cachedict was a module with other classes.
    (tmp_path / "exca").mkdir()
    (tmp_path / "exca" / "__init__.py").touch()
    (tmp_path / "exca" / "cachedict.py").write_text("class CacheDict: pass\n")
    done = run_without_exca(tmp_path, "import ringmain; ringmain.exca.install()")
    assert "install exca 0.5.17 or newer" in done.stderr, done.stderr


def test_an_exca_that_stores_arrays_in_another_way_is_refused(monkeypatch):
    def load(cls, ctx, filename, offset, shape, dtype, compression):
        """As a future version may have it."""

    monkeypatch.setattr(handlers.MemmapArray, "__load_from_info__", classmethod(load))
    before = state_of_exca()
    with pytest.raises(ImportError, match="loads from ctx, filename, offset, shape, dtype, compression; install exca"):
        ringmain.exca.install()
    assert state_of_exca() == before


# They assert that `MemmapArray` loads an np.ndarray: that it shares its memory with the file, has arithmetic, is an
# instance of that class, or closes the file. Views do not, by design.
IMPOSSIBLE = {
    "test_contiguous.py": ["test_no_shared_memory_with_memmap"],
    "test_cachedict.py": ["test_array_cache", "test_data_dump_suffix[data0]", "test_memmap_file_descriptor_lifecycle",
                          "test_specialized_dump[True-data5-MemmapArray]", "test_specialized_dump[False-data5-MemmapArray]"],
}  # fmt: skip
# They fail now and then, with or without us.
UNSTEADY = [
    # They need several threads with different ids, which a pool of threads does not always have.
    "test_info_jsonl", "test_orphaned_data_file_cleanup",
    # They take for granted that no process has the number 2^20 + 7, which 64-bit systems do give to processes.
    "test_inflight_lifecycle", "test_wait_for_inflight", "test_is_alive[liveness3",
]  # fmt: skip
NEEDED = {"test_cachedict.py": ["torch", "nibabel", "pandas", "psutil"], "test_handlers.py": ["torch", "mne", "pybv", "pandas"]}


@pytest.mark.parametrize("name", ["test_contiguous.py", "test_dumpcontext.py", "test_inflight.py", *NEEDED])
def test_excas_own_tests_pass(tmp_path, name):
    absent = [module for module in NEEDED.get(name, []) if importlib.util.find_spec(module) is None]
    if absent:
        pytest.skip(f"exca's {name} needs {' and '.join(absent)}")
    tests = Path(contiguous.__file__).with_name(name)
    (tmp_path / "installs.py").write_text("import ringmain\nringmain.exca.install()\n")
    left_out = [f"--deselect={name}::{test}" for test in [*IMPOSSIBLE.get(name, []), *UNSTEADY]]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "installs", "-p", "no:cacheprovider", "--rootdir", tests.parent,
               *left_out, tests]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path,
                          env={**os.environ, "PYTHONPATH": str(tmp_path)})  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 5, done.stdout


# Info files, without exca


def test_an_array_is_opened_by_its_info(tmp_path, original):
    for cache_type in ["MemmapArray", "ContiguousMemmapArray"]:
        _, info = dump(tmp_path, original, cache_type)
        view = ringmain.open_exca(tmp_path, info, engine="pread")
        assert view.engine.backend == "pread"
        np.testing.assert_array_equal(view, original)
        del info["#type"]
        np.testing.assert_array_equal(ringmain.open_exca(str(tmp_path), info), original)


def test_an_info_file_is_opened_as_a_dict_of_views(tmp_path, original):
    cache = CacheDict(tmp_path)
    texts = np.array(["a", "bcd"])
    with cache.write():
        for key, value in {"first": original, "text": "no array", "texts": texts, "gone": original + 1}.items():
            cache[key] = value
        del cache["gone"]
    (info_file,) = tmp_path.glob("*-info.jsonl")
    for name in (info_file.name, info_file):
        views = ringmain.open_exca(tmp_path, name)
        assert list(views) == ["first", "texts"]
        np.testing.assert_array_equal(views["first"], original)
        np.testing.assert_array_equal(views["texts"], texts)
    # A line that another process is writing is not an entry yet.
    with open(info_file, "a") as file:
        file.write('{"filename":"data/x.da')
    assert list(ringmain.open_exca(tmp_path, info_file)) == ["first", "texts"]


def test_bad_infos_are_errors_that_say_why(tmp_path, original):
    _, info = dump(tmp_path, original, "MemmapArray")
    for change, error, message in [
        ({"filename": "absent.data"}, FileNotFoundError, "absent.data"),
        ({"offset": 10_000}, ValueError, "not in the file"),
        ({"shape": [20, 51]}, ValueError, "not in the file"),
        ({"dtype": "float33"}, TypeError, "float33"),
        ({"dtype": "object"}, TypeError, "object"),
        ({"#type": "Pickle"}, ValueError, "type 'Pickle', not an array"),
    ]:
        with pytest.raises(error, match=message):
            ringmain.open_exca(tmp_path, {**info, **change})
    with pytest.raises(ValueError, match="has no 'offset'"):
        ringmain.open_exca(tmp_path, {key: info[key] for key in info if key != "offset"})
    line = json.dumps({**info, "#key": "one"})
    for text, message in [("{\n", "line 1 is not JSON"), (f"{line}\n[]\n", "line 2"), ("metadata={}\n", "exca 0.5.14 or older")]:
        (tmp_path / "bad-info.jsonl").write_text(text)
        with pytest.raises(ValueError, match=message):
            ringmain.open_exca(tmp_path, "bad-info.jsonl")
    with pytest.raises(FileNotFoundError):
        ringmain.open_exca(tmp_path, "absent-info.jsonl")
