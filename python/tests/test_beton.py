import errno
import hashlib
import itertools
import json
import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import interrupts
import numpy as np
import pytest

import ringmain

# Written by FFCV.
VECTOR = Path(__file__).parents[2] / "engine/tests/vectors/beton/mixed.beton"
EXPECTED = json.loads(VECTOR.with_suffix(".expected.json").read_text())


def digest(data):
    return hashlib.sha256(bytes(data)).hexdigest()


def check_sample(found, expected, images):
    assert list(found) == EXPECTED["fields"]
    assert found["label"] == expected["label"] and found["score"] == expected["score"]
    assert [len(found["blob"]), digest(found["blob"])] == expected["blob"]
    assert digest(found["mat"].tobytes()) == expected["mat"]
    assert found["meta"] == expected["meta"]
    mode, width, height, size, sha = expected["img"]
    if mode == 1 or images == "decoded":
        assert found["img"].shape == (height, width, 3)
    else:
        assert found["img"].shape == (size,)
    if mode == 1 or images == "stored":
        assert digest(found["img"].tobytes()) == sha
    assert found["img"].dtype == np.uint8


@pytest.mark.parametrize("images", ["decoded", "stored"])
def test_ffcvs_own_file(engine, images):
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


def test_batches_are_the_samples(engine):
    beton = ringmain.Beton(VECTOR, engine=engine)
    ids = np.array([3, 141, 59, 3, 299])
    batch = beton.read_batch(ids)
    assert batch["label"].dtype == np.int64 and batch["score"].dtype == np.float64
    assert batch["mat"].shape == (5, *beton.fields["mat"]["shape"])
    for at, id in enumerate(ids):
        one = {name: column[at] for name, column in batch.items()}
        check_sample(one, EXPECTED["samples"][id], "decoded")
        np.testing.assert_array_equal(one["img"], beton[int(id)]["img"])
    batch["mat"] += 1  # it is the caller's
    np.testing.assert_array_equal(
        beton.read_batch([-1, 0, -300])["label"], beton.read_batch([299, 0, 0])["label"]
    )
    assert beton.read_batch([])["mat"].shape[0] == 0


@pytest.mark.parametrize(
    ("traversal", "options"),
    [("sequential", {}), ("random", {"seed": 3}), ("quasi_random", {"seed": 3, "open_pages": 1})],
)
def test_epochs_have_every_sample_once(engine, traversal, options):
    beton = ringmain.Beton(VECTOR, engine=engine, images="stored")
    epoch = beton.epoch(traversal, batch_size=32, **options)
    assert (len(epoch), epoch.batch_size) == (10, 32)
    found = []
    for batch, ids in epoch:
        assert ids.dtype == np.uint64
        for at, id in enumerate(ids):
            one = {name: column[at] for name, column in batch.items()}
            check_sample(one, EXPECTED["samples"][id], "stored")
        found += ids.tolist()
    assert sorted(found) == list(range(300))
    assert (found == sorted(found)) == (traversal == "sequential")
    # The next loop reads the next epoch.
    again = [int(id) for _, ids in epoch for id in ids]
    assert epoch.epoch == 1 and sorted(again) == sorted(found)
    assert (again == found) == (traversal == "sequential")
    epoch.set_epoch(0)
    assert [int(id) for _, ids in epoch for id in ids] == found


def test_memory_managers_deliver_the_same():
    def ids(engine, **options):
        epoch = ringmain.Beton(VECTOR, engine=engine).epoch("random", batch_size=50, **options)
        return [(ids.tolist(), batch["mat"].tobytes()) for batch, ids in epoch]

    mmap, pread = ringmain.Engine("mmap"), ringmain.Engine("pread")
    expected = ids(pread)
    assert ids(mmap, memory_manager="os_cache") == expected
    assert ids(pread, memory_manager="process_cache", cache_pages=2) == expected
    with pytest.raises(ValueError, match="mmap"):
        ids(pread, memory_manager="os_cache")


