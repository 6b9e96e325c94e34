"""What the READMEs show runs as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

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
