"""Compares ringmain.safetensors with the package safetensors."""

import os
import importlib
import json
import struct
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from bars import Bar
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ringmain
from ringmain import safetensors as ours

SIZES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1, "F8_E4M3FNUZ": 1,
    "F8_E5M2FNUZ": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4,
    "C64": 8, "F64": 8, "I64": 8, "U64": 8,
}  # fmt: skip


def write(path, tensors, metadata=None):
    """Writes `name: (dtype, shape, bytes)`."""
    header, at = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(data for _, _, data in tensors.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


@pytest.fixture
def every(tmp_path):
    """A file with a tensor of every type, scalars and empty ones."""
    random = np.random.default_rng(1)
    tensors = {}
    for dtype, size in SIZES.items():
        data = random.integers(0, 2 if dtype == "BOOL" else 100, 24 * size, dtype=np.uint8)
        tensors[f"z.{dtype}"] = (dtype, [2, 3, 4], data.tobytes())
    tensors["scalar"] = ("F32", [], struct.pack("<f", 2.5))
    tensors["empty"] = ("I16", [0, 3], b"")
    tensors["large"] = ("F32", [300, 1000], random.random(300_000, dtype=np.float32).tobytes())
    return write(tmp_path / "every.safetensors", tensors, {"format": "np", "a": "b"})


def same(a, b):
    assert type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape
    assert a.tobytes() == b.tobytes()


def test_every_type_is_read_as_by_the_package(every, engine):
    found = ours.load_file(every, engine=engine)
    with safetensors.safe_open(every, "np") as theirs:
        assert list(found) == theirs.offset_keys()
        with ours.safe_open(every, "np", engine=engine) as file:
            assert file.keys() == theirs.keys()
            assert file.offset_keys() == theirs.offset_keys()
            assert file.metadata() == theirs.metadata()
            compared = 0
            for name in theirs.keys():
                try:
                    expected = theirs.get_tensor(name)
                except AttributeError:  # the package has no such type for NumPy
                    expected = np.frombuffer(found[name].tobytes(), found[name].dtype)
                    expected = expected.reshape(2, 3, 4)
                else:
                    compared += 1
                same(file.get_tensor(name), expected)
                same(found[name], expected)
                assert found[name].flags.writeable
                part, known = file.get_slice(name), theirs.get_slice(name)
                assert part.get_shape() == known.get_shape()
                assert part.get_dtype() == known.get_dtype()
            assert compared >= 15
    assert found["z.BF16"].dtype == ml_dtypes.bfloat16


def test_a_bar_counts_the_tensors(every, monkeypatch):
    import ringmain._progress

    bars = []

    def bar(total, unit):
        assert (total, unit) == (expected, "tensors")
        bars.append(Bar())
        return bars[-1]

    monkeypatch.setattr(ringmain._progress, "bar", bar)
    expected = len(SIZES) + 3
    found = ours.load_file(every, framework="np", progress=True)
    assert (bars[-1].n, bars[-1].is_closed) == (len(found), True)
    expected = 2
    with ours.safe_open(every, "np") as file:
        file.get_tensors(["scalar", "large"], progress=True)
        assert (bars[-1].n, bars[-1].is_closed) == (2, True)

        # An error of the bar ends the load, and closes the bar.
        monkeypatch.setattr(Bar, "update", lambda self, more: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            file.get_tensors(["scalar", "large"], progress=True)
        assert bars[-1].is_closed
        monkeypatch.setattr(ringmain._progress, "bar", lambda total, unit: None)  # without tqdm
        assert len(file.get_tensors(["scalar", "large"], progress=True)) == 2


@pytest.mark.parametrize("framework", ["np", "pt"])
def test_load_file_returns_the_same_as_the_package(every, tmp_path, framework):
    if framework == "pt":
        pytest.importorskip("torch", reason="torch is not installed")
        from ringmain.safetensors.torch import load_file
        from safetensors.torch import load_file as their_load_file
    else:
        from ringmain.safetensors.numpy import load_file
        from safetensors.numpy import load_file as their_load_file

        # The package cannot load 8-bit floats as NumPy arrays.
        tensors = ours.load_file(every)
        kept = {name: one for name, one in tensors.items() if "F8" not in name}
        every = tmp_path / "kept.safetensors"
        safetensors.numpy.save_file(kept, every)
    found, expected = load_file(every), their_load_file(every)
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape, name
        if framework == "pt":
            import torch

            tensor, found[name] = (
                one.contiguous().reshape(-1).view(torch.uint8).numpy()
                for one in (tensor, found[name])
            )
        assert found[name].tobytes() == tensor.tobytes()


def test_torch_tensors_use_the_memory_that_was_read_into(every, engine):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    with ours.safe_open(every, "pt", engine=engine) as file:
        with safetensors.safe_open(every, "pt") as theirs:
            for name in theirs.keys():
                mine, known = file.get_tensor(name), theirs.get_tensor(name)
                assert mine.dtype == known.dtype and mine.shape == known.shape
                assert mine.device == known.device
                as_bytes = [
                    one.reshape(-1).view(torch.uint8).numpy().tobytes() for one in (mine, known)
                ]
                assert as_bytes[0] == as_bytes[1]
            mine, known = file.get_slice("z.BF16"), theirs.get_slice("z.BF16")
            assert torch.equal(mine[1, :, 1:3], known[1, :, 1:3])
        large = file.get_tensor("large")
    large += 1  # the file is closed, but the tensor belongs to the caller
    assert float(large[0, 0]) == float(ours.load_file(every)["large"][0, 0]) + 1
    on_meta = ours.load_file(every, "meta", framework="pt")
    assert on_meta["large"].device.type == "meta"


KEYS = [
    np.s_[0], np.s_[-1], np.s_[:], np.s_[...], np.s_[()], np.s_[0:1, 1], np.s_[::2], np.s_[1],
    np.s_[..., 0], np.s_[0, 0, 0], np.s_[:, 1:2, 3], np.s_[1:, ..., 2:4], np.int64(1),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("dtype", ["F32", "I8", "C64", "BF16"])
def test_slices_are_read_as_by_the_package(every, engine, dtype, key):
    with safetensors.safe_open(every, "np") as theirs:
        expected = theirs.get_slice(f"z.{dtype}")[key]
    with ours.safe_open(every, "np", engine=engine) as file:
        found = file.get_slice(f"z.{dtype}")[key]
    assert isinstance(found, np.ndarray)
    same(found, expected)


def test_slices_that_the_package_does_not_support(every):
    with ours.safe_open(every, "np") as file:
        whole, part = file.get_tensor("large"), file.get_slice("large")
        for key in [
            np.s_[::-1], np.s_[[3, 1, 1]], np.s_[:, [0, 999]], np.s_[-3:], np.s_[5:2], np.s_[400:],
            np.s_[None, 4], np.s_[10:200:7, ::-3],
        ]:  # fmt: skip
            same(part[key], np.ascontiguousarray(whole[key]))
        same(file.get_slice("scalar")[...], file.get_tensor("scalar"))
        assert file.get_slice("empty")[:].shape == (0, 3)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_slice_is_read_as_by_numpy(every, data):
    with ours.safe_open(every, "np") as file:
        whole = file.get_tensor("z.I32")
        key = tuple(data.draw(st.slices(len_)) for len_ in data.draw(st.just(whole.shape)))
        same(file.get_slice("z.I32")[key], np.ascontiguousarray(whole[key]))


def kinds(action):
    """Returns the exceptions that both packages raise for the same action."""
    raised = []
    for package in (safetensors, ours):
        with pytest.raises(Exception) as caught:
            action(package)
        raised.append(caught.value)
    return raised


def test_errors_have_the_types_of_the_package(every, tmp_path):
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"\xff" * 100)
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(every.read_bytes()[:-1])
    for action in [
        lambda package: package.safe_open(bad, "np"),
        lambda package: package.safe_open(cut, "np"),
        lambda package: package.safe_open(every, "np").get_tensor("none"),
        lambda package: package.safe_open(every, "np").get_slice("none"),
        lambda package: package.safe_open(every, "np").get_slice("large")[300],
        lambda package: package.safe_open(every, "np").get_slice("large")[0, 0, 0],
        lambda package: package.safe_open(every, "none"),
        lambda package: package.safe_open(every, "np", device="none"),
    ]:
        theirs, mine = kinds(action)
        assert isinstance(theirs, safetensors.SafetensorError)
        assert isinstance(mine, safetensors.SafetensorError), repr(mine)
    assert ours.SafetensorError is safetensors.SafetensorError
    theirs, mine = kinds(lambda package: package.safe_open(tmp_path / "none", "np"))
    assert type(theirs) is type(mine) is FileNotFoundError
    assert mine.filename == str(tmp_path / "none") and mine.errno == 2
    theirs, mine = kinds(lambda package: package.safe_open(every))
    assert type(theirs) is type(mine) is TypeError
    theirs, mine = kinds(lambda package: package.safe_open(every, "np").get_tensor(3))
    assert type(theirs) is type(mine) is TypeError


def test_errors_are_also_python_exceptions(every, tmp_path):
    with ours.safe_open(every, "np") as file:
        with pytest.raises(KeyError, match="did you mean `z.F32`"):
            file.get_tensor("F32")
        with pytest.raises(IndexError):
            file.get_slice("large")[300]
    with pytest.raises(ours.SafetensorError, match="closed"):
        file.keys()
    (tmp_path / "bad.safetensors").write_bytes(b"{}")
    with pytest.raises(ValueError, match=r"bad\.safetensors"):
        ours.load_file(tmp_path / "bad.safetensors")


def test_types_that_numpy_does_not_have_are_errors(tmp_path, monkeypatch):
    path = write(
        tmp_path / "f4.safetensors",
        {"f4": ("F4", [2, 4], bytes(range(4))), "bf": ("BF16", [2], bytes(4))},
    )
    with ours.safe_open(path, "np") as file:
        with pytest.raises(ValueError, match="F4"):
            file.get_tensor("f4")
        with pytest.raises(ValueError, match="F4"):
            file.get_slice("f4")[0]
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with ours.safe_open(path, "np") as file:
        with pytest.raises(ValueError, match="install ml_dtypes"):
            file.get_tensor("bf")


def test_without_torch_the_error_says_so(every, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match="needs torch"):
        ours.safe_open(every, "pt")


def test_models_of_several_files(tmp_path, engine):
    a = np.arange(6, dtype=np.float32)
    one = write(
        tmp_path / "model-00001-of-00002.safetensors",
        {"a": ("F32", [2, 3], a.tobytes())},
        {"x": "1"},
    )
    two = write(tmp_path / "model-00002-of-00002.safetensors", {"b": ("U8", [3], b"abc")})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": {"a": one.name, "b": two.name}}))
    for path in (index, str(index), tmp_path):
        found = ours.load_file(path, engine=engine)
        assert list(found) == ["a", "b"]
        np.testing.assert_array_equal(found["a"], a.reshape(2, 3))
        with ours.safe_open(path, "np", engine=engine) as file:
            assert file.metadata() == {"x": "1"}
            assert file.get_slice("b")[1:].tobytes() == b"bc"
            assert list(file.get_tensors(["b"])) == ["b"]
    two.unlink()
    with pytest.raises(FileNotFoundError, match="download"):
        ours.load_file(index, engine=engine)


def test_a_backend_is_given_by_name(every):
    with ours.safe_open(every, "np", backend="pread") as file:
        assert file.get_tensor("large").shape == (300, 1000)
    # The class of the error was private.
    with pytest.raises(ours.SafetensorValueError, match="there are pread, mmap") as caught:
        ours.safe_open(every, "np", backend="none")
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, ours.SafetensorError)
    with pytest.raises(ours.SafetensorError, match="engine or backend"):
        ours.safe_open(every, "np", backend="pread", engine=ringmain.Engine("pread"))


def test_tensors_do_not_count_against_the_limit(every):
    engine = ringmain.Engine("pread", memory_limit=1 << 20)
    held = [ours.load_file(every, engine=engine) for _ in range(4)]
    assert sum(tensors["large"].nbytes for tensors in held) > 1 << 20


def test_reading_a_changed_file_is_an_error(every):
    os.utime(every, (1, 1))  # two writes within one tick of the filesystem's clock look the same
    with ours.safe_open(every, "np") as file:
        file.get_tensor("large")
        every.write_bytes(every.read_bytes()[:-8] + b"12345678")
        with pytest.raises(OSError, match="open it again") as caught:
            file.get_tensor("large")
        assert caught.value.filename == str(every)


def test_empty_metadata_is_not_none(tmp_path):
    tensors = {"a": ("U8", [1], b"x")}
    for metadata in [None, {}, {"format": "np"}]:
        header = {"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}
        if metadata is not None:
            header["__metadata__"] = metadata
        text = json.dumps(header).encode()
        path = tmp_path / "a.safetensors"
        path.write_bytes(struct.pack("<Q", len(text)) + text + tensors["a"][2])
        with safetensors.safe_open(path, "np") as theirs, ours.safe_open(path, "np") as file:
            assert file.metadata() == theirs.metadata() == metadata


def test_types_that_numpy_does_not_have_are_refused_before_reading(tmp_path):
    tensors = {"big": ("U8", [1 << 20], bytes(1 << 20)), "four": ("F4", [4], b"ab")}
    path = write(tmp_path / "f4.safetensors", tensors)
    engine = ringmain.Engine()
    with ours.safe_open(path, "np", engine=engine) as file:
        for refused in [file.get_tensors, lambda: file.get_tensor("four")]:
            with pytest.raises(ours.SafetensorError, match="get_bytes"):
                refused()
        with pytest.raises(ours.SafetensorError, match="get_bytes"):
            file.get_slice("four")[:2]
        assert file.get_bytes("four").tobytes() == b"ab"
        assert file.get_tensors(["big"])["big"].nbytes == 1 << 20
        assert file.get_tensors([]) == {}, "no tensor was asked for, so none can be refused"


def test_memory_is_recycled_and_kept_tensors_are_not_limited(tmp_path):
    data = np.arange(1 << 20, dtype=np.uint8).tobytes()
    names = [f"t{at}" for at in range(8)]
    path = write(tmp_path / "m.safetensors", {name: ("U8", [1 << 20], data) for name in names})
    engine = ringmain.Engine("pread", memory_limit=8 << 20)
    with ours.safe_open(path, "np", engine=engine) as file:
        for name in names:
            assert file.get_tensor(name).tobytes() == data
        stats = engine.pool_stats()
        assert (stats["fresh"], stats["in_use_bytes"]) == (1, 0)
        kept = [file.get_tensor(name) for name in names for _ in range(3)]
        assert all(array.tobytes() == data for array in kept)


def test_the_device_is_checked_when_a_file_is_opened(every):
    assert ours.load_file(every, None)["scalar"] == np.float32(2.5)
    with pytest.raises(ours.SafetensorError, match="invalid"):
        ours.safe_open(every, "np", "cuda")
    pytest.importorskip("torch", reason="torch is not installed")
    with pytest.raises(ours.SafetensorError, match="invalid"):
        ours.safe_open(every, "pt", "bogus")


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_load_file_accepts_the_backends_of_the_package(every, framework):
    if framework == "torch":
        pytest.importorskip("torch", reason="torch is not installed")
    module = importlib.import_module(f"ringmain.safetensors.{framework}")
    for backend in ("mmap", "pread"):
        found = module.load_file(every, backend=backend)
        assert found["large"].shape == (300, 1000)
    assert ours.load_file(every, backend="mmap")["large"].shape == (300, 1000)
    with pytest.raises(safetensors.SafetensorError, match="did you mean"):
        module.load_file(every, backend="mmapp")
    with pytest.raises(safetensors.SafetensorError, match="engine or backend"):
        module.load_file(every, backend="mmap", engine=ringmain.Engine())


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_saving_functions_are_those_of_the_package(tmp_path, framework):
    torch = pytest.importorskip("torch", reason="torch is not installed") if framework == "torch" else None
    module = importlib.import_module(f"ringmain.safetensors.{framework}")
    theirs = importlib.import_module(f"safetensors.{framework}")
    forwarded = ["save", "save_file", "load"]
    forwarded += [] if torch is None else ["load_model", "save_model"]
    for name in forwarded:
        assert getattr(module, name) is getattr(theirs, name)
        assert name in dir(module)
    found = {}
    exec(f"from ringmain.safetensors.{framework} import *", found)
    assert {"load_file", *forwarded} <= set(found)
    tensors = {"a": np.arange(6.0) if torch is None else torch.arange(6.0)}
    module.save_file(tensors, tmp_path / "a.safetensors")
    assert list(module.load_file(tmp_path / "a.safetensors")["a"]) == list(range(6))
    assert list(module.load(module.save(tensors))["a"]) == list(range(6))
    with pytest.raises(AttributeError, match="colour"):
        module.colour
    assert ours.serialize is safetensors.serialize


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_without_the_package_saving_says_what_is_missing(monkeypatch, framework):
    if framework == "torch":
        pytest.importorskip("torch", reason="torch is not installed")
    module = importlib.import_module(f"ringmain.safetensors.{framework}")
    monkeypatch.setitem(sys.modules, f"safetensors.{framework}", None)
    with pytest.raises(ImportError, match="save_file.*pip install safetensors"):
        module.save_file
    assert not hasattr(module, "colour") and callable(module.load_file)


def test_without_the_package_import_star_has_load_file():
    script = (
        "import sys; sys.modules['safetensors'] = None\n"
        "from ringmain.safetensors.numpy import *\n"
        "load_file; assert 'save_file' not in globals()"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
