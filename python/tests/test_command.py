"""The `ringmain` command of the package."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = {"module": [sys.executable, "-m", "ringmain"], "script": [Path(sys.executable).with_name("ringmain")]}


def run(way, *args):
    command = [*COMMANDS[way], *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("way", COMMANDS)
def test_the_command_runs(way, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0" * 10_000)
    probe = run(way, "probe", path, "--json")
    assert probe.returncode == 0, probe.stderr
    assert json.loads(probe.stdout)["path"] == str(path)
    assert "Usage" in run(way, "--help").stdout
    absent = run(way, "probe", tmp_path / "absent")
    assert absent.returncode != 0 and "absent" in absent.stderr


def test_ctrl_c_ends_the_command(tmp_path):
    """The command used to run to its end. Here it never ends by itself: it fills a pipe that the test
    does not read."""
    path = tmp_path / "file"
    path.write_bytes(b"0" * (4 << 20))
    with subprocess.Popen([*COMMANDS["module"], "cat", path], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.read(1) == b"0"
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=120) == -signal.SIGINT
        finally:
            process.kill()


def test_bench_measures_each_backend_in_its_own_process(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0" * (4 << 20))
    args = ["--file", path, "--backends", "pread", "--cache", "warm", "--workloads", "rand", "--block-size", "4k"]
    done = run("module", "bench", *args, "--seconds", "0.1", "--repetitions", "1", "--json", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    cells = json.loads(done.stdout)["cells"]
    assert cells and all(cell["throughput_bytes_per_s"] > 0 for cell in cells)
