"""Batches of a `.beton` file as tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from ._batch_dataset import BatchDataset
from ._ringmain import Beton


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


class BetonBatches(BatchDataset):
    """Delivers the samples of a `.beton` file in batches `(fields, ids)`: a dict of tensors by field name, and
    the numbers of the samples.

    Ranks, workers, epochs and states are those of `ShardDataset`; the options are those of `Beton.epoch`, such as
    `traversal`, `seed` and `global_batch`. A field whose values have different shapes is a list of tensors, and
    a field of JSON a list of values. A `BetonDataset` delivers single samples instead, in the order of a
    sampler of torch.

    beton: a file, or a ringmain.Beton with its own options.
    """

    # As in the pickles of earlier versions. A worker that is not forked imports this module.
    __module__ = "ringmain.torch"

    def __init__(
        self,
        beton: Any,
        *,
        epoch: int = 0,
        rank: int | None = None,
        world: int | None = None,
        group: Any = None,
        **options: Any,
    ) -> None:
        self.beton = beton if isinstance(beton, Beton) else Beton(beton)
        super().__init__(epoch, rank, world, group, options)

    def __repr__(self) -> str:
        return self._repr(repr(self.beton))

    def _open_source(self, **options: Any) -> Any:
        return self.beton.epoch(**options)

    def _batch_items(self, source: Any) -> int:
        return int(source.batch_size)

    def _deliver(self, source: Any, is_worker: bool) -> Iterator[BetonBatch]:
        for fields, ids in source:
            yield tensors(fields, ids)
