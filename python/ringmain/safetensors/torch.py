"""`load_file` as `safetensors.torch` has it."""

from __future__ import annotations

import os
from typing import Any

from .._ringmain import Engine
from . import load_file as _load_file

try:
    import torch  # noqa: F401  (now, and not when the first file is loaded)
except ImportError as error:
    raise ImportError(
        "ringmain.safetensors.torch needs torch, which could not be imported; install it, or use "
        "ringmain.safetensors.numpy"
    ) from error

__all__ = ["load_file"]


def load_file(
    filename: str | os.PathLike[str],
    device: str | int = "cpu",
    *,
    engine: Engine | None = None,
) -> dict[str, Any]:
    """All tensors of a file or a model as torch's, by name, on the device."""
    return _load_file(filename, device, framework="pt", engine=engine)
