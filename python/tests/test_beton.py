"""`Beton`: samples by number, and batches of them."""

import errno
import multiprocessing
import os
import pickle
import threading

import numpy as np
import pytest
from beton_files import EXPECTED, FIELDS, VECTOR, Indexed, check_sample, make, write_images

import ringmain


@pytest.mark.parametrize("images", ["decoded", "stored"])
def test_a_file_that_ffcv_wrote(engine, images):
    beton = ringmain.Beton(VECTOR, engine=engine, images=images)
    assert len(beton) == EXPECTED["num_samples"] == 300
    assert list(beton.fields) == EXPECTED["fields"]
    assert beton.fields["mat"]["kind"] == "array" and beton.fields["label"] == {"kind": "int"}
    assert "300 samples" in repr(beton) and beton.engine is engine
    for id in (0, 1, 2, 150, 299, -1):
        sample = beton[id]
        check_sample(sample, EXPECTED["samples"][id], images)
        assert type(sample["label"]) is int and type(sample["score"]) is float
        assert type(sample["blob"]) is bytes
    spec = beton.fields["mat"]
    assert beton[0]["mat"].dtype == spec["dtype"] and beton[0]["mat"].shape == spec["shape"]


def test_a_batch_has_the_values_of_its_samples(engine):
    beton = ringmain.Beton(VECTOR, engine=engine)
    ids = np.array([3, 141, 59, 3, 299])
    batch = beton.read_batch(ids)
    assert batch["label"].dtype == np.int64 and batch["score"].dtype == np.float64
    assert batch["mat"].shape == (5, *beton.fields["mat"]["shape"])
    for at, id in enumerate(ids):
        one = {name: column[at] for name, column in batch.items()}
        check_sample(one, EXPECTED["samples"][id], "decoded")
        np.testing.assert_array_equal(one["img"], beton[int(id)]["img"])
    batch["mat"] += 1  # the caller may write to it
    np.testing.assert_array_equal(
        beton.read_batch([-1, 0, -300])["label"], beton.read_batch([299, 0, 0])["label"]
    )
    assert beton.read_batch([])["mat"].shape[0] == 0


@pytest.mark.parametrize("form", [{}, {"images": "stored"}, {"resize": (6, 5)}])
def test_the_sizes_of_samples_are_known_without_reading(tmp_path, form):
    beton = ringmain.Beton(VECTOR, engine=ringmain.Engine("pread"), **form)
    before = beton.engine.stats()["reads"]
    sizes = beton.sample_bytes()
    assert sizes.dtype == np.uint64 and len(sizes) == 300
    np.testing.assert_array_equal(beton.sample_bytes([7, -1, 7]), sizes[[7, 299, 7]])
    assert beton.sample_bytes([]).shape == (0,)
    assert beton.engine.stats()["reads"] == before
    for id in (0, 1, 2, 150, 299):
        sample = beton[id]
        known = 8 + 8 + len(sample["blob"]) + sample["mat"].nbytes + sample["img"].nbytes
        # The rest is the text of the JSON, with spaces and escapes as it was written.
        assert 0 <= int(sizes[id]) - known <= 200, (id, sizes[id], known)
    path = tmp_path / "numbers.beton"
    ringmain.BetonWriter(path, {"x": "int", "y": "float"}, page_size=2 << 20).from_iterable([(1, 2.0)] * 3)
    assert ringmain.Beton(path).sample_bytes().tolist() == [16, 16, 16]
    for ids, error in (([300], IndexError), (["a"], TypeError), (7, TypeError)):
        with pytest.raises(error):
            beton.sample_bytes(ids)