def test_ranks_last_batches_and_states(engine):
    beton = ringmain.Beton(VECTOR, engine=engine)
    found = []
    for rank in range(3):
        found += [int(id) for _, ids in beton.epoch("random", rank=rank, world=3) for id in ids]
    assert sorted(found) == list(range(300))
    epoch = beton.epoch(batch_size=64, drop_last=True)
    assert len(epoch) == len(list(epoch)) == 4
    epoch = beton.epoch("random", seed=2, epoch=4, batch_size=64)
    next(epoch)
    state = pickle.loads(pickle.dumps(epoch.state_dict()))
    rest = [ids.tolist() for _, ids in epoch]
    later = beton.epoch("random", seed=2, batch_size=64)
    later.load_state_dict(state)
    assert [ids.tolist() for _, ids in later] == rest
    later.reset()
    later.skip_batches(1)
    assert [ids.tolist() for _, ids in later] == rest
    with pytest.raises(ValueError, match="order, its seed"):
        beton.epoch("sequential").load_state_dict(state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"traversal": "none"}, "quasi_random"),
        ({"traversal": "quasi_random"}, "open_pages"),
        ({"open_pages": 1}, "open_pages"),
        ({"memory_manager": "none"}, "process_cache"),
        ({"memory_manager": "process_cache"}, "cache_pages"),
        ({"cache_pages": 3}, "cache_pages"),
        ({"damaged": "none"}, "leave_out"),
        ({"rank": 1}, "rank"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": -1}, "batch_size cannot be -1"),
        ({"seed": -1}, "seed"),
        ({"epoch": 2**64}, "epoch"),
        ({"world": -1}, "world"),
        ({"rank": -1}, "rank"),
        ({"open_pages": -1}, "open_pages"),
        ({"cache_pages": -1}, "cache_pages"),
        ({"prefetch_bytes": -1}, "prefetch_bytes"),
    ],
)
def test_options_that_cannot_work(options, message):
    with pytest.raises(ValueError, match=message):
        ringmain.Beton(VECTOR).epoch(**options)


def test_errors_are_pythons_own(tmp_path, engine):
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


def test_a_file_that_changes_is_an_error(tmp_path):
    path = tmp_path / "a.beton"
    writer = ringmain.BetonWriter(path, {"b": "bytes"})
    writer.from_iterable([(b"x" * 100,)] * 9)
    beton = ringmain.Beton(path, engine=ringmain.Engine("pread"))
    os.utime(path, (1, 1))
    with pytest.raises(OSError, match="written to") as caught:
        beton[3]
    assert (caught.value.errno, caught.value.filename) == (errno.ESTALE, str(path))


@pytest.mark.parametrize("backend", ["auto", "pread"])
def test_the_limit_that_an_error_names_is_enough(backend):
    """The engine of `auto` had only a part of it, so each limit was too small by that part."""

    def start(limit):
        beton = ringmain.Beton(VECTOR, engine=ringmain.Engine(backend, memory_limit=limit))
        return beton.epoch(batch_size=300)

    with pytest.raises(ValueError, match="raise memory_limit to") as caught:
        start(64 << 10)
    limit = int(re.search(r"raise memory_limit to (\d+)$", str(caught.value))[1])
    assert len(start(limit)) == 1


def test_damaged_samples(tmp_path):
    samples = [(at, bytes([at]) * 10) for at in range(20)]
    path = tmp_path / "a.beton"
    ringmain.BetonWriter(path, {"n": "int", "b": "bytes"}).from_iterable(samples)
    data = bytearray(path.read_bytes())
    row = bytes([7, 0, 0, 0, 0, 0, 0, 0])
    at = data.index(row, 2 * 1041)  # of sample 7, whose pointer follows
    data[at + 8 : at + 16] = b"\xff" * 8
    path.write_bytes(data)
    beton = ringmain.Beton(path)
    with pytest.raises(ValueError, match="sample 7, field `b`"):
        beton[7]
    epoch = beton.epoch(batch_size=8, damaged="leave_out")
    assert [int(n) for batch, _ in epoch for n in batch["n"]] == [n for n in range(20) if n != 7]
    assert epoch.left_out == 1


