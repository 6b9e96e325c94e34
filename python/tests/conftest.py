import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import ringmain

BACKENDS = ["auto", "pread", "mmap", "direct", "uring", "uncached", "tokio-uring"]


def pytest_configure(config):
    # `auto` must choose by what the machine can do, not by a profile that the user has saved.
    os.environ["RINGMAIN_PROFILE"] = "off"
    if os.environ.get("RINGMAIN_TEST_TORCH") == "1":
        # The tests that need these packages are skipped if one cannot be imported. Here they must run.
        needed = "import torch, torchdata, ray, pandas, mne, nibabel, psutil, pybv"
        subprocess.run([sys.executable, "-c", needed], check=True)
    # In a shell without job control, background commands ignore Ctrl-C, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def available(tmp_path_factory):
    """The names of the backends that work on the filesystem of the tests' files."""
    path = tmp_path_factory.mktemp("probe") / "file"
    path.write_bytes(b"0" * 8192)
    found = {backend["name"]: backend for backend in ringmain.probe(path)["backends"]}
    required = os.environ.get("RINGMAIN_REQUIRE_BACKENDS", "").split(",")
    for name in set(required) & set(BACKENDS):
        assert found[name]["available"], f"{name} is required: {found[name]['reason']}"
    return {"auto"} | {name for name, backend in found.items() if backend["available"]}


@pytest.fixture(params=BACKENDS)
def backend(request, available):
    if request.param not in available:
        pytest.skip(f"{request.param} does not work here")
    return request.param


@pytest.fixture
def engine(backend):
    return ringmain.Engine(backend)


@pytest.fixture
def reads_of():
    """A function that counts the read system calls of `work`. Use it with the backend `pread`."""

    def calls():
        # Only this thread counts: threads of other tests may still be reading.
        with open("/proc/thread-self/io") as io:
            return int(next(line for line in io if line.startswith("syscr")).split()[1])

    def count(work):
        work()
        before, asking = calls(), calls()
        work()
        return calls() - asking - (asking - before)

    return count


@pytest.fixture
def mapped(tmp_path):
    """A function that writes an array to a new file and maps it."""

    def make(array, name="array.bin", before=0):
        path = tmp_path / name
        path.write_bytes(b"\xaa" * before + np.ascontiguousarray(array).tobytes())
        return np.memmap(path, array.dtype, "r", before, array.shape)

    return make


@pytest.fixture
def original():
    return np.random.default_rng(0).random((20, 50)).astype(np.float32)


@pytest.fixture
def view(mapped, original, engine):
    return ringmain.ContiguousMemmap(mapped(original), engine=engine)
