"""Memory and file descriptors over many reads. Each test measures in its own process."""

import os
import subprocess
import sys

import numpy as np
import pytest

import ringmain

MEASURE = """
import gc, os, random, sys
import numpy as np, ringmain

def rss():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def descriptors():
    return len(os.listdir("/proc/self/fd"))

def engine(name):
    # By default a mapping keeps the pages that it has read.
    return ringmain.Engine(name, residency="release" if name == "mmap" else None)
"""


def in_child(script, *args):
    command = [sys.executable, "-c", MEASURE + script, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "f32"
    np.random.default_rng(5).random((128 << 20) // 4, np.float32).tofile(path)
    return path


EPOCHS = """
path, backend = sys.argv[1:]
memmap = np.memmap(path, np.float32, "r", shape=(32768, 1024))
view = memmap if backend == "np.memmap" else ringmain.ContiguousMemmap(memmap, engine=engine(backend))
starts = list(range(0, 32768, 16))
most = 0
def epoch(seed):
    global most
    total = 0.0
    random.Random(seed).shuffle(starts)
    for number, start in enumerate(starts):
        total += float(np.array(view[start : start + 16])[0, 0])
        if number % 64 == 0:
            most = max(most, rss())
    if backend != "np.memmap":
        for at in range(0, len(starts), 64):
            ringmain.read_many([view[start : start + 16] for start in starts[at : at + 64]])
np.asarray(view[:16])
before = rss()
epoch(1)
epoch(2)
print(max(most, rss()) - before)
"""


RESIDENT_MAX = 24 << 20


def test_two_epochs_of_windows_leave_nothing_resident(large, backend):
    (grown,) = in_child(EPOCHS, large, backend)
    assert grown < RESIDENT_MAX, f"{grown >> 20} MiB of 128 stayed"


def test_two_epochs_through_a_mapping_stay_resident(large):
    """Shows that the test above can fail: a mapping exceeds its limit."""
    (grown,) = in_child(EPOCHS, large, "np.memmap")
    assert grown > RESIDENT_MAX, f"only {grown >> 20} MiB stayed: the test above would not notice"


LOOP = """
path, backend = sys.argv[1:]
engine = engine(backend)
def loop(count):
    for at in range(count):
        view = ringmain.open_raw(path, np.float32, (32768, 1024), engine=engine)
        np.asarray(view[at % 32768])
        view[at % 32768, 3]
        if at % 8 == 0:
            np.asarray(view[at % 30000 : at % 30000 + 32])
            view.read(slice(0, 64, 2))
            view.read([1, 5, at % 32768])
            ringmain.read_many([view[1], view[7:40]])
            try:
                view[::2]
            except TypeError:
                pass
# `auto` opens the file for the page cache and for the device when it first needs them.
descriptor = os.open(path, os.O_RDONLY)
os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
loop(500)
with open(path, "rb") as file:
    while file.read(1 << 20):
        pass
loop(500)
gc.collect()
before, open_before = rss(), descriptors()
loop(6000)
gc.collect()
print(rss() - before, descriptors() - open_before)
"""


def test_a_long_loop_keeps_neither_memory_nor_descriptors(large, backend):
    grown, opened = in_child(LOOP, large, backend)
    assert grown < 8 << 20, f"{grown >> 10} KiB in 6000 rounds"
    assert opened == 0


def test_many_files_need_few_descriptors(tmp_path, backend):
    """A view keeps the path of its file, and the number of open files is bounded."""
    for at in range(400):
        (tmp_path / str(at)).write_bytes(bytes([at % 256]) * 100_000)
    before = len(os.listdir("/proc/self/fd"))
    engine = ringmain.Engine(backend, open_files=16)
    views = [ringmain.open_raw(tmp_path / str(at), "u1", 100_000, engine=engine) for at in range(400)]
    for at, array in enumerate(ringmain.read_many(views)):
        assert array[0] == array[-1] == at % 256
    assert all(np.asarray(view)[5] == at % 256 for at, view in enumerate(views))
    # 16 open files, and the descriptors of the rings.
    assert len(os.listdir("/proc/self/fd")) - before < 24


def machine_bytes():
    """Returns the memory of the machine, or of the container if that has less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open("/sys/fs/cgroup/memory.max") as file:
            return min(total, int(file.read()))
    except (OSError, ValueError):
        return total


def test_the_default_limit_is_half_a_gibibyte_or_a_quarter_of_the_machine():
    expected = max(64 << 20, min(512 << 20, machine_bytes() // 4))
    assert ringmain.Engine().memory_limit == expected
    assert ringmain.Engine().pool_stats()["limit_bytes"] == expected - (expected // 2 - expected // 64)


def test_a_batch_of_images_fits_the_default_limit(tmp_path):
    """The images of ImageNet have about 100 KB. A batch here has 256 samples of that size."""
    if machine_bytes() < 2 << 30:
        pytest.skip("the default limit is lower on a machine of less than 2 GiB")
    path, sample = tmp_path / "a.beton", bytes(100_000)
    writer = ringmain.BetonWriter(path, {"image": "bytes"}, workers=1)
    writer.from_iterable(((sample,) for _ in range(512)), 512)
    batches = [ids for _, ids in ringmain.Beton(path, engine=ringmain.Engine()).epoch("random", batch_size=256)]
    assert [len(ids) for ids in batches] == [256, 256]


NO_DESCRIPTORS = """
import resource, sys
import numpy as np, ringmain

engine = ringmain.Engine("pread", open_files=1)
views = [ringmain.open_raw(path, "u1", engine=engine) for path in sys.argv[1:]]
for view in views:
    np.asarray(view)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
try:
    np.asarray(views[0])
except OSError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on descriptors")
def test_messages_of_reads_use_the_option_names_of_python(tmp_path):
    """The hint named `open_files_max`, which is the name of the option in Rust."""
    paths = [tmp_path / "open_files_max", tmp_path / "b"]
    for path in paths:
        path.write_bytes(b"12345678")
    command = [sys.executable, "-c", NO_DESCRIPTORS, *map(str, paths)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "lower `open_files`" in printed
    assert printed.count(str(paths[0])) == 2, "the name of the file stays as it is"
