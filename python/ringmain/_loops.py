"""Counts the loops over a dataset, in memory that the process shares with its DataLoader workers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

# The shared memory has the number of loops that have begun, and then a table of loops: a key and a number in
# each place. The key decides the place, so that loops that begin at the same time rarely use the same one.
_BEGUN, _TABLE = 0, 1
_PLACES = 512

# How long a worker waits for the first worker. A worker that is not forked imports torch first, which takes
# seconds.
_SECONDS_MAX = 120.0


def shared_zeros(count: int) -> torch.Tensor:
    """Returns whole numbers in memory that this process shares with its workers."""
    zeros = torch.zeros(count, dtype=torch.int64)
    zeros.share_memory_()  # type: ignore[no-untyped-call]
    return zeros


class Loops:
    """Gives each loop over a dataset a number, the same one in all workers of the loop.

    Torch does not tell the parent process when a loop begins: only the workers iterate over the dataset.
    So the first worker of a loop takes the next number, and the other workers wait until it has. They find
    the number by the seed that torch draws for the loop and gives to all its workers. If a program sets the
    same seed before two loops, the second loop gets the number of the first, as torch's own sampler would
    repeat its order.
    """

    def __init__(self) -> None:
        self._shared = shared_zeros(_TABLE + 2 * _PLACES)
        # In a worker: the key and the number of its first loop, and how many loops it has begun. A persistent
        # worker keeps the seed of its first loop, so it counts its later loops itself.
        self._key: int | None = None
        self._first: int | None = None
        self._own = 0

    @property
    def begun(self) -> int:
        """The number of loops that have begun."""
        return int(self._shared[_BEGUN])

    def restart(self, info: Any) -> None:
        """Makes the next loop number 0. Among workers, only the first one changes the shared memory."""
        self._key, self._first, self._own = None, None, 0
        if info is None or info.id == 0:
            self._shared.zero_()

    def begin(self, info: Any, again: bool) -> Callable[[], int]:
        """Begins a loop; every worker of the loop calls this. Returns a function that returns the number of
        the loop, once the first worker has taken it. `again` gives the loop the number 0 even if such a
        loop has begun already."""
        if info is None:
            number = 0 if again else self.begun
            self._shared[_BEGUN] = number + 1
            return lambda: number
        if self._key is None:
            self._key = (info.seed - info.id) % (1 << 62) + 1  # not 0, the key of an unused place
            if info.id == 0 and self._find(self._key) is None:
                self._publish(self._key, 0 if again else self.begun)
        later, self._own = self._own, self._own + 1
        if info.id == 0:
            self._shared[_BEGUN] = self._first_number() + later + 1
        return lambda: self._first_number() + later

    def _publish(self, key: int, number: int) -> None:
        place = _TABLE + 2 * (key % _PLACES)
        # The key comes last: a worker that finds it reads the number next.
        self._shared[place + 1] = number
        self._shared[place] = key

    def _find(self, key: int) -> int | None:
        place = _TABLE + 2 * (key % _PLACES)
        return int(self._shared[place + 1]) if int(self._shared[place]) == key else None

    def _first_number(self) -> int:
        """Returns the number of the first loop of this worker. Waits for the first worker to take it."""
        end = time.monotonic() + _SECONDS_MAX
        while self._first is None and self._key is not None:
            self._first = self._find(self._key)
            if self._first is not None:
                break
            if time.monotonic() > end:
                raise RuntimeError(
                    "the first worker of the DataLoader has not begun this loop; if you call "
                    "dataset.set_epoch(epoch) before each loop, no worker waits for the first one"
                )
            time.sleep(0.001)
        return self._first or 0
