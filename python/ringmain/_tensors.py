"""Memory that NumPy and torch share, even for element types that only one of them has."""

import sys

import numpy as np


def memory_of(out):
    """Returns an array over the memory of a tensor that was passed as `out`."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(out, torch.Tensor):
        raise TypeError(f"out must be an array or a tensor, not {type(out).__name__}")
    if out.device.type != "cpu":
        raise TypeError(f"out is on {out.device}, but a file can only be read into memory of the cpu")
    if out.requires_grad:
        raise TypeError("out requires a gradient; pass out.detach()")
    name = str(out.dtype).removeprefix("torch.")
    if name not in _ml_dtypes():
        return out.numpy()
    return out.view(_words(torch, out.dtype.itemsize)).numpy().view(_ml_dtypes()[name])


def exported(array):
    """Returns an object that exports the elements of an array with DLPack.

    DLPack has only the native byte order, so arrays of another order are converted. NumPy cannot export
    the types of ml_dtypes, but torch can.
    """
    if not array.dtype.isnative:
        return array.astype(array.dtype.newbyteorder("="))
    if array.dtype.name not in _ml_dtypes():
        return array
    try:
        import torch
    except ImportError:
        return array
    element = getattr(torch, array.dtype.name, None)
    if element is None:
        return array
    return torch.from_numpy(array.view(f"u{array.itemsize}")).view(element)


def _words(torch, itemsize):
    """Returns an element type of this size that torch and NumPy both have."""
    return torch.int16 if itemsize == 2 else torch.uint8


def _ml_dtypes():
    """Returns bfloat16 and the float8 types of the package ml_dtypes by name, or an empty dict if the
    package is not installed."""
    if not _known:
        try:
            import ml_dtypes
        except ImportError:
            return _known
        _known["bfloat16"] = np.dtype(ml_dtypes.bfloat16)
        for name in dir(ml_dtypes):
            if name.startswith("float8_"):
                _known[name] = np.dtype(getattr(ml_dtypes, name))
    return _known


_known: dict[str, np.dtype] = {}
