"""The Python code in the READMEs, and examples of docs/python.md, run as they are written there."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_shards import write_shard

ROOT = Path(__file__).parents[2]


def snippets(path):
    return re.findall(r"^```python\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("path", ["README.md", "python/README.md"])
def test_the_snippets_of_a_readme_run(path, tmp_path):
    found = snippets(ROOT / path)
    assert found
    np.save(tmp_path / "embeddings.npy", np.zeros((100_000, 4), np.float32))
    for snippet in found:
        subprocess.run([sys.executable, "-c", snippet], cwd=tmp_path, check=True)


def snippet_with(text):
    (found,) = (one for one in snippets(ROOT / "docs/python.md") if text in one)
    return found


def test_the_nanogpt_example_runs(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    np.arange(10_000, dtype=np.uint16).tofile(tmp_path / "train.bin")
    check = "\nassert x.shape == y.shape == (12, 256) and (y == x + 1).all()"
    script = snippet_with("get_batch") + check
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)


def test_the_exca_example_runs(tmp_path):
    pytest.importorskip("exca", reason="exca is not installed")
    script = snippet_with("TYPE_DEFAULTS")
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)


def test_the_example_of_labels_beside_shards_runs(tmp_path):
    rows = np.arange(90, dtype=np.float32).reshape(30, 3)
    (tmp_path / "shards").mkdir()
    for at, part in enumerate(np.split(rows, [7, 20])):
        write_shard(tmp_path / f"shards/part-{at}.shard", part)
    np.save(tmp_path / "labels.npy", rows[:, 0].astype(np.int64))
    np.save(tmp_path / "features.npy", rows.astype(np.float64))
    check = """
    assert (batch_labels == rows[:, 0]).all() and (batch_features == rows).all()
assert len(rows) == 30 and (row_ids != np.arange(30)).any()
"""
    script = snippet_with("batch_labels") + check
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
