"""The package with few rights and small limits: it works, or its exception says what is missing.

The program `surroundings` (`backends/surroundings`) makes them; the tests of the command use the same list.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import test_shards

import ringmain.safetensors.numpy

ROOT = Path(__file__).parents[2]
# The exit code of `surroundings` if it cannot make them here.
CANNOT_BE_MADE = 77

ROWS, WIDTH, SHARD_ROWS = 20_000, 16, 7_000
VALUES = np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH) / 7

# Everything is read with `auto`. A warning is a failure.
PROGRAM = f"""
import os, sys, warnings
warnings.simplefilter("error")
import numpy as np
import ringmain, ringmain.safetensors.numpy
values = np.arange({ROWS * WIDTH}, dtype=np.float32).reshape({ROWS}, {WIDTH}) / 7
folder = sys.argv[1]
view = ringmain.open_npy(os.path.join(folder, "array.npy"))
assert np.array_equal(np.asarray(view), values)
starts = [7, 15_000, 512]
windows = ringmain.read_many([view[at : at + 9] for at in starts], stack=True)
assert np.array_equal(windows, np.stack([values[at : at + 9] for at in starts]))
for order in ("sequential", "shuffled"):
    seen = []
    source = ringmain.ShardSource(os.path.join(folder, "shards"), order=order, batch_rows=999)
    for rows, row_ids in source:
        assert np.array_equal(rows, values[row_ids])
        seen.extend(row_ids.tolist())
    assert sorted(seen) == list(range({ROWS}))
tensors = ringmain.safetensors.numpy.load_file(os.path.join(folder, "model.safetensors"))
assert np.array_equal(tensors["values"], values)
assert "auto" in view.engine.describe()
print("all is right")
"""

# What does not work: parts of the last line that Python writes. Everything else works.
EXCEPTIONS = {"fewest-descriptors": ["OSError", "shards", "Too many open files"]}

# What says nothing about this package.
LEFT_OUT = {"least-memory": "NumPy cannot be imported with 64 MiB"}


def find_program():
    """The path of the program `surroundings`, or a reason why it cannot be used."""
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    named = os.environ.get("RINGMAIN_SURROUNDINGS")
    path = Path(named or os.path.join(target, "debug", "surroundings"))
    if sys.platform == "linux" and path.exists():
        return path, None
    assert named is None, f"RINGMAIN_SURROUNDINGS names {path}, which does not exist"
    return None, "not tested; run `cargo build -p ringmain-surroundings` first"


SURROUNDINGS, WHY_NOT = find_program()


def all_names():
    if SURROUNDINGS is None:
        return ["all"]
    return subprocess.check_output([SURROUNDINGS, "--list"], text=True).split()


class Stage:
    """The data, and how Python is started where the reader may not be able to enter its folder."""

    def __init__(self, folder):
        self.data = folder / "data"
        self.work = folder / "work"
        (self.data / "shards").mkdir(parents=True)
        self.work.mkdir()
        folder.chmod(0o755)
        self.work.chmod(0o777)
        np.save(self.data / "array.npy", VALUES)
        for at in range(0, ROWS, SHARD_ROWS):
            path = self.data / "shards" / f"part-{at:06}.shard"
            test_shards.write_shard(path, VALUES[at : at + SHARD_ROWS])
        ringmain.safetensors.numpy.save_file({"values": VALUES}, self.data / "model.safetensors")
        self.files = [path for path in self.data.rglob("*") if path.is_file()]
        for path in self.files:
            path.chmod(0o644)
        self.find_python(folder)

    def find_python(self, folder):
        self.shown, self.python = [], Path(sys.executable)
        # OpenBLAS needs memory for each of its threads, and NumPy imports it.
        self.environ = dict(os.environ, TMPDIR=str(self.work), OPENBLAS_NUM_THREADS="1")
        if os.geteuid() != 0:
            return
        # The reader is another user, who may not be able to enter the folders of Python and its packages. So
        # other folders show what is in them.
        home, packages = folder / "python", folder / "packages"
        home.mkdir()
        packages.mkdir()
        self.shown += ["--show", sys.base_prefix, home]
        self.shown += ["--show", Path(np.__file__).parents[1], packages]
        executable = Path(sys.executable).resolve()
        self.python = home / executable.relative_to(Path(sys.base_prefix).resolve())
        self.environ |= {
            "PYTHONHOME": str(home),
            "PYTHONPATH": str(packages),
            "LD_LIBRARY_PATH": str(home / "lib"),
        }

    def run(self, name, program):
        # The device is read, not only the page cache.
        for path in self.files:
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        command = [SURROUNDINGS, name, self.data, *self.shown, self.python, "-c", program, self.data]
        return subprocess.run(
            command, text=True, capture_output=True, timeout=600, env=self.environ, cwd=self.work
        )


@pytest.fixture(scope="module")
def stage():
    if SURROUNDINGS is None:
        pytest.skip(WHY_NOT)
    # pytest's own folders are closed to other users.
    with tempfile.TemporaryDirectory() as folder:
        yield Stage(Path(folder))


def test_exceptions_name_surroundings():
    if SURROUNDINGS is None:
        pytest.skip(WHY_NOT)
    assert EXCEPTIONS.keys() | LEFT_OUT.keys() <= set(all_names())


@pytest.mark.parametrize("name", all_names())
def test_the_package_works_or_says_what_is_missing(stage, name):
    if name in LEFT_OUT:
        pytest.skip(LEFT_OUT[name])
    done = stage.run(name, PROGRAM)
    if done.returncode == CANNOT_BE_MADE:
        assert os.environ.get("CI") != "true", f"CI must make all surroundings: {done.stderr}"
        pytest.skip(done.stderr)
    if name not in EXCEPTIONS:
        assert (done.returncode, done.stdout, done.stderr) == (0, "all is right\n", "")
        return
    assert done.returncode == 1 and "panicked" not in done.stderr, done
    last_line = done.stderr.splitlines()[-1]
    for part in EXCEPTIONS[name]:
        assert part in last_line, f"`{part}` is missing in: {done.stderr}"


def test_the_documentation_has_the_outcomes():
    if SURROUNDINGS is None:
        pytest.skip(WHY_NOT)
    rows = (ROOT / "docs" / "reliability.md").read_text().splitlines()
    for name in all_names():
        row = next(row for row in rows if row.startswith(f"| `{name}` |"))
        outcome = re.split(r" *\| *", row)[-2]
        assert (outcome == "works") == (name not in EXCEPTIONS.keys() | LEFT_OUT.keys()), row