def test_errors_are_python_exceptions(tmp_path, engine):
    with pytest.raises(FileNotFoundError) as caught:
        ringmain.Beton(tmp_path / "none.beton", engine=engine)
    assert caught.value.filename == str(tmp_path / "none.beton")
    (tmp_path / "bad.beton").write_bytes(b"\xff" * 4096)
    with pytest.raises(ValueError, match=r"bad\.beton"):
        ringmain.Beton(tmp_path / "bad.beton", engine=engine)
    beton = ringmain.Beton(VECTOR, engine=engine)
    for id in (300, -301, 2**70, -(2**70)):
        with pytest.raises(IndexError, match="300"):
            beton[id]
        with pytest.raises(IndexError, match="300"):
            beton.read_batch([1, id])
    for ids in (["a"], [1.5], 3):
        with pytest.raises(TypeError):
            beton.read_batch(ids)
    for path in (f"{tmp_path}/a\0b", f"{tmp_path}/a\0b/c"):
        with pytest.raises(ValueError, match="null byte|NUL"):
            ringmain.Beton(path, engine=engine)
    with pytest.raises(ValueError, match="decoded"):
        ringmain.Beton(VECTOR, images="none")
    with pytest.raises(ValueError, match="raise index_limit$"):
        ringmain.Beton(VECTOR, index_limit=100)
    with pytest.raises(ValueError, match="index_limit cannot be -1"):
        ringmain.Beton(VECTOR, index_limit=-1)


def test_reading_a_changed_file_is_an_error(tmp_path):
    path = tmp_path / "a.beton"
    writer = ringmain.BetonWriter(path, {"b": "bytes"})
    writer.from_iterable([(b"x" * 100,)] * 9)
    beton = ringmain.Beton(path, engine=ringmain.Engine("pread"))
    os.utime(path, (1, 1))
    with pytest.raises(OSError, match="written to") as caught:
        beton[3]
    assert (caught.value.errno, caught.value.filename) == (errno.ESTALE, str(path))


def test_kept_samples_do_not_count_against_the_limit(tmp_path, engine):
    """If a program kept its samples, the next read waited for 30 s and then failed."""
    write_images(tmp_path / "a.beton", 40)
    engine = ringmain.Engine(engine.backend, memory_limit=1 << 20)
    beton = ringmain.Beton(tmp_path / "a.beton", engine=engine)
    samples = [beton[at]["img"] for at in range(40)]
    batch = beton.read_batch(range(40))["img"]  # larger than the pool
    epoch = beton.epoch(batch_size=2)
    next(epoch)
    again = beton.read_batch(range(40))["img"]
    for at, images in enumerate(zip(samples, batch, again)):
        assert all((image == at).all() for image in images)


def with_custom_fields(path, names):
    """Writes a file in which these fields have a type that FFCV does not define."""
    ringmain.BetonWriter(path, FIELDS, page_size=2 << 20).from_indexed(Indexed())
    data = bytearray(path.read_bytes())
    for at, name in enumerate(FIELDS):
        if name in names:
            data[24 + at * 1041] = 255
    path.write_bytes(data)
    return path


TEXT = np.dtype([("ptr", "<u8"), ("size", "<u8")])


def test_other_fields_are_readable_beside_a_custom_field(tmp_path, engine):
    path = with_custom_fields(tmp_path / "a.beton", ["id", "text"])
    with pytest.raises(ValueError, match=r"field 0 \(`id`\).*Beton\(path, fields="):
        ringmain.Beton(path, engine=engine)
    with pytest.raises(ValueError, match=r"field 2 \(`text`\).*Beton\(path, fields="):
        ringmain.Beton(path, engine=engine, fields={"id": "<i8"})
    beton = ringmain.Beton(path, engine=engine, fields={"id": "<i8", "text": TEXT})
    assert beton.fields["id"] == {"kind": "custom", "dtype": np.dtype("<i8")}
    assert beton.fields["text"] == {"kind": "custom", "dtype": TEXT}
    for at in (0, 20, 99):
        found, expected = beton[at], make(at)
        assert found["id"] == expected["id"] and found["score"] == expected["score"]
        assert found["text"]["metadata"]["size"] == len(expected["text"])
        assert found["text"]["data"].tobytes() == expected["text"]
        np.testing.assert_array_equal(found["img"], expected["img"])
    for copy in (beton, pickle.loads(pickle.dumps(beton))):
        batch = copy.read_batch([7, 3])
        assert batch["id"].tolist() == [2, -2] and batch["id"].dtype == np.int64
        assert batch["text"]["metadata"].dtype == TEXT
        assert [one.tobytes() for one in batch["text"]["data"]] == [make(7)["text"], make(3)["text"]]
    batches = list(beton.epoch("random", batch_size=40))
    assert sum(len(batch["text"]["data"]) for batch, _ in batches) == 100
    # To ignore a custom field, the size of its metadata is enough.
    for size in ("V16", 16, np.dtype("V16")):
        beton = ringmain.Beton(path, engine=engine, fields={"id": "<i8", "text": size})
        assert beton[3]["meta"] == make(3)["meta"] and beton[3]["text"].nbytes == 16
        assert pickle.loads(pickle.dumps(beton))[3]["score"] == make(3)["score"]


