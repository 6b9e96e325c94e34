"""Checks that ffcv reads the datasets that Ringmain writes, and the other way round.

python ffcv_check.py made FILE SAMPLES SAMPLE_BYTES FIELDS SEED varied|fixed
    Checks a FILE of `ringmain gen beton`: every sample must have the values that follow from the seed.
python ffcv_check.py write FILE PAGE_BYTES
    Makes FILE with ffcv's writer, with all its kinds of fields, and images both raw and as JPEG.
python ffcv_check.py same A B
    Checks that both files have the same samples.
"""

import json
import sys

import numpy as np
import torch
from ffcv.fields import (
    BytesField,
    FloatField,
    IntField,
    JSONField,
    NDArrayField,
    RGBImageField,
    TorchTensorField,
)
from ffcv.loader import Loader, OrderOption
from ffcv.reader import Reader
from ffcv.writer import DatasetWriter

BATCH = 64
IMAGE_WIDTH = 64


# -- the values that follow from a seed -------------------------------------------------------


def mix(value):
    """Returns splitmix64 of arrays of u64, as in `ringmain gen`."""
    with np.errstate(over="ignore"):
        value = np.uint64(value) + np.uint64(0x9E3779B97F4A7C15)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return value ^ (value >> np.uint64(31))


class Noise:
    def __init__(self, seed):
        self.seed, self.at = mix(seed), 0

    def bytes(self, length):
        count = -(-length // 8)
        with np.errstate(over="ignore"):
            at = np.arange(self.at, self.at + count, dtype=np.uint64) * np.uint64(0x9E3779B9)
            words = mix(self.seed + at)
        self.at += count
        return words.astype("<u8").tobytes()[:length]

    def word(self):
        return int.from_bytes(self.bytes(8), "little")


def made_sample(sample, sample_bytes, fields, seed, varied):
    """Returns the values of a sample: numbers, or the bytes of a region."""
    with np.errstate(over="ignore"):
        noise = Noise(np.uint64(seed) + mix(sample))
    sharing = [field for field in fields if field in ("bytes", "ndarray", "tensor", "image")]
    share = sample_bytes // max(len(sharing), 1)
    values = []
    for field in fields:
        if field == "int":
            values.append(int(np.uint64(noise.word()).astype(np.int64)))
        elif field == "float":
            values.append(float(noise.word() >> 11))
        elif field == "json":
            text = '{"id": %d, "noise": "%016x"}' % (sample, noise.word())
            values.append(text.encode() + b"\0")
        elif field == "bytes":
            length = noise.word() % (2 * share + 1) if varied else share
            values.append(noise.bytes(length))
        elif field in ("ndarray", "tensor"):
            item = 4 if field == "ndarray" else 2
            values.append(noise.bytes(max(share // item, 1) * item))
        else:
            pixels = max(share // 3, 1)
            width = min(IMAGE_WIDTH, pixels)
            values.append(noise.bytes(width * min(pixels // width, 65535) * 3))
    return values


# -- the values that ffcv reads ---------------------------------------------------------------


def reader_samples(path):
    """Returns all values, found with the metadata and the allocation table of ffcv's Reader."""
    reader = Reader(path)
    data = np.memmap(path, dtype="u1", mode="r")
    sizes = dict(zip(reader.alloc_table["ptr"].tolist(), reader.alloc_table["size"].tolist()))
    assert len(sizes) == len(reader.alloc_table), "two regions begin at the same offset"
    names = reader.metadata_type.names
    handlers = list(reader.handlers.values())

    def value(row, name, handler):
        member = row[name]
        if isinstance(handler, (IntField, FloatField)):
            return member.item()
        if isinstance(handler, NDArrayField):
            ptr = int(member)
        elif isinstance(handler, RGBImageField):
            ptr = int(member["data_ptr"])
        else:
            ptr = int(member["ptr"])
            assert sizes[ptr] == member["size"]
        content = data[ptr : ptr + sizes[ptr]].tobytes()
        if isinstance(handler, RGBImageField):
            return int(member["mode"]), int(member["width"]), int(member["height"]), content
        return content

    samples = [
        [value(row, name, handler) for name, handler in zip(names, handlers)]
        for row in reader.metadata
    ]
    return reader, handlers, samples


def loader_batches(path, os_cache, left_out):
    """Returns the batches of ffcv's Loader, in order, without the fields in `left_out`."""
    return Loader(
        path,
        batch_size=BATCH,
        num_workers=2,
        order=OrderOption.SEQUENTIAL,
        drop_last=False,
        os_cache=os_cache,
        pipelines={name: None for name in left_out},
    )


def as_read(handler, value):
    """Returns a value of Reader in the form that Loader delivers. Returns None for a JPEG, which Loader
    decodes."""
    if isinstance(handler, RGBImageField):
        mode, width, height, content = value
        return content if mode == 1 else None
    return value


def same_as_loaded(handler, loaded, value):
    if isinstance(handler, (IntField, FloatField)):
        return loaded.item() == value
    if isinstance(handler, JSONField):
        return JSONField.unpack(loaded) == json.loads(value[:-1])
    found = np.ascontiguousarray(loaded.numpy()).view("u1").reshape(-1)
    # Loader pads bytes to the longest value of the file.
    return found[: len(value)].tobytes() == value


def check_loader(path, reader, handlers, samples, left_out=()):
    """Checks that Loader delivers the same values as Reader, with both of its memory managers."""
    kept = [
        (at, handler)
        for at, (name, handler) in enumerate(zip(reader.field_names, handlers))
        if name not in left_out
    ]
    for os_cache in (True, False):
        seen = 0
        for batch in loader_batches(path, os_cache, left_out):
            assert len(batch) == len(kept)
            for (at, handler), column in zip(kept, batch):
                for row, loaded in enumerate(column):
                    value = as_read(handler, samples[seen + row][at])
                    assert value is None or same_as_loaded(handler, loaded, value), (
                        f"{path}: sample {seen + row}, field {reader.field_names[at]}: "
                        f"Loader (os_cache={os_cache}) delivers another value than Reader"
                    )
            seen += len(batch[0])
        assert seen == len(samples), f"{path}: Loader delivers {seen} of {len(samples)} samples"


# -- the three commands -----------------------------------------------------------------------


def check_made(path, samples, sample_bytes, fields, seed, varied):
    samples, sample_bytes, seed = int(samples), int(sample_bytes), int(seed)
    fields = fields.split(",")
    reader, handlers, found = reader_samples(path)
    assert len(found) == samples
    for sample, values in enumerate(found):
        expected = made_sample(sample, sample_bytes, fields, seed, varied == "varied")
        plain = [value[3] if isinstance(value, tuple) else value for value in values]
        for field, got, wanted in zip(fields, plain, expected, strict=True):
            assert got == wanted, f"{path}: sample {sample}, field {field} has a wrong value"
    check_loader(path, reader, handlers, found)
    print(f"{path}: Reader and Loader return the right values for all {samples} samples")


class Mixed:
    """Samples with every kind of field and many sizes."""

    def __len__(self):
        return 700

    def __getitem__(self, at):
        at = int(at)
        random = np.random.default_rng(at)
        size = (int(random.integers(4, 60)), int(random.integers(4, 60)), 3)
        return (
            at - 350,
            at / 7,
            random.integers(0, 256, int(random.integers(1, 20_000)), dtype="u1"),
            random.random((3, 5), dtype="f4"),
            {"at": at, "text": "ü" * (at % 9)},
            torch.from_numpy(random.integers(-9, 9, (7,), dtype="i8")),
            random.integers(0, 256, size, dtype="u1"),
            random.integers(0, 256, (16, 24, 3), dtype="u1"),
        )


def write_mixed(path, page_bytes):
    fields = {
        "label": IntField(),
        "score": FloatField(),
        "blob": BytesField(),
        "matrix": NDArrayField(np.dtype("f4"), (3, 5)),
        "meta": JSONField(),
        "tensor": TorchTensorField(torch.int64, (7,)),
        "picture": RGBImageField(write_mode="proportion", compress_probability=0.5),
        "thumbnail": RGBImageField(write_mode="raw"),
    }
    writer = DatasetWriter(path, fields, page_size=int(page_bytes), num_workers=2)
    writer.from_indexed_dataset(Mixed(), chunksize=20)


def check_same(one, other):
    _, _, first = reader_samples(one)
    reader, handlers, second = reader_samples(other)
    assert len(first) == len(second)
    for sample, (left, right) in enumerate(zip(first, second)):
        for name, was, now in zip(reader.field_names, left, right, strict=True):
            assert was == now, f"{other}: sample {sample}, field {name} differs from that of {one}"
    # ffcv can only batch images of the same size.
    check_loader(other, reader, handlers, second, left_out=["picture"])
    print(f"{other}: Reader and Loader return the {len(second)} samples of {one}")


if __name__ == "__main__":
    commands = {"made": check_made, "write": write_mixed, "same": check_same}
    commands[sys.argv[1]](*sys.argv[2:])
