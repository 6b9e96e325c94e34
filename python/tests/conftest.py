import os
import signal

import numpy as np
import pytest

import ringmain

BACKENDS = ["auto", "pread", "mmap", "direct", "uring", "uncached", "tokio-uring"]


def pytest_configure(config):
    # What `auto` takes must follow from the machine, not from what the user once measured on it.
    os.environ["RINGMAIN_PROFILE"] = "off"
    # A shell without job control has background commands ignore Ctrl-C, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def available(tmp_path_factory):
    """The names of the backends that work where the tests write their files."""
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
    """Counts the calls of the kernel that read, of files by `pread`, which something makes."""

    def calls():
        # Of this thread: other tests may have left some that read.
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
    """Writes an array to a file of its own and maps it."""

    def make(array, name="array.bin", before=0):
        path = tmp_path / name
        path.write_bytes(b"\xaa" * before + np.ascontiguousarray(array).tobytes())
        return np.memmap(path, array.dtype, "r", before, array.shape)

    return make
