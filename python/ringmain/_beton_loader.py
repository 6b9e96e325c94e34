"""A loader of `.beton` files, in place of a DataLoader."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from operator import index
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils.pin_memory import pin_memory as pinned

from ._ahead import Ahead
from ._beton_batches import BetonBatch, BetonBatches
from ._ringmain import Beton

# The options that choose the samples of an epoch. All others are those of the file.
_EPOCH_OPTIONS = (
    "cache_pages", "damaged", "global_batch", "memory_manager", "nodes", "open_pages", "patience",
    "prefetch_bytes", "traversal",
)  # fmt: skip


class BetonLoader(IterableDataset[BetonBatch]):
    """Loads a `.beton` file in place of a DataLoader: the engine reads, its threads decode, and a thread of the loader
    has the next batches ready. It delivers batches `(fields, ids)`: a dict of tensors by field name, and the
    numbers of the samples.

    Each loop begins the next epoch, also after a `break`, unless `set_epoch` chooses the epochs. `state_dict` is the
    position behind the last batch that the loop took, whatever was made ahead; `load_state_dict` makes the next loop
    continue there. A StatefulDataLoader of torchdata calls both: pass `batch_size=None` to it.

    beton: a file, or a ringmain.Beton with its own options.
    batch_size: the number of samples in a batch; 256 by default.
    shuffle: delivers the samples in another random order in each epoch.
    seed: the seed of the order.
    drop_last: leaves out the last batch if it is smaller than the others.
    epoch: the number of the first epoch.
    rank, world, group: as for a ShardDataset.
    ahead: the number of batches that are made ahead of the loop; 0 makes each when the loop takes it.
    pin_memory: copies the tensors to pinned memory, from which they reach a GPU faster. By default, if there is one. The
        workers of a DataLoader pin nothing; its own `pin_memory` does that.
    options: the other options of Beton.epoch, such as `global_batch` and `damaged`; for a file, also those of
        ringmain.Beton, such as `resize`, `random_crop` and `decode_threads`.
    """

    def __init__(
        self,
        beton: Any,
        *,
        batch_size: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        epoch: int = 0,
        rank: int | None = None,
        world: int | None = None,
        group: Any = None,
        ahead: int = 2,
        pin_memory: bool | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if index(ahead) < 0:
            raise ValueError(f"ahead cannot be {ahead}: it must be at least 0")
        order = {name: options.pop(name) for name in _EPOCH_OPTIONS if name in options}
        if shuffle and "traversal" in order:
            raise ValueError("shuffle and traversal exclude each other: pass one of them")
        if isinstance(beton, Beton) and options:
            raise TypeError(f"{', '.join(options)}: pass these options to ringmain.Beton")
        if shuffle:
            order["traversal"] = "random"
        self.beton = beton if isinstance(beton, Beton) else Beton(beton, **options)
        self._batches = BetonBatches(
            self.beton, epoch=epoch, rank=rank, world=world, group=group, batch_size=batch_size, seed=seed,
            drop_last=drop_last, **order,
        )  # fmt: skip
        self._ahead = index(ahead)
        self._pin = torch.cuda.is_available() if pin_memory is None else bool(pin_memory)
        # The iterator of the loop holds it: dropping the iterator ends the thread.
        self._loop: weakref.ref[Ahead] | None = None
        # The state behind the last batch of the loop; `None` if no batch was taken since the loop began.
        self._state: dict[str, Any] | None = None

    @property
    def epoch(self) -> int:
        """The number of the epoch of the current or the last loop. Before the first loop, and after `set_epoch` or
        `load_state_dict`, it is the epoch of the next loop."""
        return self._batches.epoch

    def __len__(self) -> int:
        """Returns the number of batches in an epoch of this rank. In `len(loader)`, it is the number for the workers of
        that DataLoader."""
        return self._batches._len_for(sys._getframe(1))

    def __iter__(self) -> Iterator[BetonBatch]:
        # The thread of an unfinished loop reads from the same source.
        self._end_loop()
        batches = iter(self._batches)
        # The state at the beginning of this loop. The thread, which begins later, opens its source.
        self._state = self._batches.state_dict()
        # A forked worker cannot use CUDA, which pinning needs.
        is_pinned = self._pin and get_worker_info() is None
        if self._ahead == 0:
            return self._taken(self._made(batches, is_pinned))
        loop = Ahead(lambda: self._made(batches, is_pinned), self._ahead)
        self._loop = weakref.ref(loop)
        return self._taken(loop)

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch, as `ShardDataset.set_epoch` does."""
        self._end_loop()
        self._batches.set_epoch(epoch)

    def state_dict(self, *, batches: int | None = None, num_workers: int = 0) -> dict[str, Any]:
        """Returns the position behind the last batch that the loop took, as a plain dict.

        The workers of a plain DataLoader are ahead of its caller, who passes `batches` and `num_workers` as to
        `ShardDataset.state_dict`.
        """
        if self._state is None or batches is not None:
            return self._batches.state_dict(batches=batches, num_workers=num_workers)
        # The state is that of an earlier loop if a DataLoader with workers was looped over since.
        self._batches._check_not_ahead()
        return self._state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next loop continue from a state."""
        self._end_loop()
        self._batches.load_state_dict(state)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loop": None}

    def __repr__(self) -> str:
        return f"BetonLoader({self._batches!r})"

    def _end_loop(self) -> None:
        loop = None if self._loop is None else self._loop()
        if loop is not None:
            loop.close()
        self._loop = self._state = None

    def _made(
        self, batches: Iterator[BetonBatch], is_pinned: bool
    ) -> Iterator[tuple[BetonBatch, dict[str, Any]]]:
        """Makes the batches of a loop, each with the state behind it."""
        for batch in batches:
            yield (pinned(batch) if is_pinned else batch), self._batches.state_dict()

    def _taken(self, made: Iterator[tuple[BetonBatch, dict[str, Any]]]) -> Iterator[BetonBatch]:
        for batch, state in made:
            self._state = state
            yield batch