def write_bad_jpegs(path, bad, count=20):
    """A dataset with a JPEG in every sample, of which some cannot be decoded."""
    stored = ringmain.Beton(VECTOR, images="stored")
    id = next(id for id in range(30) if EXPECTED["samples"][id]["img"][0] == 0)
    jpeg = stored[id]["img"].tobytes()
    cut = jpeg[: len(jpeg) // 2]
    ringmain.BetonWriter(path, {"n": "int", "img": "image"}).from_iterable(
        [(at, cut if at in bad else jpeg) for at in range(count)]
    )
    return ringmain.Beton(VECTOR)[id]["img"]


def test_jpegs_that_cannot_be_decoded(tmp_path, engine):
    """They were no damaged samples, and the batch of an error was lost."""
    bad = {3, 5, 8, 9, 10, 11}
    image = write_bad_jpegs(tmp_path / "a.beton", bad)
    beton = ringmain.Beton(tmp_path / "a.beton", engine=engine)
    with pytest.raises(ValueError, match="sample 3, field `img`"):
        beton[3]
    epoch = beton.epoch(batch_size=4, damaged="leave_out")
    found = []
    for batch, ids in epoch:
        assert batch["n"].tolist() == ids.tolist()
        assert all(np.array_equal(one, image) for one in batch["img"])
        found += ids.tolist()
    assert found == [id for id in range(20) if id not in bad]  # a whole batch was passed over
    assert epoch.left_out == len(bad)

    epoch = beton.epoch(batch_size=4)
    for _ in range(2):
        state = epoch.state_dict()
        with pytest.raises(ValueError, match="sample 3"):
            next(epoch)
        assert epoch.state_dict() == state
    epoch.skip_batches(1)
    with pytest.raises(ValueError, match="sample 5"):
        next(epoch)
    epoch.skip_batches(2)
    assert [ids.tolist() for _, ids in epoch] == [[12, 13, 14, 15], [16, 17, 18, 19]]
    assert epoch.left_out == 0


@pytest.mark.parametrize("damage", [b"\xff\xff\xff", b"{,}"])
def test_json_that_is_none(tmp_path, damage):
    path = tmp_path / "a.beton"
    texts = ["abc" if at == 7 else "xyz" for at in range(20)]
    ringmain.BetonWriter(path, {"t": "json"}).from_iterable([(text,) for text in texts])
    # In the place of the text and the quotation mark before it.
    path.write_bytes(path.read_bytes().replace(b'"abc', damage + b'"'))
    beton = ringmain.Beton(path)
    with pytest.raises(ValueError, match="sample 7, field `t`"):
        beton[7]
    with pytest.raises(ValueError, match="sample 7, field `t`"):
        list(beton.epoch(batch_size=8))
    epoch = beton.epoch(batch_size=8, damaged="leave_out")
    assert [id for _, ids in epoch for id in ids] == [id for id in range(20) if id != 7]
    assert epoch.left_out == 1


def write_images(path, count):
    image = np.zeros((128, 128, 3), np.uint8)
    samples = ((image + at,) for at in range(count))
    ringmain.BetonWriter(path, {"img": "image"}).from_iterable(samples, count)


def test_what_a_program_keeps_is_not_limited(tmp_path, engine):
    """Samples that were kept made the next one wait for 30 s, and then fail."""
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


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot be sent Ctrl-C there")
@pytest.mark.parametrize("prefetch_bytes", [0, 1 << 20])
def test_ctrl_c_ends_an_epochs_wait_for_memory(tmp_path, prefetch_bytes):
    write_images(tmp_path / "a.beton", 40)
    engine = ringmain.Engine("pread", memory_limit=1 << 20)
    beton = ringmain.Beton(tmp_path / "a.beton", engine=engine)
    epoch, held = beton.epoch(batch_size=2, prefetch_bytes=prefetch_bytes), []
    interrupts.raises_soon(lambda: held.extend(epoch), lambda: held)
    assert held
    found = [id for _, ids in held for id in ids.tolist()]
    held.clear()
    assert found + [id for _, ids in epoch for id in ids.tolist()] == list(range(40))


def _rest_of(epoch, queue):
    queue.put([ids.tolist() for _, ids in epoch])


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this platform"
)
def test_a_forked_child_goes_on_with_an_epoch(engine):
    epoch = ringmain.Beton(VECTOR, engine=engine).epoch("random", batch_size=32)
    next(epoch)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_rest_of, args=(epoch, queue))
    child.start()
    found = queue.get(timeout=120)
    child.join()
    assert found == [ids.tolist() for _, ids in epoch] and len(found) == 9


FIELDS = {
    "id": "int",
    "score": "float",
    "text": "bytes",
    "mat": {"kind": "array", "dtype": np.float32, "shape": (3, 4)},
    "tensor": {"kind": "tensor", "dtype": ">i2", "shape": [5]},
    "meta": "json",
    "img": "image",
}


