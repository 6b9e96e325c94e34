"""`.beton` files for the tests: one that FFCV wrote, and samples to write."""

import hashlib
import json
from pathlib import Path

import numpy as np

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


def write_images(path, count):
    image = np.zeros((128, 128, 3), np.uint8)
    samples = ((image + at,) for at in range(count))
    ringmain.BetonWriter(path, {"img": "image"}).from_iterable(samples, count)
