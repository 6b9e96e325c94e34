"""The decoding of `.beton` images: compared with Pillow, and input that must be refused."""

import io
import pickle
import signal
import time

import numpy as np
import pytest
from beton_files import EXPECTED, VECTOR
from test_beton_images import by_pillow, check_same, pictures

import ringmain

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

# The standard lets each value of the inverse cosine transform differ by one, and the colours of a pixel are sums of
# up to three such values with weights up to 1.77. The interpolation of colours that are stored in half size adds a
# rounding of its own. zune-jpeg and libjpeg-turbo differ by up to 5 levels; on average by less than half a level.
LEVELS_MAX = 6
LEVELS_MEAN = 0.6


def smooth(height, width):
    """A picture with gradients, soft edges and a little noise, as photographs have them."""
    random = np.random.default_rng(height * 1000 + width)
    coarse = random.integers(0, 256, (height // 16 + 2, width // 16 + 2, 3), np.uint8)
    large = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    noisy = np.asarray(large).astype(int) + random.integers(-3, 4, (height, width, 3))
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


def jpeg(image, **options):
    encoded = io.BytesIO()
    image.save(encoded, "jpeg", **{"quality": 92, **options})
    return encoded.getvalue()


def write(path, jpegs):
    ringmain.BetonWriter(path, {"img": "image"}, page_size=2 << 20).from_iterable([(one,) for one in jpegs])
    return path


KINDS = {
    "4:4:4": {"subsampling": 0},
    "4:2:2": {"subsampling": 1},
    "4:2:0": {"subsampling": 2},
    "progressive": {"progressive": True},
    "restarts": {"restart_marker_blocks": 3},
    "optimised": {"optimize": True},
}


@pytest.mark.parametrize("kind", [*KINDS, "grey"])
def test_pixels_are_those_of_pillow(tmp_path, kind):
    # libjpeg does not interpolate colours that have only one or two columns, so a narrow image has no half of them.
    narrow = 3 if kind in ("4:4:4", "grey") else 5
    sizes = [(64, 64), (1, 1), (7, 9), (33, 17), (100, 75), (8, 200), (255, narrow)]
    images = [smooth(*size) for size in sizes]
    if kind == "grey":
        images = [image.convert("L") for image in images]
    jpegs = [jpeg(image, **KINDS.get(kind, {})) for image in images]
    beton = ringmain.Beton(write(tmp_path / "a.beton", jpegs))
    for found, encoded in zip(beton.read_batch(range(len(jpegs)))["img"], jpegs):
        expected = np.asarray(Image.open(io.BytesIO(encoded)).convert("RGB")).astype(int)
        difference = np.abs(found.astype(int) - expected)
        assert difference.max() <= LEVELS_MAX and difference.mean() <= LEVELS_MEAN, expected.shape


@pytest.fixture(scope="module")
def raw_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("beton") / "a.beton"
    writer = ringmain.BetonWriter(path, {"img": "image"}, page_size=2 << 20)
    writer.from_iterable([(picture,) for picture in pictures()])
    return path


JPEGS = [id for id in range(60) if EXPECTED["samples"][id]["img"][0] == 0]


@pytest.mark.parametrize("options", [{}, {"resize": (20, 24), "random_crop": (0.1, 1), "dtype": "float16"}], ids=str)
def test_the_number_of_threads_changes_no_byte(options):
    one, *others = (
        ringmain.Beton(VECTOR, decode_threads=threads, **options).read_batch(JPEGS)["img"] for threads in (1, 2, 9)
    )
    for other in others:
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_numbers_have_a_type_an_order_and_a_normalisation(raw_file):
    size = {"resize": (31, 40)}
    plain = ringmain.Beton(raw_file, **size).read_batch(range(8))["img"]
    planes = ringmain.Beton(raw_file, layout="nchw", **size).read_batch(range(8))["img"]
    assert planes.dtype == np.uint8 and np.array_equal(planes, plain.transpose(0, 3, 1, 2))
    mean, std = np.array([123.7, 116.3, 103.5], "f4"), np.array([58.4, 57.1, 57.4], "f4")
    for dtype in ("float32", "float16", np.float32, np.dtype("f2")):
        beton = ringmain.Beton(raw_file, dtype=dtype, **size)
        found = beton.read_batch(range(8))["img"]
        assert found.dtype == np.dtype(dtype) and np.array_equal(found, plain.astype(dtype))
        beton = ringmain.Beton(raw_file, dtype=dtype, layout="nchw", mean=mean.tolist(), std=tuple(std), **size)
        expected = ((plain.astype("f4") - mean) / std).astype(dtype).transpose(0, 3, 1, 2)
        for copy in (beton, pickle.loads(pickle.dumps(beton))):
            np.testing.assert_array_equal(copy.read_batch(range(8))["img"], expected)
        np.testing.assert_array_equal(beton[5]["img"], expected[5])
        assert beton.sample_bytes([0]).tolist() == [31 * 40 * 3 * found.itemsize]


def test_random_crops_depend_on_seed_epoch_and_sample_alone(raw_file):
    def crops(seed=0, epoch=0, ids=range(8)):
        options = {"random_crop": (0.2, 0.8), "crop_ratio": (0.5, 2), "crop_seed": seed}
        return ringmain.Beton(raw_file, resize=(9, 7), **options).read_batch(ids, epoch=epoch)["img"]

    assert np.array_equal(crops(), crops()) and np.array_equal(crops(), crops(ids=range(7, -1, -1))[::-1])
    assert not np.array_equal(crops(), crops(seed=1)) and not np.array_equal(crops(), crops(epoch=1))
    beton = ringmain.Beton(raw_file, resize=(9, 7), random_crop=(0.2, 0.8), crop_ratio=(0.5, 2))
    np.testing.assert_array_equal(beton[7]["img"], crops()[7])
    batches = beton.epoch("random", batch_size=3, epoch=4)
    for epoch in (4, 5):  # each loop begins the next epoch
        for batch, ids in batches:
            np.testing.assert_array_equal(batch["img"], crops(epoch=epoch)[ids])
    workers = [beton.epoch("random", batch_size=2, epoch=4, worker=worker, workers=3) for worker in range(3)]
    for batch, ids in (delivered for worker in workers for delivered in worker):
        np.testing.assert_array_equal(batch["img"], crops(epoch=4)[ids])


def test_a_random_crop_of_everything_is_the_whole_image(raw_file):
    beton = ringmain.Beton(raw_file, resize=(24, 20), random_crop=(1, 1), crop_ratio=(0.001, 1000))
    expected = [by_pillow(picture, (24, 20)) for picture in pictures()]
    wide = [picture.shape[:2] == (16, 16) for picture in pictures()].index(True)
    assert beton.read_batch(range(8))["img"].shape == (8, 24, 20, 3)
    whole = ringmain.Beton(raw_file, resize=(24, 20), random_crop=(1, 1), crop_ratio=(1, 1))
    check_same(whole[wide]["img"], expected[wide])


def test_a_transform_writes_in_place(raw_file):
    plain = ringmain.Beton(raw_file, resize=(8, 6)).read_batch(range(8))["img"]
    seen = []

    def invert(images, ids):
        seen.append(ids.tolist())
        assert images.shape == (len(ids), 8, 6, 3)
        np.subtract(255, images, out=images)

    beton = ringmain.Beton(raw_file, resize=(8, 6), transform=invert)
    np.testing.assert_array_equal(beton.read_batch([3, 1])["img"], 255 - plain[[3, 1]])
    np.testing.assert_array_equal(beton[5]["img"], 255 - plain[5])
    assert seen == [[3, 1], [5]]
    for batch, ids in beton.epoch("random", batch_size=3):
        np.testing.assert_array_equal(batch["img"], 255 - plain[ids])


class TooBrightError(Exception):
    pass


def test_a_transform_that_raises_names_its_samples(raw_file):
    calls = []

    def fail_once(images, ids):
        calls.append(ids.tolist())
        if len(calls) == 2:
            raise TooBrightError("too bright")

    beton = ringmain.Beton(raw_file, resize=(8, 6), transform=fail_once)
    epoch = beton.epoch(batch_size=3, damaged="leave_out")
    assert next(epoch)[1].tolist() == [0, 1, 2]
    with pytest.raises(TooBrightError, match="too bright") as raised:
        next(epoch)
    assert raised.value.__notes__ == ["in the transform of field `img` of the samples 3, 4, 5"]
    # Nothing is lost: the same batch comes again, and no sample counts as damaged.
    assert [ids.tolist() for _, ids in epoch] == [[3, 4, 5], [6, 7]] and epoch.left_out == 0

    value_error = ringmain.Beton(raw_file, resize=(8, 6), transform=lambda images, ids: int("x"))
    with pytest.raises(ValueError, match="invalid literal") as raised:
        list(value_error.epoch(batch_size=20, damaged="leave_out"))
    assert "samples 0, 1, 2, 3, 4, 5, 6, 7" in raised.value.__notes__[0]
    returning = ringmain.Beton(raw_file, resize=(8, 6), transform=lambda images, ids: images)
    with pytest.raises(TypeError, match="in place and return None"):
        returning[0]


def frame_at(encoded):
    """The place of the frame header: its bits, its height, its width, the number of its colours."""
    return next(at for at in range(len(encoded)) if encoded[at] == 0xFF and encoded[at + 1] in (0xC0, 0xC2)) + 4


def with_frame(encoded, at, data):
    start = frame_at(encoded) + at
    return encoded[:start] + data + encoded[start + len(data) :]


BAD = {
    # An honest header of 12.9 GB of pixels, which the metadata repeats.
    "bomb": (lambda good: with_frame(good, 1, b"\xff" * 4), "65535 × 65535 pixels is larger than the limit of 178956970"),
    "cmyk": (lambda good: jpeg(smooth(20, 30).convert("CMYK")), "CMYK; convert it to RGB"),
    "16 bits": (lambda good: with_frame(good, 0, b"\x10"), "16 bits, not 8"),
    "truncated": (lambda good: good[: len(good) // 2], "bad JPEG"),
    "no data": (lambda good: good[: frame_at(good) + 20], "bad JPEG"),
}


@pytest.mark.parametrize("options", [{}, {"resize": (8, 8)}], ids=["own size", "resized"])
@pytest.mark.parametrize("kind", BAD)
def test_bad_jpegs_are_errors_that_name_the_sample(tmp_path, kind, options):
    make, message = BAD[kind]
    good = jpeg(smooth(64, 48))
    path = write(tmp_path / "a.beton", [good, good, make(good), good])
    beton = ringmain.Beton(path, **options)
    with pytest.raises(ValueError, match=f"sample 2, field `img`.*{message}"):
        beton.read_batch([0, 1, 2])
    with pytest.raises(ValueError, match="sample 2, field `img`"):
        beton[2]
    epoch = beton.epoch(damaged="leave_out")
    assert [ids.tolist() for _, ids in epoch] == [[0, 1, 3]] and epoch.left_out == 1


def test_the_size_must_be_that_of_the_metadata(tmp_path):
    good = jpeg(smooth(64, 48))
    path = write(tmp_path / "a.beton", [good])
    data = path.read_bytes()
    at = data.index(good)
    path.write_bytes(data[:at] + with_frame(good, 1, b"\0\x41") + data[at + len(good) :])
    with pytest.raises(ValueError, match=r"it has \(48, 65\) pixels, but the metadata says \(48, 64\)"):
        ringmain.Beton(path)[0]


def test_the_limit_of_pixels_can_be_set(tmp_path):
    path = write(tmp_path / "a.beton", [jpeg(smooth(64, 48))])
    assert ringmain.Beton(path, pixels_max=64 * 48)[0]["img"].shape == (64, 48, 3)
    with pytest.raises(ValueError, match="48 × 64 pixels is larger than the limit of 3071 pixels"):
        ringmain.Beton(path, pixels_max=64 * 48 - 1)[0]


def test_an_interrupt_ends_the_decoding_of_all_fields(tmp_path):
    """It only ended that of the first field. The second was decoded, and its damage became the exception."""
    large, bad = jpeg(Image.new("RGB", (1000, 1000))), jpeg(smooth(64, 48))[:999]
    path = tmp_path / "a.beton"
    writer = ringmain.BetonWriter(path, {"first": "image", "second": "image"}, page_size=2 << 20)
    writer.from_iterable([(large, large), (large, bad)])
    beton = ringmain.Beton(path, resize=(8, 8), decode_threads=1)
    beton[0]  # makes the engine
    began = time.process_time()
    beton.read_batch([0] * 10)
    # The interrupt comes in the first quarter of the first field, by the processor time of this process.
    seconds = 0.3
    count = int(8 * 10 * seconds / (time.process_time() - began))
    before = signal.signal(signal.SIGPROF, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        with pytest.raises(KeyboardInterrupt):
            beton.read_batch([0] * count + [1])
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"random_crop": (0.1, 1)}, ValueError, "random_crop needs resize"),
        ({"dtype": "float32"}, ValueError, "dtype needs resize"),
        ({"layout": "nchw"}, ValueError, "layout needs resize"),
        ({"transform": print}, ValueError, "transform needs resize"),
        ({"resize": (8, 8), "crop_ratio": (1, 2)}, ValueError, "crop_ratio needs random_crop"),
        ({"resize": (8, 8), "crop_seed": 1}, ValueError, "crop_seed needs random_crop"),
        ({"resize": (8, 8), "center_crop": 0.5, "random_crop": (0.1, 1)}, ValueError, "exclude each other"),
        ({"resize": (8, 8), "random_crop": (0.5, 1.5)}, ValueError, "random_crop.*at most 1"),
        ({"resize": (8, 8), "random_crop": (0.5, 0.1)}, ValueError, "random_crop.*smallest"),
        ({"resize": (8, 8), "random_crop": 0.5}, TypeError, "random_crop must be two numbers"),
        ({"resize": (8, 8), "random_crop": (0.1, 1), "crop_ratio": (0, 1)}, ValueError, "crop_ratio.*above 0"),
        ({"resize": (8, 8), "dtype": "int16"}, ValueError, "dtype cannot be"),
        ({"resize": (8, 8), "layout": "hwc"}, ValueError, "layout cannot be"),
        ({"resize": (8, 8), "mean": (1, 2, 3)}, ValueError, "mean.*choose f16 or f32"),
        ({"resize": (8, 8), "dtype": "f4", "std": (0.2, 0.2, 0.2)}, ValueError, "multiply the values of torchvision"),
        ({"decode_threads": 0}, ValueError, "decode_threads cannot be 0"),
    ],
)  # fmt: skip
def test_invalid_options_are_errors(options, kind, message):
    with pytest.raises(kind, match=message):
        ringmain.Beton(VECTOR, **options)
