"""`ringmain.bench`: the command's result as a dict and as a DataFrame."""

import signal
import subprocess
import sys

import pytest

import ringmain

SHORT = {"workloads": "rand", "cache": ["warm"], "seconds": 0.05, "repetitions": 1}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(bytes(4 << 20))
    return path


def test_the_result_is_a_dict_and_a_frame(tmp_path, file):
    result = ringmain.bench(file, backends=["pread", "mmap"], block_size=[4096, "16k"], **SHORT)
    cells = result["cells"]
    assert {(cell["backend"], cell["setting"]["block_bytes"]) for cell in cells} == {
        (backend, size) for backend in ("pread", "mmap") for size in (4096, 16384)
    }
    assert list(tmp_path.iterdir()) == [file], "without `out` nothing is kept"
    pytest.importorskip("pandas", reason="pandas is not installed")
    frame = result.to_frame()
    assert len(frame) == len(cells)
    assert list(frame.throughput_bytes_per_s) == [cell["throughput_bytes_per_s"] for cell in cells]
    assert list(frame.latency_ns_p99) == [cell["latency_ns"]["p99"] for cell in cells]
    assert list(frame.setting_block_bytes) == [cell["setting"]["block_bytes"] for cell in cells]


def test_a_recording_is_replayed_and_its_report_kept(tmp_path, file):
    engine = ringmain.Engine("pread", record=tmp_path / "trace")
    view = ringmain.open_raw(file, "u1", engine=engine)
    ringmain.read_many([view[at : at + 4096] for at in range(0, 1 << 20, 65536)])
    engine.finish_recording()
    result = ringmain.bench(trace=tmp_path / "trace", backends="pread", cache="warm", seconds=0.05, repetitions=1, out=tmp_path / "out")
    assert {cell["workload"] for cell in result["cells"]} == {"replay"}
    assert (tmp_path / "out" / "report.html").exists()


def test_bad_arguments_raise_what_the_command_says(tmp_path, file):
    for options, error, message in [
        ({"seconds": -1}, ValueError, "the time must be more than 0"),
        ({"backends": "slow"}, ValueError, "slow"),
        ({"depth": object()}, TypeError, "depth cannot be of type object"),
    ]:
        with pytest.raises(error, match=message):
            ringmain.bench(file, **{**SHORT, **options})
    with pytest.raises(ValueError, match="absent"):
        ringmain.bench(tmp_path / "absent", **SHORT)


INTERRUPTED = """
import os, signal, sys, threading, time, ringmain

def children_of(process):
    # A process that has just ended has no such file.
    try:
        return open(f"/proc/{process}/task/{process}/children").read().split()
    except OSError:
        return []

def interrupt():
    # The measured processes have begun when a grandchild exists.
    while not any(children_of(child) for child in children_of(os.getpid())):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    ringmain.bench(sys.argv[1], backends="pread", workloads="rand", cache="warm", seconds=600, repetitions=1)
except KeyboardInterrupt:
    print("interrupted, with", open(f"/proc/self/task/{os.getpid()}/children").read().split())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_ctrl_c_ends_the_measurement_and_its_processes(file):
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, file], capture_output=True, text=True, timeout=300,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))  # fmt: skip
    assert done.stdout == "interrupted, with []\n", done