def make(at):
    random = np.random.default_rng(at)
    return {
        "id": at - 5,
        "score": at / 3,
        "text": bytes([at % 256]) * (at % 17),
        "mat": random.random((3, 4), dtype=np.float32),
        "tensor": random.integers(-99, 99, 5, dtype=np.int16),
        "meta": {"at": at, "names": ["ä", None]},
        "img": random.integers(0, 255, (at % 5 + 1, 3, 3), dtype=np.uint8),
    }


class Indexed:
    def __len__(self):
        return 100

    def __getitem__(self, at):
        return make(at)


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
def test_what_is_written_is_read(tmp_path, workers, alignment):
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
    # What a dataset says of its fields is what the writer takes.
    copy = ringmain.BetonWriter(tmp_path / "b.beton", beton.fields)
    copy.from_indexed(ringmain.Beton(path))
    check_written(tmp_path / "b.beton", 30)


def with_custom_fields(path, names):
    """The file with fields of a type that only its author knows."""
    ringmain.BetonWriter(path, FIELDS, page_size=2 << 20).from_indexed(Indexed())
    data = bytearray(path.read_bytes())
    for at, name in enumerate(FIELDS):
        if name in names:
            data[24 + at * 1041] = 255
    path.write_bytes(data)
    return path


TEXT = np.dtype([("ptr", "<u8"), ("size", "<u8")])


def test_a_custom_field_leaves_the_others_readable(tmp_path, engine):
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
    # Bytes that are only passed over need a size alone.
    beton = ringmain.Beton(path, engine=engine, fields={"id": "<i8", "text": "V16"})
    assert beton[3]["meta"] == make(3)["meta"] and beton[3]["text"].nbytes == 16


