"""Safetensors files and models, in the call shapes of the package of that name.

What it gives beside: models of several files (an index, or a directory), any backend
(`engine=`), and slices with steps, reversed and fancy ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .._ringmain import Engine, _Weights
from ._elements import NumPy, Torch
from ._forward import forwarding

try:
    from safetensors import SafetensorError
except ImportError:

    class SafetensorError(Exception):  # type: ignore[no-redef]
        """A file or a name that is not what it should be."""


__all__ = ["SafetensorError", "load_file", "safe_open"]

__getattr__ = forwarding("safetensors", ["deserialize", "serialize", "serialize_file"])


class _BadFile(SafetensorError, ValueError):
    """A file that is no safetensors file, or an argument that does not fit it."""


class _NoTensor(SafetensorError, KeyError):
    """There is no tensor of that name."""

    def __str__(self) -> str:  # KeyError's has quotes
        return str(self.args[0])


class _BadIndex(SafetensorError, IndexError):
    """A slice that the tensor does not have."""


@contextmanager
def _their_kinds() -> Iterator[None]:
    """Who catches the package's error catches ours; `OSError` and `TypeError` are as they are."""
    try:
        yield
    except SafetensorError:
        raise
    except KeyError as error:
        raise _NoTensor(error.args[0]) from None
    except IndexError as error:
        raise _BadIndex(str(error)) from None
    except ValueError as error:
        raise _BadFile(str(error)) from None


def _framework(name: str, device: Any) -> NumPy | Torch:
    if name in ("np", "numpy"):
        if str(device or "cpu") != "cpu":
            raise _BadFile(f"device {device} is invalid: NumPy's arrays are on the cpu")
        return NumPy()
    if name in ("pt", "torch", "pytorch"):
        try:
            return Torch(device)
        except RuntimeError as error:
            raise _BadFile(f"device {device} is invalid: {error}") from None
    raise _BadFile(f'framework {name} is invalid: it is "np" or "pt"')


def load_file(
    filename: str | os.PathLike[str],
    device: str | int = "cpu",
    *,
    framework: str = "np",
    backend: str | None = None,
    engine: Engine | str | None = None,
) -> dict[str, Any]:
    """Returns all tensors of a file or a model by name, each in memory of its own.

    `backend` is the name of a backend of ringmain, such as "mmap"; `engine` is an Engine.
    """
    with safe_open(filename, framework, device, backend=backend, engine=engine) as file:
        return file.get_tensors()


class safe_open:
    """Opens a file or a model and reads the tensors that are asked for.

    filename: a safetensors file, an index (`….index.json`), or a directory that holds either.
    framework: "np" for NumPy arrays, "pt" for tensors of torch.
    device: where tensors of torch are put.
    backend: the name of a backend of ringmain, such as "mmap", in place of an engine.
    engine: an Engine; by default the one that all share.
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
            raise _BadFile("engine has a backend already: give engine or backend")
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
        """The names of the tensors."""
        return sorted(self._open().names())

    def offset_keys(self) -> list[str]:
        """The names of the tensors, in the order of the files."""
        return self._open().names()

    def metadata(self) -> dict[str, str] | None:
        """What the header says beside tensors; of several files, of all of them together."""
        return self._open().metadata()

    def get_tensor(self, name: str) -> Any:
        """Reads a tensor."""
        weights = self._open()
        with _their_kinds():
            dtype, shape = weights.info(name)
            array = weights.read(name, self._framework.element(dtype, name))
            return self._framework.finish(array, dtype, shape)

    def get_bytes(self, name: str) -> np.ndarray:
        """Reads the bytes of a tensor of any type."""
        weights = self._open()
        with _their_kinds():
            return weights.read(name, None)

    def get_tensors(self, names: list[str] | None = None) -> dict[str, Any]:
        """Reads all tensors, or some, while the next ones are on their way."""
        weights = self._open()
        with _their_kinds():
            wanted = {name: weights.info(name) for name in names or weights.names()}
            for name, (dtype, _) in wanted.items():
                self._framework.element(dtype, name)  # before anything is read
            found = weights.load(self._framework.elements, names)
            for name, array in found.items():
                found[name] = self._framework.finish(array, *wanted[name])
            return found

    def get_slice(self, name: str) -> _Slice:
        """A tensor of which only what is selected is read."""
        weights = self._open()
        with _their_kinds():
            return _Slice(weights, self._framework, name)


class _Slice:
    """A tensor of which only what is selected is read: `slice[2:4, ..., 0]`."""

    def __init__(self, weights: _Weights, framework: NumPy | Torch, name: str) -> None:
        self._dtype, self._shape = weights.info(name)
        self._weights, self._framework, self._name = weights, framework, name

    def get_shape(self) -> list[int]:
        """The length of each axis."""
        return list(self._shape)

    def get_dtype(self) -> str:
        """The format's name for the elements."""
        return self._dtype

    def __getitem__(self, key: Any) -> Any:
        with _their_kinds():
            element = self._framework.element(self._dtype, self._name)
            if element is None:
                raise ValueError(
                    f"tensor {self._name} holds {self._dtype}, of which there are no slices; use "
                    f"get_tensor"
                )
            part = self._weights.view(self._name, element).read(key)
            return self._framework.finish(part, self._dtype, list(part.shape))

    def __repr__(self) -> str:
        return f"Slice({self._name}, {self._dtype}, {self._shape})"
