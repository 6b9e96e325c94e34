"""`safetensors.torch` with the `load_file` of ringmain. The package provides the other functions."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

from .._ringmain import Engine
from . import load_file as _load_file
from ._forward import forwarding

try:
    import torch  # noqa: F401  (an error now is better than one when the first file is loaded)
except ImportError as error:
    raise ImportError(
        "ringmain.safetensors.torch needs torch, which could not be imported; install it, or use "
        "ringmain.safetensors.numpy"
    ) from error

_FORWARDED = ["load", "load_model", "save", "save_file", "save_model"]
# Without the package, `import *` must not fail for its functions.
__all__ = ["load_file", *(_FORWARDED if find_spec("safetensors") else [])]
__getattr__ = forwarding("safetensors.torch", _FORWARDED)


def __dir__() -> list[str]:
    return sorted([*globals(), *_FORWARDED])


def load_file(
    filename: str | os.PathLike[str],
    device: str | int = "cpu",
    *,
    backend: str | None = None,
    engine: Engine | str | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Returns all tensors of a file or a model as torch tensors on the device, by name.

    `backend` is the name of a backend of ringmain, such as "mmap"; `engine` is an Engine. `progress` shows a bar of
    tqdm, if tqdm is installed.
    """
    return _load_file(filename, device, framework="pt", backend=backend, engine=engine, progress=progress)
