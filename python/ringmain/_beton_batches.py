"""Batches of a `.beton` file as tensors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch


class BetonBatch(NamedTuple):
    """The fields of samples by name, and the number of each sample."""

    fields: dict[str, Any]
    ids: torch.Tensor


def tensors(fields: dict[str, Any], ids: np.ndarray) -> BetonBatch:
    """Returns a batch over the memory of its arrays."""
    return BetonBatch(
        {name: _tensors(column) for name, column in fields.items()},
        torch.from_numpy(ids.view("int64")),
    )


def _tensors(column: Any) -> Any:
    if isinstance(column, np.ndarray) and column.dtype.names is None:
        return torch.from_numpy(column)
    if isinstance(column, list):
        return [_tensors(value) for value in column]
    if isinstance(column, dict):
        return {name: _tensors(part) for name, part in column.items()}
    return column
