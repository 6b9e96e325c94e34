"""Compares ffcv and Ringmain on decoding: a .beton file of JPEGs in random order, the square at the centre of each image
as 224 x 224 pixels, two threads that decode, in interleaved rounds.

python images.py --generate FILE IMAGES     makes the file, with pictures like those of ImageNet
python images.py FILE [ROUNDS]

Each epoch runs in its own process. It is the second one there, so that neither the compilation of ffcv nor the first use
of memory is timed. Cold rounds use ffcv's process cache, warm rounds its OS cache. In cold rounds the file is dropped
from the page cache before the epoch.
"""

import io
import json
import statistics
import subprocess
import sys
import time

from page_cache import make_cold, make_warm

BATCH = 256
WORKERS = 2
SIZE = 224
RATIO = 224 / 256
ROUNDS = 5
# Each picture comes several times: encoding a JPEG takes longer than reading it.
PICTURES = 200
LOADERS = {"cold": ["ffcv process cache", "ringmain"], "warm": ["ffcv OS cache", "ringmain"]}


def picture(number):
    """Returns a JPEG with the size and the bytes of a usual image of ImageNet."""
    import numpy as np
    from PIL import Image

    random = np.random.default_rng(number)
    width, height = [(500, 375), (375, 500), (500, 333), (640, 480)][number % 4]
    pixels = random.normal(128, 6, (height, width, 3))
    for scale in (4, 8, 16, 32, 64, 128):
        for channel in range(3):
            coarse = random.normal(0, scale**0.8, (height // scale + 2, width // scale + 2))
            fine = Image.fromarray(coarse.astype(np.float32)).resize((width, height), Image.Resampling.BICUBIC)
            pixels[:, :, channel] += np.asarray(fine)
    encoded = io.BytesIO()
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(encoded, "jpeg", quality=90)
    return encoded.getvalue()


def generate(path, images):
    import ringmain

    pictures = [picture(number) for number in range(min(PICTURES, images))]
    samples = ((pictures[at % len(pictures)], at % 1000) for at in range(images))
    ringmain.BetonWriter(path, {"image": "image", "label": "int"}).from_iterable(samples, images)


def ffcv_loader(path, state):
    from ffcv.fields.decoders import CenterCropRGBImageDecoder, IntDecoder
    from ffcv.loader import Loader, OrderOption

    image = [CenterCropRGBImageDecoder((SIZE, SIZE), ratio=RATIO)]
    return Loader(
        path,
        batch_size=BATCH,
        num_workers=WORKERS,
        order=OrderOption.RANDOM,
        os_cache=state == "warm",
        drop_last=False,
        pipelines={"image": image, "label": [IntDecoder()]},
    )


def ringmain_loader(path):
    import ringmain

    beton = ringmain.Beton(path, resize=(SIZE, SIZE), center_crop=RATIO, decode_threads=WORKERS)
    return ((batch["image"], ids) for batch, ids in beton.epoch("random", batch_size=BATCH))


def epoch(loader, path, state):
    """Returns the images per second of an epoch in this process."""
    if loader == "ringmain":

        def begin():
            return ringmain_loader(path)
    else:
        of_ffcv = ffcv_loader(path, state)

        def begin():
            return of_ffcv

    for images, _ in begin():
        if images.shape[1:] != (SIZE, SIZE, 3):
            sys.exit(f"{loader} delivered images of {images.shape}")
    make_cold(path) if state == "cold" else make_warm(path)
    started, total = time.perf_counter(), 0
    for images, _ in begin():
        total += len(images)
    return total / (time.perf_counter() - started)


def rate(loader, path, state):
    command = [sys.executable, __file__, "--epoch", loader, path, state]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    path = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    for state, loaders in LOADERS.items():
        rates = {loader: [] for loader in loaders}
        for _ in range(rounds):
            for loader in loaders:
                rates[loader].append(rate(loader, path, state))
        medians = {loader: statistics.median(runs) for loader, runs in rates.items()}
        print(f"\nJPEGs decoded and cropped to {SIZE} x {SIZE} by {WORKERS} threads, {state} (medians of {rounds} rounds)")
        print(f"{'':24} {'images/s':>9} {'range':>15} {'/ ffcv':>8}")
        for loader, median in medians.items():
            runs = f"{min(rates[loader]):.0f} to {max(rates[loader]):.0f}"
            print(f"{loader:24} {median:9.0f} {runs:>15} {median / medians[loaders[0]]:8.2f}")


if __name__ == "__main__":
    if sys.argv[1] == "--epoch":
        print(json.dumps(epoch(*sys.argv[2:])))
    elif sys.argv[1] == "--generate":
        generate(sys.argv[2], int(sys.argv[3]))
    else:
        main()
