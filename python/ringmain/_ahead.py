"""Makes items in a thread, a few ahead of the loop that takes them."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any


class Ahead:
    """An iterator over the items that a thread makes: at most `count` more than were taken.

    The thread ends when all items are made, when making one raises an exception, when `close` is called, when the
    iterator is dropped, and when the program ends.
    """

    def __init__(self, make: Callable[[], Iterator[Any]], count: int) -> None:
        self._made = _Made(make, count)
        self._process = os.getpid()
        # The thread must not refer to this object: dropping it ends the thread. `atexit` also calls this.
        self.close = weakref.finalize(self, _Made.stop, self._made)

    def __iter__(self) -> Ahead:
        return self

    def __next__(self) -> Any:
        if self._process != os.getpid():
            raise RuntimeError(
                "this loop began in the parent process, whose thread makes its batches: begin another loop here"
            )
        if not self.close.alive:
            raise StopIteration
        item, error, is_end = self._made.items.get()
        if not self.close.alive:
            raise StopIteration  # another thread has ended the loop meanwhile
        if is_end:
            self.close()
            if error is not None:
                raise error
            raise StopIteration
        self._made.room.release()
        return item


class _Made:
    """The items, and the thread that makes them."""

    def __init__(self, make: Callable[[], Iterator[Any]], count: int) -> None:
        self.items: SimpleQueue[tuple[Any, BaseException | None, bool]] = SimpleQueue()
        # Each item that is being made, or waits to be taken, has one of these.
        self.room = threading.Semaphore(count)
        self._is_stopped = False
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, args=(make,), name="ringmain-ahead", daemon=True)
        self._thread.start()

    def _run(self, make: Callable[[], Iterator[Any]]) -> None:
        error = None
        try:
            items = make()
            while True:
                self.room.acquire()
                if self._is_stopped:
                    break
                try:
                    item = next(items)
                except StopIteration:
                    break
                self.items.put((item, None, False))
                del item
        except BaseException as raised:
            error = raised
        # Also after `stop`: another thread may be waiting for an item.
        self.items.put((None, error, True))

    def stop(self) -> None:
        # A forked child does not have the thread, and the lock of `room` may stay locked there forever.
        if self._process != os.getpid():
            return
        self._is_stopped = True
        self.room.release()
        # The garbage collector may call this in the thread itself.
        if threading.current_thread() is not self._thread:
            self._thread.join()
