"""`BetonWriter`: files that it writes, and samples that it refuses."""

import itertools
import signal
import subprocess
import sys

import interrupts
import numpy as np
import pytest
from bars import Bar
from beton_files import EXPECTED, FIELDS, VECTOR, Indexed, make

import ringmain


def check_written(path, count):
    beton = ringmain.Beton(path)
    assert len(beton) == count
    for at in range(count):
        found, expected = beton[at], make(at)
        for name in ("id", "score", "text", "meta"):
            assert found[name] == expected[name]
        for name in ("mat", "tensor", "img"):
            np.testing.assert_array_equal(found[name], expected[name])
    return beton


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("alignment", [None, 512, 4096])
def test_samples_are_read_as_they_were_written(tmp_path, workers, alignment):
    path = tmp_path / "a.beton"
    writer = ringmain.BetonWriter(
        path, FIELDS, page_size=2 << 20, alignment=alignment, workers=workers
    )
    assert writer.from_indexed(Indexed())["samples"] == 100
    beton = check_written(path, 100)
    assert beton.fields["tensor"] == {"kind": "tensor", "dtype": np.dtype(">i2"), "shape": (5,)}
    report = writer.from_iterable((tuple(make(at).values()) for at in range(30)), 30)
    assert report["file_bytes"] == path.stat().st_size
    check_written(path, 30)
    # The writer accepts the `fields` of a dataset.
    copy = ringmain.BetonWriter(tmp_path / "b.beton", beton.fields)
    copy.from_indexed(ringmain.Beton(path))
    check_written(tmp_path / "b.beton", 30)


def test_pillow_images_are_written(tmp_path):
    image_type = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    pixels = np.random.default_rng(1).integers(0, 255, (5, 7, 3), np.uint8)
    writer = ringmain.BetonWriter(tmp_path / "a.beton", {"img": "image"}, page_size=2 << 20)
    writer.from_indexed([(image_type.fromarray(pixels),)])
    np.testing.assert_array_equal(ringmain.Beton(tmp_path / "a.beton")[0]["img"], pixels)
    with pytest.raises(ValueError, match=r"sample 0, field \"img\".*mode L.*convert\(.RGB.\)"):
        writer.from_indexed([(image_type.fromarray(pixels).convert("L"),)])


def test_written_jpegs_decode_to_the_same_image(tmp_path):
    stored = ringmain.Beton(VECTOR, images="stored")
    jpegs = [id for id in range(30) if EXPECTED["samples"][id]["img"][0] == 0]
    ringmain.BetonWriter(tmp_path / "a.beton", {"img": "image"}).from_iterable(
        [(stored[id]["img"].tobytes(),) for id in jpegs]
    )
    copy = ringmain.Beton(tmp_path / "a.beton")
    for at, id in enumerate(jpegs):
        np.testing.assert_array_equal(copy[at]["img"], ringmain.Beton(VECTOR)[id]["img"])


