"""Datasets for torch: shards, split over ranks and DataLoader workers, and those of FFCV."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from operator import index
from typing import Any

# Workers seed it, and each would import it anew; CPython 3.11 may fail to, in a forked child.
import numpy.random  # noqa: F401

from . import ShardSource, _split

try:
    import torch
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info
    from torch.utils.data._utils import collate
except ImportError as error:
    raise ImportError(
        "ringmain.torch needs torch, which could not be imported; install it, or use "
        "ringmain.ShardSource, which delivers NumPy arrays"
    ) from error

from ._beton_dataset import BetonDataset
from ._slots import Batch, plain, slots_of_worker

__all__ = ["Batch", "BetonDataset", "ShardDataset"]


def _refuse_collation(batch: Any, *, collate_fn_map: Any = None) -> Any:
    raise ValueError(
        "a ShardDataset delivers batches, and this DataLoader would batch them once more: give it "
        "batch_size=None, and batch_rows to the dataset"
    )


# A loader with a batch_size collates what it has collected, be it one batch.
collate.default_collate_fn_map[Batch] = _refuse_collation

# Where in the shared memory of a dataset and its copies is what.
_EPOCH, _LOADS, _IN_WORKERS = range(3)


class ShardDataset(IterableDataset[Batch]):
    """Batches of rows of shards: `(rows, row_ids)` as tensors, each row once in an epoch.

    The rows are split over the ranks, and those of a rank over the workers of its DataLoader, which
    must not batch once more: `DataLoader(dataset, batch_size=None, num_workers=2)`. Rank and world
    are those of `torch.distributed` where that is initialised. All other options are those of
    `ringmain.ShardSource`.

    As each row comes once, ranks may differ in their number of batches, and
    `DistributedDataParallel` would wait for those that have ended: train within its `join()`, or
    stop all at the smallest `batches()` of any rank.
    """

    def __init__(
        self,
        paths: Any,
        *,
        epoch: int = 0,
        rank: int | None = None,
        world: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if (rank is None) != (world is None):
            raise ValueError("rank and world are given together, or left to torch.distributed")
        if rank is None or world is None:
            rank, world = _distributed()
        self._paths = paths
        self._options = options
        self._rank, self._world = rank, world
        # Shared, so that workers that live on see what is set later, and the other way round.
        self._shared = _shared_zeros(3)
        self._shared[_EPOCH] = epoch
        self._loads = 0
        self._resume: _Resume | None = None
        self._source: ShardSource | None = None
        self._place = 0, 1
        # What cannot be opened is an error here, not in a worker.
        source = self._open(0, 1)
        self._start, self._batch_rows = source.state_dict(), source.batch_rows

    @property
    def epoch(self) -> int:
        """Which pass over the rows comes next, or is under way."""
        return int(self._shared[_EPOCH])

    def set_epoch(self, epoch: int) -> None:
        """Another pass over the rows: other shuffled ones, or the same in sequential order.

        It begins with the first row, but after `load_state_dict` of a state of this very epoch,
        which goes on from there.
        """
        self._shared[_EPOCH] = epoch
        self._source = None
        if get_worker_info() is None:
            self._shared[_IN_WORKERS] = 0
        resume = self._resume
        if resume is not None and (resume.epoch != epoch or resume.is_used()):
            self._resume = None

    def batches(self, num_workers: int = 0) -> int:
        """The number of batches that a DataLoader with `num_workers` has in an epoch of this rank."""
        return sum(self._lengths(max(1, num_workers), self.epoch))

    def __len__(self) -> int:
        """The batches of an epoch of this rank; of a loader that asks, with its workers."""
        # `len(loader)` is the length of its dataset, which depends on the workers: each of them ends
        # with a batch that may be short. Torch does not tell a dataset who asks.
        asking = sys._getframe(1).f_locals.get("self")
        workers = asking.num_workers if isinstance(asking, DataLoader) else 0
        return self.batches(workers)

    def __iter__(self) -> Iterator[Batch]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info is not None else (0, 1)
        if self._loads != int(self._shared[_LOADS]):
            raise RuntimeError(
                "load_state_dict was called after the loader had started its workers, which do not "
                "know of it; call it before, or make another DataLoader"
            )
        self._shared[_IN_WORKERS] = 0 if info is None else 1
        resume = self._resume
        if resume is not None and resume.epoch == self.epoch and resume.use(info):
            source, part = self._go_on(resume, worker, workers)
        else:
            source, part = self._open(worker, workers), worker
        self._source, self._place = source, (part, workers)
        slots = None if info is None else slots_of_worker()
        for rows, row_ids in source:
            yield (plain if slots is None else slots.batch)(rows, row_ids.view("int64"))

    def state_dict(self, *, batches: int | None = None, num_workers: int = 0) -> dict[str, Any]:
        """Where the epoch stands: a plain dict.

        Of this process's own iteration, which is also what a loader that keeps the states of its
        workers asks for. A plain DataLoader with workers has read ahead of its caller: say how many
        `batches` of it were used in this epoch, those before a `load_state_dict` included, and its
        `num_workers`. They are counted in the order of a loader that has `in_order=True`, the
        default.
        """
        state: dict[str, Any] = {
            "epoch": self.epoch, "rank": self._rank, "world": self._world,
            "batch_rows": self._batch_rows, "start": self._start,
        }  # fmt: skip
        if batches is not None:
            state["batches"] = _count("batches", batches)
            state["num_workers"] = _count("num_workers", num_workers)
            return state
        if get_worker_info() is None and self._shared[_IN_WORKERS]:
            raise RuntimeError(
                "the rows are read by the workers of a DataLoader, which are ahead of you: say how "
                "many batches you have used, state_dict(batches=…, num_workers=…)"
            )
        if self._source is not None:
            state["part"], state["num_workers"] = self._place
            state["source"] = self._source.state_dict()
        elif self._resume is not None and not self._resume.is_used():
            state = dict(self._resume.state)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration goes on from there: with the batches that were not delivered.

        To be called before a loader starts its workers. Iterations after that have all rows again.
        """
        epoch, resume = self._parse(state)
        if get_worker_info() is None:
            self._loads += 1
            self._shared[_LOADS] = self._loads
        self._resume = resume
        self.set_epoch(epoch)

    def __getstate__(self) -> dict[str, Any]:
        # A source has a thread and open files; the copy opens its own.
        return {**self.__dict__, "_source": None}

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self._options.items())
        return (
            f"ShardDataset({str(self._paths)!r}, epoch={self.epoch}, rank={self._rank}, "
            f"world={self._world}{options})"
        )

    def _open(self, part: int, parts: int, epoch: int | None = None) -> ShardSource:
        rank, world = _split.part(self._rank, self._world, part, parts)
        epoch = self.epoch if epoch is None else epoch
        return ShardSource(self._paths, epoch=epoch, rank=rank, world=world, **self._options)

    def _lengths(self, parts: int, epoch: int) -> list[int]:
        return [len(self._open(part, parts, epoch)) for part in range(parts)]

    def _parse(self, state: dict[str, Any]) -> tuple[int, _Resume | None]:
        """The epoch of a state, and what is to be done if that is not its beginning."""
        try:
            epoch, theirs = index(state["epoch"]), (state["rank"], state["world"])
            workers = max(1, _count("num_workers", state.get("num_workers", 0)))
            used = _count("batches", state["batches"]) if "batches" in state else None
            part = index(state["part"]) if "source" in state else None
            start, batch_rows = dict(state["start"]), index(state["batch_rows"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no state of a ShardDataset: {error!r}") from error
        if theirs != (self._rank, self._world):
            raise ValueError(
                f"the state is that of rank {theirs[0]} of {theirs[1]}, and this is rank "
                f"{self._rank} of {self._world}; load each rank's own"
            )
        self._open(0, 1).load_state_dict(start)  # an error if shards, order, seed, rows are others
        if part is not None:
            self._open(part, workers, epoch).load_state_dict(state["source"])
            parts = [(part, 0)] * workers
        elif used is not None:
            parts = self._parts_left(used, workers, epoch, batch_rows)
        else:
            return epoch, None
        return epoch, _Resume(state, epoch, workers, parts, _shared_zeros(1 + workers))

    def _parts_left(
        self, used: int, workers: int, epoch: int, batch_rows: int
    ) -> list[tuple[int, int]]:
        if batch_rows != self._batch_rows:
            raise ValueError(
                f"the state counts batches of {batch_rows} rows, and these have "
                f"{self._batch_rows}; go on with batch_rows={batch_rows}"
            )
        lengths = self._lengths(workers, epoch)
        if used > sum(lengths):
            raise ValueError(f"the state is after {used} batches, and there are {sum(lengths)}")
        return _split.parts_left(used, lengths)

    def _go_on(self, resume: _Resume, worker: int, workers: int) -> tuple[ShardSource, int]:
        part, used = resume.parts[worker]
        source = self._open(part, workers)
        if "source" in resume.state:
            source.load_state_dict(resume.state["source"])
        else:
            source.skip_batches(used)
        return source, part


@dataclass
class _Resume:
    """A state that the next iteration goes on from, and no other."""

    state: dict[str, Any]
    epoch: int
    workers: int
    # For each worker its part, and how many batches of it were used.
    parts: list[tuple[int, int]]
    # Which iteration has used it, and which of its workers have.
    uses: torch.Tensor

    def is_used(self) -> bool:
        return bool(self.uses.any())

    def use(self, info: Any) -> bool:
        """False if an earlier iteration has: of this process, or of the workers before."""
        worker, workers = (info.id, info.num_workers) if info is not None else (0, 1)
        # Workers of one iteration have seeds that differ by their numbers. Where a program seeds
        # each epoch alike, those of the next have the same ones, but come a second time.
        iteration = -1 if info is None else (info.seed - worker) % (1 << 62) + 1
        if int(self.uses[0]) not in (0, iteration):
            return False
        if worker < self.workers and self.uses[1 + worker]:
            return False
        if self.workers != workers:
            taken_with = self.state.get("num_workers", 0)
            raise ValueError(
                f"the state was taken with num_workers={taken_with}, and the rows of an epoch are "
                f"split over as many; go on with as many, and change it in the next epoch"
            )
        self.uses[0] = iteration
        self.uses[1 + worker] = 1
        return True


def _shared_zeros(count: int) -> torch.Tensor:
    zeros = torch.zeros(count, dtype=torch.int64)
    zeros.share_memory_()  # type: ignore[no-untyped-call]
    return zeros


def _count(name: str, value: Any) -> int:
    count = index(value)
    if count < 0:
        raise ValueError(f"{name} cannot be {value}: it counts from 0")
    return count


def _distributed() -> tuple[int, int]:
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1
