"""Shards as a torch dataset, split over ranks and DataLoader workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import ShardSource, _split

try:
    import torch
    from torch.utils.data import IterableDataset, get_worker_info
except ImportError as error:
    raise ImportError(
        "ringmain.torch needs torch, which could not be imported; install it, or use "
        "ringmain.ShardSource, which delivers NumPy arrays"
    ) from error

__all__ = ["ShardDataset"]


class ShardDataset(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    """Batches of rows of shards: `(rows, row_ids)` as tensors, each row once in an epoch.

    The rows are split over the ranks, and those of a rank over the workers of its DataLoader, which
    must not batch once more: `DataLoader(dataset, batch_size=None, num_workers=2)`. Rank and world
    are those of `torch.distributed` where that is initialised. All other options are those of
    `ringmain.ShardSource`.
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
        # Shared, so that workers that live on see what is set later.
        self._epoch = torch.tensor(epoch, dtype=torch.int64)
        self._epoch.share_memory_()  # type: ignore[no-untyped-call]
        self._resume: dict[str, Any] | None = None
        self._source: ShardSource | None = None
        self._open(0, 1)  # what cannot be opened is an error here, not in a worker

    @property
    def epoch(self) -> int:
        """Which pass over the rows comes next, or is under way."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Another pass over the rows: other shuffled ones, or the same in sequential order."""
        self._epoch.fill_(epoch)
        self._resume = None
        self._source = None

    def batches(self, num_workers: int = 0) -> int:
        """How many batches a DataLoader with so many workers has in an epoch of this rank."""
        workers = max(1, num_workers)
        return sum(len(self._open(worker, workers)) for worker in range(workers))

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info is not None else (0, 1)
        source = self._open(worker, workers)
        resume, self._resume = self._resume, None
        if resume is not None:
            self._go_on(source, resume, worker, workers)
        self._source = source
        for rows, row_ids in source:
            yield torch.from_numpy(rows), torch.from_numpy(row_ids.view("int64"))

    def state_dict(self, *, batches: int | None = None, num_workers: int = 0) -> dict[str, Any]:
        """Where the epoch stands: a plain dict.

        Of this process's own iteration, which is also what a loader that keeps the states of its
        workers asks for. A plain DataLoader with workers has read ahead of its caller: say how many
        `batches` of it were used in this epoch, and its `num_workers`.
        """
        state: dict[str, Any] = {"epoch": self.epoch, "rank": self._rank, "world": self._world}
        if batches is not None:
            state["batches"], state["num_workers"] = batches, num_workers
        elif self._source is not None:
            state["source"] = self._source.state_dict()
        elif self._resume is not None:
            state = dict(self._resume)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration goes on from there: with the batches that were not delivered.

        To be called before a loader starts its workers. `set_epoch` begins a whole epoch again.
        """
        theirs = state.get("rank"), state.get("world")
        if theirs != (self._rank, self._world):
            raise ValueError(
                f"the state is that of rank {theirs[0]} of {theirs[1]}, and this is rank "
                f"{self._rank} of {self._world}; load each rank's own"
            )
        self.set_epoch(int(state["epoch"]))
        self._resume = dict(state)

    def __getstate__(self) -> dict[str, Any]:
        # A source has a thread and open files; the copy opens its own.
        return {**self.__dict__, "_source": None}

    def _open(self, worker: int, workers: int) -> ShardSource:
        rank, world = _split.part(self._rank, self._world, worker, workers)
        return ShardSource(self._paths, epoch=self.epoch, rank=rank, world=world, **self._options)

    def _go_on(self, source: ShardSource, state: dict[str, Any], worker: int, workers: int) -> None:
        if "source" in state:
            source.load_state_dict(state["source"])
        if "batches" in state:
            if max(1, state["num_workers"]) != workers:
                raise ValueError(
                    f"the state was taken with num_workers={state['num_workers']}, and the rows of "
                    f"an epoch are split over as many; go on with as many, and change it in the "
                    f"next epoch"
                )
            lengths = [len(self._open(at, workers)) for at in range(workers)]
            source.skip_batches(_split.share(state["batches"], worker, workers, lengths))


def _distributed() -> tuple[int, int]:
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1
