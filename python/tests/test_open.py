"""`open_raw`, `open_npy` and mappings of NumPy: where the elements are in the file."""

import os
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import ringmain
from ringmain import ContiguousMemmap


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


@pytest.mark.parametrize("dtype", ["u2", ">f4", "S3", [("a", "u1"), ("b", "<u4")]])
@pytest.mark.parametrize("offset", [0, 6])
def test_open_raw_finds_the_missing_length(tmp_path, engine, dtype, offset):
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


def test_a_file_may_grow_but_not_shrink(tmp_path, engine):
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


def test_the_offset_of_a_slice_of_a_mapping_is_found(mapped, engine):
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


def test_mappings_with_gaps_are_wrapped(mapped, engine):
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


def test_errors_are_python_exceptions(tmp_path):
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
        with pytest.raises(ValueError, match=f'{option} cannot be "forever": it can be {choices}$'):
            ringmain.Engine(**{option: "forever"})
    (tmp_path / "file").write_bytes(b"12345678")
    with pytest.raises(TypeError):
        ringmain.open_raw(tmp_path / "file", object, 1)
    with pytest.raises(TypeError):
        ringmain.open_raw(tmp_path / "file", "no such type", 1)
    with pytest.raises(TypeError, match="dtype cannot be None"):
        ringmain.open_raw(tmp_path / "file", None, 1)
    for open_it in (ringmain.open_npy, lambda path: ringmain.open_raw(path, "u1", 1)):
        with pytest.raises(ValueError, match="null byte"):
            open_it("a\0b")


def test_invalid_numbers_are_value_errors(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345678")
    for name, refused in {
        "shape.*-3": lambda: ringmain.open_raw(path, "u1", -3),
        "shape.*-2": lambda: ringmain.open_raw(path, "u1", (1, -2)),
        "shape.*one axis": lambda: ringmain.open_raw(path, "u1", (-1, -1)),
        "shape.*axis of 0": lambda: ringmain.open_raw(path, "u1", (0, -1)),
        "whole number of rows of 6 bytes": lambda: ringmain.open_raw(path, "u2", (-1, 3)),
        "8 bytes .* elements of 3 bytes": lambda: ringmain.open_raw(path, "S3"),
        "order": lambda: ringmain.open_raw(path, "u1", 8, order="K"),
        "engine or backend": lambda: ringmain.open_raw(path, "u1", engine="pread", backend="mmap"),
        "did you mean `uring`": lambda: ringmain.open_raw(path, "u1", engine="urin"),
        "shape.*1180591620717411303424": lambda: ringmain.open_raw(path, "u1", 2**70),
        "offset": lambda: ringmain.open_raw(path, "u1", 1, -1),
        "memory_limit": lambda: ringmain.Engine(memory_limit=-1),
        "depth": lambda: ringmain.Engine(depth=2**70),
        "open_files": lambda: ringmain.Engine(open_files=-1),
        "chunk_bytes": lambda: ringmain.Engine(chunk_bytes=-1),
        "threads": lambda: ringmain.Engine(threads=-1),
    }.items():
        with pytest.raises(ValueError, match=name):
            refused()
    with pytest.raises(TypeError, match="shape.*not 'r': open_raw has no mode, because files are only read"):
        ringmain.open_raw(path, "u1", "r")
    for refused in (lambda: ringmain.open_raw(path, "u1", 1.5), lambda: ringmain.open_raw(path, "u1", "3"),
                    lambda: ringmain.open_raw(path, "u1", engine=3)):
        with pytest.raises(TypeError):
            refused()


def test_paths_can_be_bytes(tmp_path):
    """Bytes were refused, although the error for other types said "expected str, bytes or os.PathLike"."""
    path = tmp_path / "file.npy"
    np.save(path, np.arange(5))
    for given in (os.fsencode(path), str(path), path):
        assert len(ringmain.open_npy(given)) == len(ringmain.open_raw(given, "i8", 5, offset=128)) == 5
        assert ringmain.Engine().describe(given) and ringmain.probe(given)
    for wrong in (None, 3):
        with pytest.raises(TypeError, match=f"expected str, bytes or os.PathLike object, not {type(wrong).__name__}"):
            ringmain.open_npy(wrong)


def test_a_build_without_object_stores_knows_all_schemes():
    """`adl` was missing: such a build took `adl://…` for the path of a local file."""
    root = Path(__file__).parents[2]
    refused = (root / "python/src/no_stores.rs").read_text().partition("const SCHEMES")[2].partition(";\n")[0]
    opened = (root / "object-store/src/remote/url.rs").read_text().partition("fn kind_of(")[2].partition("\n}\n")[0]
    schemes = set(re.findall(r'"(\w+)"', opened))
    assert "adl" in schemes
    assert set(re.findall(r'"(\w+)"', refused)) == schemes | {"file"}
