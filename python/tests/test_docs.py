"""The Python code in the READMEs and in docs/python.md runs as it is written there."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager, nullcontext
import tempfile
from pathlib import Path

import numpy as np
import pytest
from test_shards import write_shard
from test_urls import Store, find_server

import ringmain

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


# A condition that must hold after a snippet, by a part of the snippet.
CHECKS = {
    "get_batch": "x.shape == y.shape == (12, 256) and (y == x + 1).all()",
    "class Windows": "torch.utils.data.default_collate(Windows('embeddings.npy').__getitems__([3, 9])).shape == (2, 64, 4)",
    "batch_labels": "(batch_labels == rows[:, 0]).all() and (batch_features == rows).all() and len(rows) == 30",
    "state = dataset.state_dict(batches=used": "dataset.epoch == 2",
    "global_batch=12": "json.loads(saved.read_text())['batches_done'] == 3 and dataset.epoch == 2",
    "ShardWriter": "ringmain.ShardSource('shards/').total_rows >= 3000",
    "fields = {": "len(beton) == 100 and batch['x'].shape == (100, 8) and len(batch['image']) == 100",
    "random_crop": "crops.shape == (3, 3, 24, 24) and crops.dtype == 'float32'",
    "import BetonLoader": "images.shape == (32, 3, 24, 24) and labels.shape == (32,) and sum(map(len, rest)) == 68",
    "BetonDataset": "x.shape == (100, 8) and labels.shape == (100,)",
    "s3://bucket/shards": "window.shape == (64, 4) and source.total_rows == 30 and tensors['weight'].shape == (30, 3)",
    "disk_cache": "engine.disk_cache_stats()['stored_blocks'] == 1 and head.shape == (100, 4)",
    "read_shards": "dataset.count() == rows == 30 and mean.tolist() == [43.5, 44.5, 45.5]",
    "finish_recording": "open('epoch.trace').read().splitlines()[-1].startswith('e 2 2 ')",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with the files that the snippets of docs/python.md read."""
    folder = tmp_path_factory.mktemp("docs")
    np.save(folder / "embeddings.npy", np.zeros((100_000, 4), np.float32))
    np.arange(10_000, dtype=np.uint16).tofile(folder / "train.bin")
    rows = np.arange(90, dtype=np.float32).reshape(30, 3)
    (folder / "shards").mkdir()
    for at, part in enumerate(np.split(rows, [7, 20])):
        write_shard(folder / f"shards/part-{at}.shard", part)
    np.save(folder / "labels.npy", rows[:, 0].astype(np.int64))
    np.save(folder / "features.npy", rows.astype(np.float64))
    safetensors = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    safetensors.save_file({"weight": rows}, folder / "model.safetensors")
    subprocess.run([sys.executable, "-c", snippet_with("fields = {")], cwd=folder, check=True)
    fields, path = {"caption": "bytes", "label": "int"}, folder / "custom.beton"
    ringmain.BetonWriter(path, fields).from_iterable([(b"text", at) for at in range(8)])
    data = bytearray(path.read_bytes())
    data[24] = 255  # the type of the first field: one that FFCV does not define
    path.write_bytes(data)
    return folder


@contextmanager
def serving(folder):
    """Serves the folder as the bucket of the snippets, and gives the environment that leads to it."""
    program, why_not = find_server()
    if program is None:
        pytest.skip(why_not)
    with Store(program, folder) as store:
        yield {**os.environ, **store.environ}


@pytest.mark.parametrize("number", range(len(snippets(ROOT / "docs/python.md"))))
def test_each_snippet_of_the_documentation_runs_alone(number, files, tmp_path, available):
    """Half of them lacked an import, and one did not do what its comment said."""
    snippet = snippets(ROOT / "docs/python.md")[number]
    packages = {
        "torch": ("torch", '"pt"', ".tensor("),
        "exca": ("exca",),
        "pandas": ("to_frame",),
        "ray": ("ringmain.ray",),
    }
    for package, needs in packages.items():
        if any(word in snippet for word in needs):
            pytest.importorskip(package, reason=f"{package} is not installed")
    if '"uring"' in snippet and "uring" not in available:
        pytest.skip("uring does not work here")
    folder = tmp_path / "files"
    shutil.copytree(files, folder)
    if "ShardWriter" in snippet:
        shutil.rmtree(folder / "shards")
    checks = [condition for part, condition in CHECKS.items() if part in snippet]
    script = "\n".join([snippet, *(f"assert {condition}, {condition!r}" for condition in checks)])
    # Ray must not report that it was used, and must listen on the loopback interface only. Its sockets need short paths.
    with (
        serving(folder) if "s3://" in snippet else nullcontext(os.environ) as environ,
        tempfile.TemporaryDirectory(prefix="rm-ray-", dir="/tmp", ignore_cleanup_errors=True) as short,
    ):
        env = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_TMPDIR": short}
        subprocess.run(
            [sys.executable, "-c", script], cwd=folder, check=True, timeout=300, env=environ | env
        )


def test_every_check_belongs_to_a_snippet():
    for part in CHECKS:
        snippet_with(part)
