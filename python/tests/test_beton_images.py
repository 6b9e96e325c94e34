"""Images of `.beton` files in one size, compared with Pillow."""

import io
import math
import pickle
import sys
import time
import types

import interrupts
import numpy as np
import pytest
from beton_files import EXPECTED, VECTOR

import ringmain

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

# Pillow 13 resamples the columns first if that is less work. Each pass rounds to whole levels, so the order of the
# two can change a level by one.
LEVELS_MAX = 1

SIZES = [(1, 1), (1, 40), (37, 1), (2, 3), (16, 16), (31, 97), (120, 80), (200, 301)]


def pictures():
    """Images with smooth parts, edges and noise, one of each size."""
    random = np.random.default_rng(5)
    for height, width in SIZES:
        rows, columns = np.mgrid[:height, :width]
        smooth = np.stack([rows * 255 // height, columns * 255 // width, (rows + columns) % 256], 2)
        noise = random.integers(0, 256, (height, width, 3))
        edges = np.where((rows // 7 + columns // 5) % 2, 255, 0)[:, :, None]
        yield np.choose((rows + 2 * columns)[:, :, None] // 16 % 3, [smooth, noise, edges]).astype(np.uint8)


def by_pillow(picture, size, center_crop=None):
    height, width = picture.shape[:2]
    image = Image.fromarray(picture)
    if center_crop is not None:
        # The square of FFCV's CenterCropRGBImageDecoder.
        side = max(1, int(center_crop * min(height, width)))
        top, left = (height - side) // 2, (width - side) // 2
        image = image.crop((left, top, left + side, top + side))
    return np.asarray(image.resize((size[1], size[0]), Image.Resampling.BILINEAR))


def check_same(found, expected):
    assert found.dtype == np.uint8 and found.shape == expected.shape
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= LEVELS_MAX


@pytest.fixture(scope="module")
def raw_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("beton") / "a.beton"
    writer = ringmain.BetonWriter(path, {"n": "int", "img": "image"}, page_size=2 << 20)
    writer.from_iterable([(at, picture) for at, picture in enumerate(pictures())])
    return path


@pytest.mark.parametrize("center_crop", [None, 1, 224 / 256, 0.01])
@pytest.mark.parametrize("size", [(1, 1), (8, 8), (64, 48), (224, 224), (31, 97)], ids=str)
def test_images_are_resized_as_by_pillow(raw_file, size, center_crop):
    beton = ringmain.Beton(raw_file, resize=size, center_crop=center_crop)
    expected = [by_pillow(picture, size, center_crop) for picture in pictures()]
    batch = beton.read_batch(range(len(SIZES)))
    assert batch["n"].tolist() == list(range(len(SIZES)))
    check_same(batch["img"], np.stack(expected))
    for at in (0, 5, len(SIZES) - 1):
        check_same(beton[at]["img"], expected[at])


def test_jpegs_are_decoded_and_resized(engine):
    """The expected images are those that `Beton` decodes, so that only the resampling is compared."""
    ids = [id for id in range(40) if EXPECTED["samples"][id]["img"][0] == 0] + [0]
    decoded = ringmain.Beton(VECTOR, engine=engine).read_batch(ids)["img"]
    assert len({image.shape for image in decoded}) > 1
    found = ringmain.Beton(VECTOR, engine=engine, resize=(20, 24), center_crop=0.8).read_batch(ids)
    check_same(found["img"], np.stack([by_pillow(image, (20, 24), 0.8) for image in decoded]))


def test_an_epoch_delivers_one_array_of_images(raw_file, engine):
    beton = ringmain.Beton(raw_file, engine=engine, resize=(16, 12))
    expected = [by_pillow(picture, (16, 12)) for picture in pictures()]
    for copy in (beton, pickle.loads(pickle.dumps(beton))):
        seen = []
        for batch, ids in copy.epoch("random", batch_size=3):
            assert batch["img"].shape == (len(ids), 16, 12, 3)
            check_same(batch["img"], np.stack([expected[id] for id in ids]))
            seen += ids.tolist()
        assert sorted(seen) == list(range(len(SIZES)))
    cropped = ringmain.Beton(raw_file, resize=(16, 12), center_crop=0.5)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(cropped))[7]["img"], cropped[7]["img"])
    assert beton.read_batch([])["img"].shape == (0, 16, 12, 3)


def test_damaged_images_are_left_out(tmp_path):
    stored = ringmain.Beton(VECTOR, images="stored")
    id = next(id for id in range(30) if EXPECTED["samples"][id]["img"][0] == 0)
    jpeg = stored[id]["img"].tobytes()
    writer = ringmain.BetonWriter(tmp_path / "a.beton", {"img": "image"}, page_size=2 << 20)
    writer.from_iterable([(jpeg[: len(jpeg) // 2] if at == 2 else jpeg,) for at in range(6)])
    beton = ringmain.Beton(tmp_path / "a.beton", resize=(8, 8))
    with pytest.raises(ValueError, match="sample 2, field `img`"):
        beton.read_batch([1, 2])
    epoch = beton.epoch(batch_size=3, damaged="leave_out")
    found = [(ids.tolist(), batch["img"].shape) for batch, ids in epoch]
    assert found == [([0, 1], (2, 8, 8, 3)), ([3, 4, 5], (3, 8, 8, 3))] and epoch.left_out == 1


def test_a_batch_that_comes_again_counts_its_damaged_images_once(tmp_path):
    """They were counted before the transform, so a batch whose transform failed counted twice."""
    stored = ringmain.Beton(VECTOR, images="stored")
    id = next(id for id in range(30) if EXPECTED["samples"][id]["img"][0] == 0)
    jpeg = stored[id]["img"].tobytes()
    writer = ringmain.BetonWriter(tmp_path / "a.beton", {"img": "image"}, page_size=2 << 20)
    writer.from_iterable([(jpeg[: len(jpeg) // 2] if at == 2 else jpeg,) for at in range(6)])
    calls = []

    def fail_once(images, ids):
        calls.append(ids.tolist())
        if len(calls) == 1:
            raise ArithmeticError("too bright")

    epoch = ringmain.Beton(tmp_path / "a.beton", resize=(8, 8), transform=fail_once).epoch(damaged="leave_out")
    with pytest.raises(ArithmeticError):
        next(epoch)
    assert epoch.left_out == 0
    assert [ids.tolist() for _, ids in epoch] == [[0, 1, 3, 4, 5]] and epoch.left_out == 1


def test_a_worker_of_a_loader_decodes_with_one_thread_by_default(raw_file, monkeypatch):
    """Each worker decoded with a thread for each processor. The number of the program has precedence."""
    asked = []
    data = types.SimpleNamespace(get_worker_info=lambda: asked.append(1) or "a worker")
    monkeypatch.setitem(sys.modules, "torch.utils.data", data)
    for threads, is_asked in [(None, True), (3, False)]:
        asked.clear()
        beton = ringmain.Beton(raw_file, resize=(8, 8), decode_threads=threads)
        assert beton.read_batch([0, 1])["img"].shape == (2, 8, 8, 3)
        assert bool(asked) == is_asked


def test_kept_images_do_not_count_against_the_limit(raw_file):
    engine = ringmain.Engine("pread", memory_limit=1 << 20)
    beton = ringmain.Beton(raw_file, engine=engine, resize=(224, 224))
    kept = [beton.read_batch(range(len(SIZES)))["img"] for _ in range(4)]  # 1.2 MB each
    assert all(np.array_equal(kept[0], images) for images in kept)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"resize": (0, 8)}, ValueError, r"resize.*\(0, 8\).*at least one row"),
        ({"resize": (8, -1)}, ValueError, "resize cannot be -1"),
        ({"resize": (8, 65536)}, ValueError, "resize cannot be 65536"),
        ({"resize": (8, 8, 3)}, ValueError, "resize must have two numbers"),
        ({"resize": 8}, ValueError, "resize must have two numbers"),
        ({"resize": "8"}, TypeError, "resize"),
        ({"resize": (8.5, 8)}, TypeError, "float"),
        ({"resize": (8, 8), "images": "stored"}, ValueError, 'resize needs images="decoded"'),
        ({"center_crop": 0.5}, ValueError, "center_crop needs resize"),
        ({"resize": (8, 8), "center_crop": 0}, ValueError, "center_crop.*at most 1"),
        ({"resize": (8, 8), "center_crop": 1.5}, ValueError, "center_crop.*at most 1"),
        ({"resize": (8, 8), "center_crop": float("nan")}, ValueError, "center_crop.*at most 1"),
    ],
)  # fmt: skip
def test_invalid_sizes_are_errors(options, kind, message):
    with pytest.raises(kind, match=message):
        ringmain.Beton(VECTOR, **options)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot send Ctrl-C to one process")
def test_ctrl_c_ends_the_decoding_between_images(tmp_path):
    """Ctrl-C had no effect before all images of the batch were decoded."""
    noise = np.random.default_rng(1).integers(0, 256, (1000, 1000, 3), np.uint8)
    jpeg = io.BytesIO()
    Image.fromarray(noise).save(jpeg, "jpeg", quality=95)
    ringmain.BetonWriter(tmp_path / "a.beton", {"img": "image"}).from_iterable([(jpeg.getvalue(),)])
    beton = ringmain.Beton(tmp_path / "a.beton")
    start = time.monotonic()
    beton[0]
    one = time.monotonic() - start
    images = min(80, math.ceil(4 / one))
    start = time.monotonic()
    interrupts.raises_soon(lambda: beton.read_batch([0] * images))
    assert time.monotonic() - start < 0.3 + 0.6 * images * one


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot send Ctrl-C to one process")
def test_ctrl_c_ends_the_resizing_between_images(tmp_path):
    """Ctrl-C had no effect before all images of the batch were resized."""
    jpeg = io.BytesIO()
    Image.new("RGB", (1000, 1000), "red").save(jpeg, "jpeg")
    whole = jpeg.getvalue()
    samples = [(whole,), (whole[: len(whole) // 2],)]
    ringmain.BetonWriter(tmp_path / "a.beton", {"img": "image"}).from_iterable(samples)
    beton = ringmain.Beton(tmp_path / "a.beton", resize=(8, 8))
    with pytest.raises(ValueError, match="sample 1, field `img`"):
        beton.read_batch([0, 1])
    # The first 400 images have 1.2 GB of pixels, which takes seconds. The last one is an error if it is reached.
    interrupts.raises_soon(lambda: beton.read_batch([0] * 400 + [1]))
