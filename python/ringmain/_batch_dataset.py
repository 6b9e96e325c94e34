"""Datasets of batches, split over the ranks and the workers of their DataLoaders."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from operator import index
from types import FrameType
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from . import _place, _split
from ._loops import Loops, shared_zeros
from ._resume import Resume, job_state, worker_of

# The positions in the memory that a dataset shares with its copies in workers.
_EPOCH, _IS_SET, _LOADS, _IN_WORKERS = range(4)

# The workers of a loop that mark a state as used. Workers beyond share the flags of others.
_FLAGS = 1024


class BatchDataset(IterableDataset[Any]):
    """Delivers the batches of a source, split over the ranks and the workers of their DataLoaders.

    Each loop begins the next epoch, also after a `break`, with any number of workers. A program that calls
    `set_epoch` chooses the epochs itself: from then on, every loop delivers the epoch that was set last.
    """

    def __init__(
        self,
        epoch: int,
        rank: int | None,
        world: int | None,
        group: Any,
        options: dict[str, Any],
    ) -> None:
        super().__init__()
        self._job = _place.job_place(rank, world, group=group)
        if options.get("nodes") == "auto":
            options = {**options, "nodes": _place.nodes_of(self._job)}
        self._options = options
        self._is_global = options.get("global_batch") is not None
        self._rank, self._world = self._job.rank, self._job.world
        # Shared with the workers: persistent workers see a later `set_epoch`, and this process sees
        # that the workers are reading.
        self._shared = shared_zeros(4)
        self._shared[_EPOCH] = epoch
        self._loops = Loops()
        self._loads = 0
        self._resume: Resume | None = None
        self._source: Any = None
        # Returns the number of a loop that has begun and has not opened its source yet.
        self._begun: Callable[[], int] | None = None
        self._place = 0, 1
        # If the data cannot be opened, the error is raised here and not in a worker.
        source = self._open(0, 1)
        self._start, self._batch_rows = source.state_dict(), self._batch_items(source)
        # A process group cannot be sent to a worker.
        self._group, self._has_group = group, group is not None

    @property
    def epoch(self) -> int:
        """The number of the epoch of the current or the last loop. Before the first loop, and after
        `set_epoch` or `load_state_dict`, it is the epoch of the next loop."""
        return self._epoch_of(max(0, self._loops.begun - 1))

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch. Each epoch has its own order, unless the order is sequential.

        The epoch begins with its first row. If `load_state_dict` was called just before with a state of
        this epoch, the epoch continues from that state. After this call, the dataset no longer advances by
        itself: call it before each loop.
        """
        self._begin_epoch(epoch)
        self._shared[_IS_SET] = 1
        resume = self._resume
        if resume is not None and (resume.epoch != epoch or resume.is_used()):
            self._resume = None

    def batches(self, num_workers: int = 0) -> int:
        """Returns the number of batches in an epoch of this rank, for a DataLoader with `num_workers`."""
        # With a global batch the workers take turns, so their number does not matter.
        parts = 1 if self._is_global else max(1, num_workers)
        return sum(self._lengths(parts, self.epoch))

    def __len__(self) -> int:
        """Returns the number of batches in an epoch of this rank. In `len(loader)`, it is the number for
        the workers of that DataLoader."""
        return self._len_for(sys._getframe(1))

    def _len_for(self, caller: FrameType) -> int:
        """Returns the length for a caller of `len`."""
        # The number depends on the workers, because the last batch of each may be short. Torch does not
        # pass the loader, so it is taken from the caller's frame.
        asking = caller.f_locals.get("self")
        return self.batches(asking.num_workers if isinstance(asking, DataLoader) else 0)

    def __iter__(self) -> Iterator[Any]:
        self._check_place()
        # This function is not a generator, because the loop must be counted even if it ends before this
        # worker has to deliver a batch.
        info = get_worker_info()
        resume = self._resume
        is_loaded = resume is not None and not resume.is_used()
        self._begun = self._loops.begin(info, again=is_loaded)
        self._shared[_IN_WORKERS] = 0 if info is None else 1
        return self._batches(info, self._begun)

    def _batches(self, info: Any, loop_number: Callable[[], int]) -> Iterator[Any]:
        worker, workers = worker_of(info)
        if self._loads != int(self._shared[_LOADS]):
            raise RuntimeError(
                "load_state_dict was called after the DataLoader had started its workers, which do "
                "not have the state; call it earlier, or make another DataLoader"
            )
        resume = self._resume
        epoch = self._epoch_of_loop(loop_number)
        if resume is not None and resume.epoch == epoch and resume.use(info):
            source, part = self._go_on(resume, worker, workers)
        else:
            source, part = self._open(worker, workers, epoch), worker
        self._source, self._place, self._begun = source, (part, workers), None
        yield from self._deliver(source, info is not None)

    def state_dict(self, *, batches: int | None = None, num_workers: int = 0) -> dict[str, Any]:
        """Returns the position in the epoch as a plain dict.

        Without arguments, it is the position of the iteration in this process. A loader that keeps the
        states of its workers, such as torchdata's StatefulDataLoader, calls this method in each worker.
        The workers of a plain DataLoader are ahead of its caller, so pass the number of `batches` that
        were used in this epoch, including those before a `load_state_dict`, and the `num_workers` of the
        loader. The loader must have `in_order=True`, the default.

        With a `global_batch`, it is the state of the whole job, from which any number of ranks and workers can
        continue, and `num_workers` does not matter. Only in a worker it is the state of that worker;
        `job_state` makes that of the job from the state of a StatefulDataLoader.
        """
        if self._is_global:
            return self._job_state(batches)
        state: dict[str, Any] = {
            "epoch": self.epoch, "rank": self._rank, "world": self._world,
            "batch_rows": self._batch_rows, "start": self._start,
        }  # fmt: skip
        if batches is not None:
            state["batches"] = _count("batches", batches)
            state["num_workers"] = _count("num_workers", num_workers)
            return state
        self._check_not_ahead()
        if self._source is not None and self._begun is None:
            # Another loop may have begun since in workers, with the next epoch.
            state["epoch"] = self._source.epoch
            state["part"], state["num_workers"] = self._place
            state["source"] = self._source.state_dict()
            return state
        state["epoch"], resume = self._next_start()
        return state if resume is None else dict(resume.state)

    def _job_state(self, batches: int | None) -> dict[str, Any]:
        if batches is not None:
            source, used = self._open(0, 1), _count("batches", batches)
            if used > len(source):
                raise ValueError(
                    f"batches cannot be {batches}: an epoch of this dataset has {len(source)} batches; count "
                    f"those of this epoch alone"
                )
            source.skip_batches(used)
            return dict(source.state_dict())
        self._check_not_ahead()
        if self._source is not None and self._begun is None:
            return dict(self._source.state_dict())
        info, (epoch, resume) = get_worker_info(), self._next_start()
        if resume is None:
            return dict(self._open(*worker_of(info), epoch).state_dict())
        if info is None:
            return dict(resume.state)
        # The state that was loaded is that of the job, but `job_state` needs that of each worker.
        return dict(self._go_on(resume, *worker_of(info))[0].state_dict())

    def _next_start(self) -> tuple[int, Resume | None]:
        """Returns the epoch of a loop that has not delivered anything, and the state that the loop continues from."""
        epoch = self.epoch if self._begun is None else self._epoch_of_loop(self._begun)
        resume = self._resume
        if resume is not None and resume.epoch == epoch and resume.is_left(get_worker_info()):
            return epoch, resume
        return epoch, None

    def _check_not_ahead(self) -> None:
        if get_worker_info() is None and self._shared[_IN_WORKERS]:
            raise RuntimeError(
                "the workers of a DataLoader read the data and are ahead of your loop: pass the "
                "number of batches that you have used, state_dict(batches=…, num_workers=…)"
            )

    def _check_place(self) -> None:
        """Raises an error if the job has other ranks than when this dataset was made."""
        if self._has_group and self._group is None:
            return  # this is a copy in a worker, which is in no group
        now = _place.moved(self._job, self._group)
        if now is not None:
            raise RuntimeError(
                f"this process is now {now}, but this dataset was made for {self._job}: make another "
                f"one in every process, and load the state of the job"
            )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next iteration continue from a state, with the batches that were not delivered yet.

        Call it before a loader starts its workers. Later iterations deliver all rows again.
        """
        epoch, resume = self._parse(state)
        if get_worker_info() is None:
            self._loads += 1
            self._shared[_LOADS] = self._loads
        self._resume = resume
        self._begin_epoch(epoch)

    def __getstate__(self) -> dict[str, Any]:
        # A source has a thread and open files, so the copy opens its own source.
        return {**self.__dict__, "_source": None, "_begun": None, "_group": None}

    def _repr(self, data: str) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self._options.items())
        return (
            f"{type(self).__name__}({data}, epoch={self.epoch}, rank={self._rank}, "
            f"world={self._world}{options})"
        )

    def _begin_epoch(self, epoch: int) -> None:
        """Makes this the epoch of the next loop."""
        info = get_worker_info()
        self._shared[_EPOCH] = epoch
        self._loops.restart(info)
        self._source = self._begun = None
        if info is None:
            self._shared[_IN_WORKERS] = 0

    def _epoch_of(self, loop: int) -> int:
        """Returns the epoch of a loop, counted from the first loop after `_begin_epoch`."""
        return int(self._shared[_EPOCH]) + (0 if self._shared[_IS_SET] else loop)

    def _epoch_of_loop(self, loop_number: Callable[[], int]) -> int:
        # If the program sets the epochs, no worker has to wait for the number of the loop.
        return self._epoch_of(0 if self._shared[_IS_SET] else loop_number())

    def _open(self, part: int, parts: int, epoch: int | None = None) -> Any:
        return self._open_source(
            epoch=self.epoch if epoch is None else epoch,
            rank=self._rank, world=self._world, worker=part, workers=parts,
            **self._options,
        )  # fmt: skip

    def _open_source(self, **options: Any) -> Any:
        """Opens a source with these options."""
        raise NotImplementedError

    def _batch_items(self, source: Any) -> int:
        """Returns the largest number of items in a batch of a source."""
        raise NotImplementedError

    def _deliver(self, source: Any, is_worker: bool) -> Iterator[Any]:
        """Converts the batches of a source to tensors."""
        raise NotImplementedError

    def _lengths(self, parts: int, epoch: int) -> list[int]:
        return [len(self._open(part, parts, epoch)) for part in range(parts)]

    def _parse(self, state: dict[str, Any]) -> tuple[int, Resume | None]:
        """Returns the epoch of a state, and how to continue in that epoch: `None` for a state at the
        beginning of the epoch."""
        if self._is_global:
            return self._parse_job(state)
        try:
            epoch, theirs = index(state["epoch"]), (state["rank"], state["world"])
            workers = max(1, _count("num_workers", state.get("num_workers", 0)))
            used = _count("batches", state["batches"]) if "batches" in state else None
            part = index(state["part"]) if "source" in state else None
            start, batch_rows = dict(state["start"]), index(state["batch_rows"])
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"this is not a valid state of a {type(self).__name__}: pass a dict that its state_dict() "
                f"returned ({error!r})"
            ) from error
        if theirs != (self._rank, self._world):
            raise ValueError(
                f"the state belongs to rank {theirs[0]} of {theirs[1]}, but this is rank "
                f"{self._rank} of {self._world}; load the state of this rank"
            )
        # Raises an error if the state has other shards, another order or seed, or other rows.
        self._open(0, 1).load_state_dict(start)
        if part is not None:
            self._open(part, workers, epoch).load_state_dict(state["source"])
            parts = [(part, 0)] * workers
        elif used is not None:
            parts = self._parts_left(used, workers, epoch, batch_rows)
        else:
            return epoch, None
        return epoch, Resume(state, epoch, workers, parts, shared_zeros(1 + workers))

    def _parse_job(self, state: dict[str, Any]) -> tuple[int, Resume]:
        if "_snapshot" in state or "dataset_state" in state:
            state = job_state(state)
        # Raises an error if the state belongs to another job, or to another worker.
        source = self._open(*state.get("worker", (0, 1)))
        source.load_state_dict(state)
        return source.epoch, Resume(state, source.epoch, None, [], shared_zeros(1 + _FLAGS))

    def _parts_left(
        self, used: int, workers: int, epoch: int, batch_rows: int
    ) -> list[tuple[int, int]]:
        if batch_rows != self._batch_rows:
            raise ValueError(
                f"the state counts batches of {batch_rows} rows, but this dataset has batches of "
                f"{self._batch_rows}; open it with batch_rows={batch_rows}"
            )
        lengths = self._lengths(workers, epoch)
        if used > sum(lengths):
            raise ValueError(
                f"the state was taken after {used} batches, but there are only {sum(lengths)}"
            )
        return _split.parts_left(used, lengths)

    def _go_on(self, resume: Resume, worker: int, workers: int) -> tuple[Any, int]:
        if self._is_global:
            source = self._open(worker, workers, resume.epoch)
            source.load_state_dict(resume.state)
            return source, worker
        part, used = resume.parts[worker]
        source = self._open(part, workers, resume.epoch)
        if "source" in resume.state:
            source.load_state_dict(resume.state["source"])
        else:
            source.skip_batches(used)
        return source, part


def _count(name: str, value: Any) -> int:
    count = index(value)
    if count < 0:
        raise ValueError(f"{name} cannot be {value}: it must be at least 0")
    return count
