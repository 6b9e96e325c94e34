"""The element types of tensors in NumPy and in torch."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

# The types that NumPy itself has.
_PLAIN = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "F16": "<f2",
    "U32": "<u4",
    "I32": "<i4",
    "F32": "<f4",
    "U64": "<u8",
    "I64": "<i8",
    "F64": "<f8",
    "C64": "<c8",
}

# The types that the package ml_dtypes adds, and a NumPy type of the same size for each.
_ADDED = {
    "BF16": ("bfloat16", "<u2"),
    "F8_E4M3": ("float8_e4m3fn", "u1"),
    "F8_E5M2": ("float8_e5m2", "u1"),
    "F8_E8M0": ("float8_e8m0fnu", "u1"),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", "u1"),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", "u1"),
}

_TORCH = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
    "C64": "complex64",
    "F4": "float4_e2m1fn_x2",
    **{name: added for name, (added, _) in _ADDED.items()},
}


class NumPy:
    """Delivers tensors as NumPy arrays."""

    def __init__(self) -> None:
        self.elements: dict[str, Any] = {name: np.dtype(code) for name, code in _PLAIN.items()}
        try:
            import ml_dtypes
        except ImportError:
            return
        for name, (added, _) in _ADDED.items():
            if hasattr(ml_dtypes, added):
                self.elements[name] = np.dtype(getattr(ml_dtypes, added))

    def element(self, dtype: str, name: str) -> np.dtype:
        """Returns the NumPy type to read a tensor with."""
        if dtype not in self.elements:
            way = "install ml_dtypes" if dtype in _ADDED else "use get_bytes"
            raise ValueError(f"tensor {name} holds {dtype}, a type that NumPy does not have; {way}")
        return self.elements[dtype]

    def finish(self, array: Any, dtype: str, shape: list[int]) -> Any:
        """Returns the array for the caller."""
        return np.asarray(array)  # a single element becomes an array too


class Torch:
    """Delivers tensors as torch tensors, over the memory that was read into."""

    def __init__(self, device: Any) -> None:
        try:
            import torch
        except ImportError as error:
            raise ImportError(
                'framework="pt" needs torch, which could not be imported; install it, or use '
                'framework="np"'
            ) from error
        if sys.byteorder != "little":
            raise NotImplementedError('framework="pt" needs a little-endian machine')
        self._torch, self._device = torch, torch.device("cpu" if device is None else device)
        bytes_of = {name: code for name, (_, code) in _ADDED.items()}
        self.elements: dict[str, Any] = {
            name: np.dtype(code) for name, code in {**_PLAIN, **bytes_of}.items()
        }

    def element(self, dtype: str, name: str) -> np.dtype | None:
        """Returns the NumPy type to read a tensor with, or `None` to read its bytes."""
        if self._type(dtype) is None:
            raise ValueError(
                f"tensor {name} holds {dtype}, a type that this version of torch does not have; use "
                f"get_bytes"
            )
        return self.elements.get(dtype)

    def _type(self, dtype: str) -> Any:
        return getattr(self._torch, _TORCH.get(dtype, ""), None)

    def finish(self, array: Any, dtype: str, shape: list[int]) -> Any:
        """Returns the tensor over the memory of an array, or a copy of it on another device."""
        torch, element = self._torch, self._type(dtype)
        if dtype == "F4":  # two elements per byte
            shape = [*shape[:-1], shape[-1] // 2]
        array = np.ascontiguousarray(array)
        if array.size == 0:
            return torch.empty(shape, dtype=element, device=self._device)
        # The array is passed as bytes, because NumPy does not have all types of torch. The tensor keeps
        # the array alive, and the array keeps its memory alive.
        tensor = torch.from_numpy(array.reshape(-1).view(np.uint8)).view(element).reshape(shape)
        return tensor.to(self._device)
