"""`load_file` as `safetensors.numpy` has it."""

from __future__ import annotations

import os
from typing import Any

from .._ringmain import Engine
from . import load_file as _load_file

__all__ = ["load_file"]


def load_file(filename: str | os.PathLike[str], *, engine: Engine | None = None) -> dict[str, Any]:
    """All tensors of a file or a model as NumPy arrays, by name."""
    return _load_file(filename, framework="np", engine=engine)