def test_invalid_dtypes_of_custom_fields_are_errors(tmp_path):
    path = with_custom_fields(tmp_path / "a.beton", ["text"])
    for fields, message in (
        ({"text": TEXT, "texts": TEXT}, "'texts'.*id, score"),
        ({"text": [("ptr", "<u4")]}, "ptr.*<u8"),
        ({"text": [("ptr", "<u8"), ("size", "f8")]}, "size.*unsigned"),
        ({"text": "O"}, "objects"),
        ({"text": 0}, "no bytes"),
        ({"text": -3}, "V-3"),
        (3, "fields must be a dict by field name, not int"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            ringmain.Beton(path, fields=fields)


def test_a_misspelt_custom_field_is_named(tmp_path, engine):
    """The error was about the field that the misspelt name left without a dtype."""
    path = with_custom_fields(tmp_path / "a.beton", ["text"])
    with pytest.raises(ValueError, match="fields has the name 'txt', but the fields of .* are id, score, text"):
        ringmain.Beton(path, engine=engine, fields={"txt": TEXT})


@pytest.mark.parametrize("dtype", ["V1", "V8", "<u8"])
def test_a_dtype_that_is_too_small_for_its_field_is_an_error(tmp_path, engine, dtype):
    """The other fields had wrong values, without an error."""
    path = with_custom_fields(tmp_path / "a.beton", ["text"])
    with pytest.raises(ValueError, match="do not fit the file.*check the dtypes in `fields`"):
        ringmain.Beton(path, engine=engine, fields={"text": dtype})


def test_pickles_contain_only_the_options(monkeypatch, engine):
    monkeypatch.chdir(VECTOR.parent)
    beton = ringmain.Beton(VECTOR.name, engine=engine, images="stored")
    data = pickle.dumps(beton)
    assert len(data) < 1000
    monkeypatch.chdir("/")
    check_sample(pickle.loads(data)[1], EXPECTED["samples"][1], "stored")


def _labels(beton, queue):
    queue.put([beton[at]["label"] for at in range(20)])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_and_threads_can_read(method, engine):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} on this platform")
    beton = ringmain.Beton(VECTOR, engine=engine)
    expected = [sample["label"] for sample in EXPECTED["samples"][:20]]
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=_labels, args=(beton, queue))
    child.start()
    assert queue.get(timeout=120) == expected
    child.join()
    found = []

    def read():
        found.append([beton[at]["label"] for at in range(20)])

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


def test_the_memory_of_batches_returns_to_the_pool():
    engine = ringmain.Engine("pread")
    beton = ringmain.Beton(VECTOR, engine=engine, images="stored")
    batch = beton.read_batch(range(100))
    part = batch["mat"][3]
    assert engine.pool_stats()["in_use_bytes"] > 0
    del batch
    np.testing.assert_array_equal(part, beton[3]["mat"])
    del part
    assert engine.pool_stats()["in_use_bytes"] == 0
    assert iter(beton) is not beton and next(iter(beton))["label"] == beton[0]["label"]
    samples = list(beton)  # small samples are copied and hold no buffers
    assert len(samples) == 300 and engine.pool_stats()["in_use_bytes"] == 0


def test_two_fields_with_one_name_are_refused(tmp_path):
    path = tmp_path / "a.beton"
    fields = {f"field {at:03}": "int" for at in range(100)}
    ringmain.BetonWriter(path, fields).from_iterable([tuple(range(100))])
    assert list(ringmain.Beton(path)[0]) == list(fields)
    path.write_bytes(path.read_bytes().replace(b"field 099", b"field 007", 1))
    with pytest.raises(ValueError, match='two fields have the name "field 007"'):
        ringmain.Beton(path)
