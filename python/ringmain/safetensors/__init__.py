"""Reads safetensors files and models. The functions have the signatures of the package safetensors.

Beyond that package, this one reads models of several files (an index, or a directory), reads with any
backend (`engine=`), and reads slices with steps, in reverse order or with lists of indices.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import _progress
from .._ringmain import Engine, _Weights
from ._elements import NumPy, Torch
from ._forward import forwarding

try:
    from safetensors import SafetensorError
except ImportError:

    class SafetensorError(Exception):  # type: ignore[no-redef]
        """An invalid file, name or argument."""


__all__ = [
    "SafetensorError",
    "SafetensorIndexError",
    "SafetensorKeyError",
    "SafetensorValueError",
    "load_file",
    "safe_open",
]

__getattr__ = forwarding("safetensors", ["deserialize", "serialize", "serialize_file"])


class SafetensorValueError(SafetensorError, ValueError):
    """The file is not a valid safetensors file, or an argument does not fit it."""


class SafetensorKeyError(SafetensorError, KeyError):
    """There is no tensor of this name."""

    def __str__(self) -> str:  # a KeyError would put quotes around the text
        return str(self.args[0])


class SafetensorIndexError(SafetensorError, IndexError):
    """The slice is outside the tensor."""


@contextmanager
def _their_kinds() -> Iterator[None]:
    """Turns KeyError, IndexError and ValueError into subclasses of the package's `SafetensorError`, so that
    code that catches `SafetensorError` still works. `OSError` and `TypeError` stay as they are."""
    try:
        yield
    except SafetensorError:
        raise
    except KeyError as error:
        raise SafetensorKeyError(error.args[0]) from None
    except IndexError as error:
        raise SafetensorIndexError(str(error)) from None
    except ValueError as error:
        raise SafetensorValueError(str(error)) from None


def _framework(name: str, device: Any) -> NumPy | Torch:
    if name in ("np", "numpy"):
        if str(device or "cpu") != "cpu":
            raise SafetensorValueError(f"device {device} is invalid: NumPy arrays are always on the cpu")
        return NumPy()
    if name in ("pt", "torch", "pytorch"):
        try:
            return Torch(device)
        except RuntimeError as error:
            raise SafetensorValueError(f"device {device} is invalid: {error}") from None
    raise SafetensorValueError(f'framework {name} is invalid: it can be "np" or "pt"')


def load_file(
    filename: str | os.PathLike[str],
    device: str | int = "cpu",
    *,
    framework: str = "np",
    backend: str | None = None,
    engine: Engine | str | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Returns all tensors of a file or a model by name. Each tensor has its own memory.

    `backend` is the name of a backend of ringmain, such as "mmap"; `engine` is an Engine. `progress` shows a bar of
    tqdm, if tqdm is installed.
    """
    with safe_open(filename, framework, device, backend=backend, engine=engine) as file:
        return file.get_tensors(progress=progress)


class safe_open:
    """Opens a file or a model. Its methods read single tensors, slices or all tensors.

    filename: a safetensors file, an index (`….index.json`), or a directory that holds either.
    framework: "np" for NumPy arrays, "pt" for torch tensors.
    device: the device of the torch tensors.
    backend: the name of a backend of ringmain, such as "mmap", in place of an engine.
    engine: an Engine. The default is the engine that all readers share.
    """

    def __init__(
        self,
        filename: str | os.PathLike[str],
        framework: str,
        device: str | int = "cpu",
        *,
        backend: str | None = None,
        engine: Engine | str | None = None,
    ) -> None:
        self._framework = _framework(framework, device)
        if backend is not None and engine is not None:
            raise SafetensorValueError("give engine or backend, not both: an engine has a backend")
        self._filename = os.fspath(filename)
        with _their_kinds():
            self._weights: _Weights | None = _Weights(filename, backend if engine is None else engine)

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *_: object) -> None:
        self._weights = None

    def __repr__(self) -> str:
        return f"safe_open({self._filename!r}{', closed' if self._weights is None else ''})"

    def _open(self) -> _Weights:
        if self._weights is None:
            raise SafetensorError("File is closed")
        return self._weights

    def keys(self) -> list[str]:
        """Returns the names of the tensors, sorted."""
        return sorted(self._open().names())

    def offset_keys(self) -> list[str]:
        """Returns the names of the tensors, in the order of the files."""
        return self._open().names()

    def metadata(self) -> dict[str, str] | None:
        """Returns the metadata of the header, or of the headers of all files together."""
        return self._open().metadata()

    def get_tensor(self, name: str) -> Any:
        """Reads a tensor and returns it."""
        weights = self._open()
        with _their_kinds():
            dtype, shape = weights.info(name)
            array = weights.read(name, self._framework.element(dtype, name))
            return self._framework.finish(array, dtype, shape)

    def get_bytes(self, name: str) -> np.ndarray:
        """Reads a tensor of any type and returns its bytes as an array."""
        weights = self._open()
        with _their_kinds():
            return weights.read(name, None)

    def get_tensors(self, names: list[str] | None = None, *, progress: bool = False) -> dict[str, Any]:
        """Reads all tensors, or those in `names`, and returns them by name. A thread reads ahead. `progress` shows a
        bar of tqdm, if tqdm is installed."""
        weights = self._open()
        with _their_kinds():
            wanted = {name: weights.info(name) for name in (weights.names() if names is None else names)}
            for name, (dtype, _) in wanted.items():
                self._framework.element(dtype, name)  # raises an error before anything is read
            with _progress.counting(len(wanted), "tensors", progress) as arrived:
                found = weights.load(self._framework.elements, names, arrived)
            for name, array in found.items():
                found[name] = self._framework.finish(array, *wanted[name])
            return found

    def get_slice(self, name: str) -> _Slice:
        """Returns an object that reads only the selected part of a tensor."""
        weights = self._open()
        with _their_kinds():
            return _Slice(weights, self._framework, name)


class _Slice:
    """Reads only the selected part of a tensor: `slice[2:4, ..., 0]`."""

    def __init__(self, weights: _Weights, framework: NumPy | Torch, name: str) -> None:
        self._dtype, self._shape = weights.info(name)
        self._weights, self._framework, self._name = weights, framework, name

    def get_shape(self) -> list[int]:
        """Returns the length of each axis."""
        return list(self._shape)

    def get_dtype(self) -> str:
        """Returns the element type, by its name in the format."""
        return self._dtype

    def __getitem__(self, key: Any) -> Any:
        with _their_kinds():
            element = self._framework.element(self._dtype, self._name)
            if element is None:
                raise ValueError(
                    f"tensor {self._name} holds {self._dtype}, which cannot be sliced; use "
                    f"get_tensor"
                )
            part = self._weights.view(self._name, element).read(key)
            return self._framework.finish(part, self._dtype, list(part.shape))

    def __repr__(self) -> str:
        return f"Slice({self._name}, {self._dtype}, {self._shape})"
