"""Files of other users: the kernel does not say what it has cached of them."""

import json
import os
import struct
import subprocess
import sys
import tempfile

import pytest

# It belongs to root, and everybody may read it.
OF_ROOT = "/etc/passwd"

# Root gives up its rights once all is imported: the next user may have no way to the modules.
SETUP = """
import json, mmap, os, sys, uuid, warnings
import numpy as np
import ringmain, ringmain.safetensors
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
path = sys.argv[1]
if ringmain.probe(path)["features"]["cachestat"]:
    print("this kernel answers every reader")
    raise SystemExit(77)
warnings.simplefilter("always")
said = warnings.catch_warnings(record=True).__enter__()
open_it = lambda engine: ringmain.open_raw(path, "u1", os.path.getsize(path), engine=engine)
"""


def run_without_rights(script, path=OF_ROOT):
    command = [sys.executable, "-c", SETUP + script, path]
    done = subprocess.run(command, text=True, timeout=120, capture_output=True)
    if done.returncode == 77:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stderr


def test_auto_says_once_that_it_cannot_see_the_page_cache():
    run_without_rights("""
engine = ringmain.Engine("auto")
assert "cachestat" not in engine.describe()
np.asarray(open_it(engine)), open_it(engine)
[warning] = said
assert warning.category is RuntimeWarning
for part in (path, "cachestat(2)", "owner", 'Engine("pread")'):
    assert part in str(warning.message), warning.message
assert "without cachestat" in engine.describe() and 'Engine("pread")' in engine.describe()
""")


def test_a_backend_that_was_asked_for_says_nothing():
    run_without_rights("""
for backend in ("pread", "mmap"):
    open_it(ringmain.Engine(backend))
assert not said, said[0].message
""")


@pytest.fixture
def model_of_root():
    if os.geteuid() != 0:
        pytest.skip("only root can make a file that another user owns")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = os.path.join(folder, "model.safetensors")
        tensors = {"x": {"dtype": "U8", "shape": [1000], "data_offsets": [0, 1000]}}
        header = json.dumps(tensors).encode()
        with open(path, "wb") as model:
            model.write(struct.pack("<Q", len(header)) + header + bytes(1000))
        yield path


def test_auto_says_it_of_a_model_too(model_of_root):
    run_without_rights("""
assert ringmain.safetensors.load_file(path)["x"].sum() == 0
assert [path in str(warning.message) for warning in said] == [True]
""", model_of_root)