def test_deterministic_files_do_not_depend_on_the_workers(tmp_path):
    paths = [tmp_path / f"{workers}.beton" for workers in (1, 4)]
    for path, workers in zip(paths, (1, 4)):
        writer = ringmain.BetonWriter(path, FIELDS, workers=workers, deterministic=True)
        writer.from_indexed(Indexed())
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_samples_that_do_not_fit_the_fields_are_errors(tmp_path):
    def write(fields, samples, **options):
        ringmain.BetonWriter(tmp_path / "a.beton", fields).from_iterable(samples, **options)

    array = {"kind": "array", "dtype": "f4", "shape": (2,)}
    for fields, samples, kind, message in [
        ({"n": "int"}, [("x",)], TypeError, 'sample 0, field "n".*str'),
        ({"n": "int"}, [(1,), (2**63,)], ValueError, 'sample 1, field "n"'),
        ({"n": "float"}, [("x",)], TypeError, 'sample 0, field "n".*str'),
        ({"n": "bytes"}, [("x",)], TypeError, 'sample 0, field "n".*str'),
        ({"n": "bytes"}, [(np.zeros(2, "f4"),)], TypeError, 'sample 0, field "n"'),
        ({"n": "json"}, [({1, 2},)], TypeError, 'sample 0, field "n".*set'),
        ({"i": "image"}, [(3,)], TypeError, 'sample 0, field "i".*bytes of a JPEG, not int.*tensor.numpy'),
        ({"i": "image"}, [(tmp_path,)], TypeError, r"not PosixPath.*read_bytes\(\)"),
        ({"i": "image"}, [([[[0, 0, 0]]],)], TypeError, r"\(height, width, 3\) uint8.*, not list"),
        ({"i": "image"}, [(None,)], TypeError, "not NoneType"),
        (3, [], TypeError, "fields must be a dict by field name, not int"),
        ({"": "int"}, [], ValueError, "name"),
        ({"n": "int"}, [(1, 2)], ValueError, "2 values"),
        ({"n": "int"}, [{"m": 1}], ValueError, 'no value for field "n"'),
        ({"n": "int"}, [{"n": 1, "m": 1}], ValueError, "2 values"),
        ({"n": "int"}, [3], TypeError, "dict or a tuple"),
        ({"n": "none"}, [], ValueError, "none"),
        ({"a": {"kind": "array", "dtype": "f4"}}, [], ValueError, "shape"),
        ({"a": array}, [(np.zeros(3, "f4"),)], ValueError, r"\(3,\)"),
        ({"a": array}, [(np.zeros(2, "c8"),)], TypeError, 'sample 0, field "a".*cast'),
        ({"a": array}, [(np.zeros(2, "f8"),)], TypeError, "cast"),
        ({"a": array}, [([1, "x"],)], TypeError, 'sample 0, field "a"'),
        ({"a": array}, [([1, [2]],)], ValueError, 'sample 0, field "a"'),
        ({"i": "image"}, [(np.zeros((2, 2), "u1"),)], ValueError, "height"),
        ({"i": "image"}, [(b"no jpeg",)], ValueError, "JPEG"),
        ({}, [], ValueError, "fields"),
        ({"a name that is too long": "int"}, [], ValueError, "16"),
    ]:
        with pytest.raises(kind, match=message):
            write(fields, samples)
    with pytest.raises(ValueError, match="only 1"):
        write({"n": "int"}, iter([(1,)]), count=2)
    with pytest.raises(ValueError, match="more"):
        write({"n": "int"}, iter([(1,), (2,)]), count=1)
    with pytest.raises(TypeError, match="count"):
        write({"n": "int"}, iter([(1,)]))
    for option, value in [
        ("alignment", 3), ("alignment", -1), ("workers", 0), ("workers", -1),
        ("page_size", 3), ("page_size", -1), ("page_size", 1 << 40),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=option):
            ringmain.BetonWriter(tmp_path / "a.beton", {"n": "int"}, **{option: value})
    assert list(tmp_path.iterdir()) == []  # no file is left behind


@pytest.mark.parametrize("kind", ["i1", "u1", ">i2"])
def test_numbers_that_do_not_fit_are_refused(tmp_path, kind):
    """They were truncated to the bits that fit."""
    path = tmp_path / "a.beton"
    writer = ringmain.BetonWriter(path, {"a": {"kind": "array", "dtype": kind, "shape": (2,)}})
    for value in ([100_000, 2], (2, -100_000), [np.int64(100_000), 2], [2**70, 2]):
        with pytest.raises(ValueError, match='sample 1, field "a"'):
            writer.from_iterable([([1, 2],), (value,)])
    with pytest.raises(TypeError, match='sample 0, field "a"'):
        writer.from_iterable([(np.array([1, 2]),)])  # an array of int64 may hold larger numbers
    with pytest.raises(TypeError, match='sample 0, field "a"'):
        writer.from_iterable([([1.5, 2],)])
    info = np.iinfo(kind)
    samples = [[info.min, info.max], (True, False), np.array([0, 1], bool), np.array([5, 6], kind)]
    writer.from_iterable([(sample,) for sample in samples])
    for at, sample in enumerate(samples):
        np.testing.assert_array_equal(ringmain.Beton(path)[at]["a"], np.asarray(sample, kind))


