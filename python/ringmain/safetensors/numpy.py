"""`safetensors.numpy` with the `load_file` of ringmain. The package provides the other functions."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

from .._ringmain import Engine
from . import load_file as _load_file
from ._forward import forwarding

_FORWARDED = ["load", "save", "save_file"]
# Without the package, `import *` must not fail for its functions.
__all__ = ["load_file", *(_FORWARDED if find_spec("safetensors") else [])]
__getattr__ = forwarding("safetensors.numpy", _FORWARDED)


def __dir__() -> list[str]:
    return sorted([*globals(), *_FORWARDED])


def load_file(
    filename: str | os.PathLike[str],
    *,
    backend: str | None = None,
    engine: Engine | str | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Returns all tensors of a file or a model as NumPy arrays, by name.

    `backend` is the name of a backend of ringmain, such as "mmap"; `engine` is an Engine. `progress` shows a bar of
    tqdm, if tqdm is installed.
    """
    return _load_file(filename, framework="np", backend=backend, engine=engine, progress=progress)
