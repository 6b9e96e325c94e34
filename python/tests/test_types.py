"""The stubs agree with the module, and code that uses the package type-checks."""

import importlib.util
import subprocess
import sys

import pytest
from test_docs import ROOT, snippets


pytestmark = pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")

# Packages without types, or that need not be installed.
UNTYPED = ["exca", "ray", "torch", "safetensors", "ml_dtypes", "pandas", "pyarrow", "tqdm"]


def run(tmp_path, *arguments):
    settings = "[mypy]\n" + "".join(f"[mypy-{name}.*]\nignore_missing_imports = True\nfollow_imports = skip\n" for name in UNTYPED)
    (tmp_path / "mypy.ini").write_text(settings)
    done = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, timeout=600, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_stubs_agree_with_the_module(tmp_path):
    # PyO3 makes this list. `import *` of a private module is not for users.
    (tmp_path / "allowed").write_text("ringmain._ringmain.__all__\n")
    arguments = ["--concise", "--mypy-config-file", "mypy.ini", "--allowlist", "allowed"]
    run(tmp_path, "mypy.stubtest", "ringmain._ringmain", *arguments)


def test_the_examples_of_the_documentation_type_check(tmp_path):
    pages = ["README.md", "python/README.md", "docs/python.md"]
    found = [snippet for page in pages for snippet in snippets(ROOT / page)]
    assert len(found) > 20
    for number, snippet in enumerate(found):
        (tmp_path / f"snippet_{number}.py").write_text(snippet)
    run(tmp_path, "mypy", "--config-file", "mypy.ini", ".")


def test_the_package_type_checks_for_every_system(tmp_path):
    for system in ("linux", "darwin", "win32"):
        run(tmp_path, "mypy", "--config-file", "mypy.ini", "--platform", system, "-p", "ringmain")