def test_lists_of_numbers_are_converted(tmp_path):
    path = tmp_path / "a.beton"
    field = {"kind": "array", "dtype": "f4", "shape": (2,)}
    samples = [[0.1, 2], (3, 4), np.array([5, 6], "f2"), np.array([7, 8], "i2"), [np.float64(9), 1]]
    ringmain.BetonWriter(path, {"a": field}).from_iterable([(sample,) for sample in samples])
    for at, sample in enumerate(samples):
        np.testing.assert_array_equal(ringmain.Beton(path)[at]["a"], np.asarray(sample, "f4"))


def test_paths_that_cannot_be_written(tmp_path):
    def write(path):
        ringmain.BetonWriter(path, {"n": "int"}).from_iterable([(1,)])

    with pytest.raises(IsADirectoryError) as caught:
        write(tmp_path)
    assert caught.value.filename == str(tmp_path)
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "none" / "a.beton")
    with pytest.raises(ValueError, match="NUL"):
        write(f"{tmp_path}/a\0b")


@pytest.mark.parametrize("kind", [KeyError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_exception_of_the_iterator_is_raised(tmp_path, kind):
    """The exception was lost if the iterator had yielded fewer samples than declared."""

    def failing(yielded):
        for at in range(yielded):
            yield (at,)
        raise kind("mine")

    for yielded, count, workers in itertools.product(range(5), (*range(5), 20), (1, 3)):
        writer = ringmain.BetonWriter(tmp_path / "a.beton", {"n": "int"}, workers=workers)
        if yielded > count:
            with pytest.raises(ValueError, match="more"):
                writer.from_iterable(failing(yielded), count)
        else:
            with pytest.raises(kind, match="mine"):
                writer.from_iterable(failing(yielded), count)
    assert list(tmp_path.iterdir()) == []


def test_an_exception_while_a_sample_is_made_is_raised(tmp_path):
    class Mine(Exception):
        pass

    class Failing(Indexed):
        def __getitem__(self, at):
            if at == 50:
                raise Mine(at)
            return {"n": at}

    def failing():
        yield (1,)
        raise Mine

    writer = ringmain.BetonWriter(tmp_path / "a.beton", {"n": "int"}, workers=3)
    with pytest.raises(Mine):
        writer.from_indexed(Failing())
    with pytest.raises(Mine):
        writer.from_iterable(failing(), 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot send Ctrl-C to one process")
@pytest.mark.parametrize("method", ["from_indexed", "from_iterable"])
def test_ctrl_c_ends_a_writer(tmp_path, method):
    program = """
import sys, time, ringmain

class Slow:
    def __len__(self):
        return 1_000_000
    def __getitem__(self, at):
        print(at, flush=True)
        time.sleep(0.5)  # the writer takes several samples from an iterator at a time
        return (at,)

writer = ringmain.BetonWriter(sys.argv[1], {"n": "int"}, workers=1)
try:
    getattr(writer, sys.argv[2])(Slow())
except KeyboardInterrupt:
    sys.exit(7)
"""
    command = [sys.executable, "-c", program, str(tmp_path / "a.beton"), method]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        try:
            for _ in range(3):
                child.stdout.readline()
            child.send_signal(signal.SIGINT)
            child.communicate(timeout=interrupts.SECONDS_MAX)
        finally:
            child.kill()
    assert child.returncode == 7
    assert list(tmp_path.iterdir()) == []


def test_the_repr_of_a_writer_names_the_file_and_the_fields(tmp_path):
    writer = ringmain.BetonWriter(tmp_path / "a.beton", {"a": "int", "b": "json"})
    assert repr(writer) == f"BetonWriter({tmp_path / 'a.beton'}, fields a, b)"


TEXT = np.dtype([("ptr", "<u8"), ("size", "<u4"), ("language", "S2")])
POINT = np.dtype([("x", "<f4"), ("y", "<f4")])
CUSTOM = {"label": "int", "text": {"kind": "custom", "dtype": TEXT}, "at": {"kind": "custom", "dtype": POINT}}


def custom_sample(at):
    text = b"ab" * (at % 4)
    metadata = np.array((77, 88, b"de"), TEXT)
    return {"label": at, "text": {"metadata": metadata, "data": text}, "at": (at, -at)}


@pytest.mark.parametrize("workers", [1, 3])
def test_custom_fields_are_written_as_they_are_read(tmp_path, workers):
    writer = ringmain.BetonWriter(tmp_path / "a.beton", CUSTOM, page_size=2 << 20, workers=workers)
    writer.from_iterable([custom_sample(at) for at in range(40)])
    dtypes = {"text": TEXT, "at": POINT}
    beton = ringmain.Beton(tmp_path / "a.beton", fields=dtypes)
    for at in range(40):
        found, text = beton[at], b"ab" * (at % 4)
        assert found["label"] == at and found["at"].tolist() == (at, -at)
        assert found["text"]["data"].tobytes() == text
        assert found["text"]["metadata"]["size"] == len(text), "the writer counts the data"
        assert found["text"]["metadata"]["language"] == b"de"
    # The fields and the samples of a reader can be written again.
    again = ringmain.BetonWriter(tmp_path / "b.beton", beton.fields, page_size=2 << 20)
    again.from_indexed(beton)
    copy = ringmain.Beton(tmp_path / "b.beton", fields=dtypes)
    assert [one["text"]["data"].tobytes() for one in copy] == [b"ab" * (at % 4) for at in range(40)]


@pytest.mark.parametrize(
    ("kind", "value", "error", "message"),
    [
        (TEXT, b"text", TypeError, 'sample 0, field "x": a value with data is a dict of "metadata" and "data"'),
        (TEXT, {"metadata": np.zeros((), TEXT)}, TypeError, "a value with data is a dict"),
        (TEXT, {"metadata": np.zeros(2, TEXT), "data": b""}, ValueError, "the metadata has 28 bytes, not 14"),
        ([("ptr", "<u8"), ("size", "u1")], {"metadata": (0, 0), "data": bytes(256)}, ValueError, "256 bytes.*too small"),
        ([("ptr", "<u8")], {"metadata": (0,), "data": b""}, ValueError, 'without a "size"'),
        (POINT, "no point", ValueError, 'sample 0, field "x"'),
    ],
)  # fmt: skip
def test_invalid_values_of_custom_fields_are_errors(tmp_path, kind, value, error, message):
    writer = ringmain.BetonWriter(tmp_path / "a.beton", {"x": {"kind": "custom", "dtype": kind}}, page_size=2 << 20)
    with pytest.raises(error, match=message):
        writer.from_iterable([(value,)])
    assert not (tmp_path / "a.beton").exists()


def test_a_custom_field_needs_a_dtype(tmp_path):
    with pytest.raises(ValueError, match='field "x" is custom and needs the "dtype"'):
        ringmain.BetonWriter(tmp_path / "a.beton", {"x": {"kind": "custom"}})


def test_a_bar_counts_the_samples(tmp_path, monkeypatch):
    import ringmain._progress

    bars = []

    def bar(total, unit):
        assert (total, unit) == (300, "samples")
        bars.append(Bar())
        return bars[-1]

    monkeypatch.setattr(ringmain._progress, "bar", bar)
    writer = ringmain.BetonWriter(tmp_path / "a.beton", {"n": "int"}, page_size=2 << 20, progress=True)
    for _ in range(2):
        writer.from_iterable([(at,) for at in range(300)])
        assert (bars[-1].n, bars[-1].is_closed) == (300, True)
    with pytest.raises(ZeroDivisionError):
        writer.from_iterable(((1 // (100 - at),) for at in range(300)), 300)
    assert len(bars) == 3 and bars[-1].is_closed
    monkeypatch.setattr(ringmain._progress, "bar", lambda total, unit: None)  # without tqdm
    writer.from_iterable([(at,) for at in range(300)])
