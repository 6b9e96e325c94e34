"""Datasets for torch: shards and `.beton` files, split over ranks and DataLoader workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# Torch seeds numpy.random in each worker. Without this import each forked worker would import the module
# itself, which can fail in CPython 3.11.
import numpy.random  # noqa: F401

from . import ShardSource

try:
    import torch  # noqa: F401
    from torch.utils.data._utils import collate
except ImportError as error:
    raise ImportError(
        "ringmain.torch needs torch, which could not be imported; install it, or use "
        "ringmain.ShardSource, which delivers NumPy arrays"
    ) from error

from ._batch_dataset import BatchDataset
from ._beton_batches import BetonBatch, BetonBatches
from ._beton_dataset import BetonDataset
from ._beton_loader import BetonLoader
from ._resume import job_state
from ._shard_rows import ShardRows
from ._slots import Batch, plain, slots_of_worker

__all__ = [
    "Batch",
    "BetonBatch",
    "BetonBatches",
    "BetonDataset",
    "BetonLoader",
    "ShardDataset",
    "ShardRows",
    "job_state",
]


def _refuse_collation(batch: Any, *, collate_fn_map: Any = None) -> Any:
    raise ValueError(
        "this dataset delivers batches, but the DataLoader would batch them again: pass "
        "batch_size=None to the DataLoader, and the size of a batch to the dataset"
    )


# A DataLoader with a batch_size collates the items of a dataset, even a single one. For batches, this
# function makes that an error.
collate.default_collate_fn_map[Batch] = _refuse_collation
collate.default_collate_fn_map[BetonBatch] = _refuse_collation


class ShardDataset(BatchDataset):
    """Delivers the rows of shards in batches `(rows, row_ids)` of tensors.

    The rows are split over the ranks, and the rows of a rank over the workers of its DataLoader. The
    DataLoader must not batch again: `DataLoader(dataset, batch_size=None, num_workers=2)`. By default, rank
    and world are those of `ringmain.job_place(group=group)`: of `torch.distributed`, Ray Train or torchrun. All
    other options are those of `ringmain.ShardSource`.

    Each loop begins the next epoch, also after a `break`, with any number of workers. A program that calls
    `set_epoch` chooses the epochs itself: from then on, every loop delivers the epoch that was set last.

    With `global_batch`, every batch of the job has the same rows for any number of ranks and workers, all ranks
    have equally many batches, and the state of a job can be loaded by another number of ranks and workers.
    `nodes="auto"` takes the number of nodes from `ringmain.job_place()`.

    Without it, each row comes once, so ranks may have different numbers of batches. `DistributedDataParallel`
    would then wait for the ranks that have finished. To avoid this, train within its `join()`, or stop every
    rank after the smallest `batches()` of all ranks.
    """

    def __init__(
        self,
        paths: Any,
        *,
        epoch: int = 0,
        rank: int | None = None,
        world: int | None = None,
        group: Any = None,
        **options: Any,
    ) -> None:
        # An iterator, such as a glob, could be used only once, but each worker opens the shards itself.
        self._paths = list(paths) if isinstance(paths, Iterator) else paths
        super().__init__(epoch, rank, world, group, options)

    def __repr__(self) -> str:
        return self._repr(repr(str(self._paths)))

    def _open_source(self, **options: Any) -> ShardSource:
        return ShardSource(self._paths, **options)

    def _batch_items(self, source: Any) -> int:
        return int(source.batch_rows)

    def _deliver(self, source: Any, is_worker: bool) -> Iterator[Batch]:
        slots = slots_of_worker() if is_worker else None
        for rows, row_ids in source:
            yield (plain if slots is None else slots.batch)(rows, row_ids.view("int64"))
