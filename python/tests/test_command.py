"""The `ringmain` command of the package."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
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


RANDOM_ROWS = """
import sys
import numpy as np

rows = np.memmap(sys.argv[1], dtype=np.float32, mode="r").reshape(-1, 1024)
order = np.random.default_rng(0).permutation(len(rows))
print(sum(float(rows[at][0]) for at in order))
"""

LOADER = """
import sys
import torch

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 500

    def __getitem__(self, at):
        with open(sys.argv[1], "rb", buffering=0) as file:
            file.seek(at * 4096)
            return torch.frombuffer(bytearray(file.read(4096)), dtype=torch.float32)

total = 0.0
for batch in torch.utils.data.DataLoader(Rows(), batch_size=10, shuffle=True, num_workers=2):
    total += float(batch[:, 0].sum())
print(total)
"""


def record(tmp_path, program, *options):
    """Records a program that sums the first numbers of 500 rows, and returns the lines of the recording and
    what was said about it."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    data, trace = tmp_path / "rows.f32", tmp_path / "trace"
    rows = (np.arange(500 * 1024, dtype=np.float32) % 8192).reshape(500, 1024)
    rows.tofile(data)
    args = ["--only", data, "--out", trace, *options, "--", sys.executable, "-c", program, data]
    done = run("module", "record", *args)
    if "--no-mappings" not in options and "page faults of mappings are not recorded" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == float(rows[:, 0].sum())
    return trace.read_text().splitlines(), done.stderr


def test_a_loop_over_np_memmap_is_recorded(tmp_path):
    lines, _ = record(tmp_path, RANDOM_ROWS)
    offsets = [int(line.split()[5]) for line in lines if line.startswith("m ")]
    assert offsets and offsets != sorted(offsets), "the rows are read in random order"
    assert all(offset % 4096 == 0 and offset < 500 * 4096 for offset in offsets)


def test_the_workers_of_a_torch_loader_are_recorded(tmp_path):
    pytest.importorskip("torch")
    lines, said = record(tmp_path, LOADER, "--no-mappings")
    reads = [line.split() for line in lines if line.startswith("b ")]
    assert sorted(int(read[5]) for read in reads) == [4096 * at for at in range(500)]
    assert "by 2 threads of 2 processes" in said, said