def test_fields_that_cannot_be(tmp_path):
    path = with_custom_fields(tmp_path / "a.beton", ["text"])
    for fields, message in (
        ({"text": TEXT, "texts": TEXT}, "'texts'.*id, score"),
        ({"text": [("ptr", "<u4")]}, "ptr.*<u8"),
        ({"text": [("ptr", "<u8"), ("size", "f8")]}, "size.*unsigned"),
        ({"text": "O"}, "objects"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            ringmain.Beton(path, fields=fields)


def test_images_of_pillow_are_written(tmp_path):
    image_type = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    pixels = np.random.default_rng(1).integers(0, 255, (5, 7, 3), np.uint8)
    writer = ringmain.BetonWriter(tmp_path / "a.beton", {"img": "image"}, page_size=2 << 20)
    writer.from_indexed([(image_type.fromarray(pixels),)])
    np.testing.assert_array_equal(ringmain.Beton(tmp_path / "a.beton")[0]["img"], pixels)
    with pytest.raises(ValueError, match=r"sample 0, field \"img\".*mode L.*convert\(.RGB.\)"):
        writer.from_indexed([(image_type.fromarray(pixels).convert("L"),)])


def test_an_epoch_is_pickled_as_its_options(tmp_path, engine):
    beton = ringmain.Beton(VECTOR, engine=engine, images="stored")
    epoch = beton.epoch("random", seed=3, batch_size=32, rank=1, world=2, drop_last=True)
    epoch.set_epoch(5)
    next(epoch)
    copy = pickle.loads(pickle.dumps(epoch))
    assert copy.epoch == 5 and copy.batch_size == 32
    epoch.reset()
    assert [ids.tolist() for _, ids in copy] == [ids.tolist() for _, ids in epoch]


def test_reprs(tmp_path):
    beton = ringmain.Beton(VECTOR)
    epoch = beton.epoch("random", seed=3, batch_size=32, epoch=2)
    assert repr(epoch) == f"BetonEpoch({VECTOR}, traversal=random, epoch=2, batch_size=32, 300 samples to come)"
    writer = ringmain.BetonWriter(tmp_path / "a.beton", {"a": "int", "b": "json"})
    assert repr(writer) == f"BetonWriter({tmp_path / 'a.beton'}, fields a, b)"


def test_options_are_named_as_in_python():
    beton = ringmain.Beton(VECTOR, engine=ringmain.Engine("pread"))
    with pytest.raises(ValueError, match='memory_manager.*"os_cache".*Engine\\("mmap"\\)'):
        beton.epoch(memory_manager="os_cache")


def test_jpegs_are_kept(tmp_path):
    stored = ringmain.Beton(VECTOR, images="stored")
    jpegs = [id for id in range(30) if EXPECTED["samples"][id]["img"][0] == 0]
    ringmain.BetonWriter(tmp_path / "a.beton", {"img": "image"}).from_iterable(
        [(stored[id]["img"].tobytes(),) for id in jpegs]
    )
    copy = ringmain.Beton(tmp_path / "a.beton")
    for at, id in enumerate(jpegs):
        np.testing.assert_array_equal(copy[at]["img"], ringmain.Beton(VECTOR)[id]["img"])


def test_a_file_of_any_number_of_workers(tmp_path):
    paths = [tmp_path / f"{workers}.beton" for workers in (1, 4)]
    for path, workers in zip(paths, (1, 4)):
        writer = ringmain.BetonWriter(path, FIELDS, workers=workers, deterministic=True)
        writer.from_indexed(Indexed())
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_samples_that_do_not_fit(tmp_path):
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
        ({"i": "image"}, [(3,)], TypeError, 'sample 0, field "i"'),
        ({"": "int"}, [], ValueError, "name"),
        ({"n": "int"}, [(1, 2)], ValueError, "2 values"),
        ({"n": "int"}, [{"m": 1}], ValueError, 'no "n"'),
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
            writer = ringmain.BetonWriter(tmp_path / "a.beton", {"n": "int"}, **{option: value})
            writer.from_iterable([(1,)])
    assert list(tmp_path.iterdir()) == []  # nothing is left


@pytest.mark.parametrize("kind", ["i1", "u1", ">i2"])
def test_numbers_that_do_not_fit_are_refused(tmp_path, kind):
    """They were cut to the bits that fit."""
    path = tmp_path / "a.beton"
    writer = ringmain.BetonWriter(path, {"a": {"kind": "array", "dtype": kind, "shape": (2,)}})
    for value in ([100_000, 2], (2, -100_000), [np.int64(100_000), 2], [2**70, 2]):
        with pytest.raises(ValueError, match='sample 1, field "a"'):
            writer.from_iterable([([1, 2],), (value,)])
    with pytest.raises(TypeError, match='sample 0, field "a"'):
        writer.from_iterable([(np.array([1, 2]),)])  # int64 may not fit, whatever is in it
    with pytest.raises(TypeError, match='sample 0, field "a"'):
        writer.from_iterable([([1.5, 2],)])
    info = np.iinfo(kind)
    samples = [[info.min, info.max], (True, False), np.array([0, 1], bool), np.array([5, 6], kind)]
    writer.from_iterable([(sample,) for sample in samples])
    for at, sample in enumerate(samples):
        np.testing.assert_array_equal(ringmain.Beton(path)[at]["a"], np.asarray(sample, kind))


def test_lists_of_numbers(tmp_path):
    path = tmp_path / "a.beton"
    field = {"kind": "array", "dtype": "f4", "shape": (2,)}
    samples = [[0.1, 2], (3, 4), np.array([5, 6], "f2"), np.array([7, 8], "i2"), [np.float64(9), 1]]
    ringmain.BetonWriter(path, {"a": field}).from_iterable([(sample,) for sample in samples])
    for at, sample in enumerate(samples):
        np.testing.assert_array_equal(ringmain.Beton(path)[at]["a"], np.asarray(sample, "f4"))


def test_places_that_cannot_be_written(tmp_path):
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
def test_what_an_iterator_raises_is_raised(tmp_path, kind):
    """It was lost where the iterator had yielded fewer samples than were declared."""

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


def test_what_a_maker_raises_is_raised(tmp_path):
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


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot be sent Ctrl-C there")
@pytest.mark.parametrize("method", ["from_indexed", "from_iterable"])
def test_ctrl_c_ends_a_writer(tmp_path, method):
    program = """
import sys, time, ringmain

class Slow:
    def __len__(self):
        return 1_000_000
    def __getitem__(self, at):
        print(at, flush=True)
        time.sleep(0.5)  # an iterator is asked for several at a time
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


def test_pickles_carry_options_only(monkeypatch, engine):
    monkeypatch.chdir(VECTOR.parent)
    beton = ringmain.Beton(VECTOR.name, engine=engine, images="stored")
    data = pickle.dumps(beton)
    assert len(data) < 1000
    monkeypatch.chdir("/")
    check_sample(pickle.loads(data)[1], EXPECTED["samples"][1], "stored")


def _labels(beton, queue):
    queue.put([beton[at]["label"] for at in range(20)])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_and_threads(method, engine):
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


def test_batches_return_to_the_pool():
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
    samples = list(beton)  # small ones do not keep a buffer each
    assert len(samples) == 300 and engine.pool_stats()["in_use_bytes"] == 0
