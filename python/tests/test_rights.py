"""Files of other users: the kernel does not tell which of their pages are cached."""

import os
import pickle
import subprocess
import sys
import tempfile

import page_cache
import pytest

# A file that belongs to root and that every user may read.
OF_ROOT = "/etc/passwd"

# Root gives up its rights after the imports: an ordinary user may not be able to read the modules.
SETUP = """
import mmap, os, pickle, sys, uuid, warnings
import numpy as np
import ml_dtypes, numpy.random, numpy.testing, ringmain, ringmain._selection, ringmain.safetensors, ringmain.safetensors.numpy
sys.path.insert(0, sys.argv[2])
import page_cache
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
path = sys.argv[1]
if page_cache.cached_pages(path if os.path.isfile(path) else os.path.join(path, "0.npy")) is not None:
    print("this kernel tells every reader which pages are cached")
    raise SystemExit(77)
warnings.simplefilter("error")
"""


def run_without_rights(script, path=OF_ROOT):
    command = [sys.executable, "-c", SETUP + script, path, os.path.dirname(__file__)]
    done = subprocess.run(command, text=True, timeout=300, capture_output=True)
    if done.returncode == 77:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stderr


def test_auto_gives_no_warning():
    """`auto` used to warn that it reads batches from the device, and to recommend another backend."""
    run_without_rights("""
engine = ringmain.Engine()
before = engine.describe()
size = os.path.getsize(path)
view = ringmain.open_raw(path, "u1", size, engine=engine)
with open(path, "rb") as file:
    expected = file.read()
for _ in range(10):
    assert np.asarray(view).tobytes() == expected
    assert [array.tobytes() for array in ringmain.read_many([view, view])] == [expected] * 2
assert engine.describe() == before
""")


@pytest.fixture(scope="module")
def files_of_root():
    if os.geteuid() != 0:
        pytest.skip("only root can make a file that another user owns")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        with open(os.path.join(folder, "expected"), "wb") as expected:
            pickle.dump(page_cache.write_all(folder), expected)
        for name in os.listdir(folder):
            os.chmod(os.path.join(folder, name), 0o644)
        yield folder


def test_warm_and_cold_reads_give_the_same_bytes(files_of_root, backend):
    run_without_rights(f"""
with open(os.path.join(path, "expected"), "rb") as expected:
    arrays, tensors = pickle.load(expected)
page_cache.check_all(path, arrays, tensors, ringmain.Engine({backend!r}))
""", files_of_root)
