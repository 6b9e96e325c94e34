"""Sends batches from a DataLoader's worker to its parent through shared memory that is used again.

Torch allocates new shared memory for each tensor that leaves a worker: the kernel zeroes its pages, the
worker sends a descriptor, and the parent maps it. For batches of a few megabytes this takes longer than
reading them. Here a worker has a few slots, which are anonymous files that both processes have mapped,
and a message only names the slot.

The worker fills a slot again once no tensor can see its contents. The worker knows whether it has
tensors over the slot itself; the slot's first byte tells whether the receiver has any. A slot that
either process holds while it forks is never filled again, because the child may still read it. Torch
sends a batch in its own way if slots are not supported here, if all slots are in use, or if a tensor was
changed since the slot was filled.
"""

from __future__ import annotations

import itertools
import mmap
import os
import secrets
import threading
import weakref
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import numpy as np
import torch

# The states of a slot, in its first byte. The worker sets SENT. The receiver sets HELD and later FREE,
# or RETIRED if a forked child of the receiver may still read the slot.
_FREE, _SENT, _HELD, _RETIRED = range(4)
# Random bytes by which the receiver checks that it has mapped the right file.
_TOKEN = slice(16, 32)
_HEAD_BYTES = mmap.PAGESIZE
# The limits for one worker. Torch copies the batches that a consumer keeps beyond them.
_SLOTS_MAX = 16
_SLOTS_BYTES_MAX = 256 << 20


class Batch(NamedTuple):
    """Rows, and the id of each row."""

    rows: torch.Tensor
    row_ids: torch.Tensor


class _SlotBatch(Batch):
    """A batch in a slot of this process."""


def plain(rows: np.ndarray, row_ids: np.ndarray) -> Batch:
    """Returns a batch over the memory of the arrays."""
    return Batch(torch.from_numpy(rows), torch.from_numpy(row_ids))


def _tensors(
    flat: torch.Tensor, shape: tuple[int, ...], dtype: str
) -> tuple[torch.Tensor, torch.Tensor]:
    # The ids come first: their size is a multiple of 8, so the rows are aligned too.
    ids, rows = flat[: 8 * shape[0]], flat[8 * shape[0] :]
    return rows.view(getattr(torch, dtype)).view(shape), ids.view(torch.int64)


class _Slot:
    """Memory of this worker that the parent maps too."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.fd = os.memfd_create("ringmain-batch", os.MFD_CLOEXEC)  # type: ignore[attr-defined,unused-ignore]
        try:
            os.ftruncate(self.fd, _HEAD_BYTES + capacity)
            self._map = mmap.mmap(self.fd, _HEAD_BYTES + capacity)
        except BaseException:
            os.close(self.fd)
            raise
        self.bytes = np.frombuffer(self._map, np.uint8)
        self.address = self.bytes.ctypes.data + _HEAD_BYTES
        self.token = secrets.token_bytes(16)
        self.bytes[_TOKEN] = np.frombuffer(self.token, np.uint8)
        self.is_sent = False
        # The addresses, shapes and types of the tensors when the slot was filled.
        self.place: list[Any] = []
        self._flat: weakref.ref[np.ndarray] | None = None

    def is_seen(self) -> bool:
        """Returns whether this process has a tensor over the slot."""
        return self._flat is not None and self._flat() is not None

    def state(self) -> int:
        return int(self.bytes[0])

    def is_free(self) -> bool:
        # The order matters: a batch is marked SENT before its tensors are dropped. So if no tensor is
        # left, the state is up to date.
        return not self.is_seen() and self.state() == _FREE

    def take(self, nbytes: int) -> np.ndarray:
        """Returns the memory of the slot. The slot stays taken while that array or a tensor over it
        exists."""
        flat = self.bytes[_HEAD_BYTES : _HEAD_BYTES + nbytes]
        self._flat, self.is_sent, self.place = weakref.ref(flat), False, []
        return flat


class Slots:
    """The slots of a worker."""

    def __init__(self) -> None:
        self._slots: list[_Slot] = []
        # Slots that a forked child may still read. They stay open, because the receiver may not have got
        # the message that names such a slot yet.
        self._retired: list[_Slot] = []
        # Several threads may read datasets in this worker.
        self._lock = threading.Lock()

    def batch(self, rows: np.ndarray, row_ids: np.ndarray) -> Batch:
        """Returns the batch in a slot, or over the memory of the arrays if no slot is free."""
        taken = self._take(rows.nbytes + row_ids.nbytes)
        if taken is None:
            return plain(rows, row_ids)
        slot, flat = taken
        flat[: row_ids.nbytes].view(row_ids.dtype)[...] = row_ids
        flat[row_ids.nbytes :].view(rows.dtype).reshape(rows.shape)[...] = rows
        batch = _SlotBatch(*_tensors(torch.from_numpy(flat), rows.shape, str(rows.dtype)))
        slot.place = _place(batch)
        return batch

    def holding(self, batch: Batch) -> _Slot | None:
        """Returns the slot of a batch. Returns `None` if its tensors have changed since the slot was
        filled."""
        address = batch.row_ids.data_ptr()
        found = [slot for slot in self._slots if slot.address == address]
        return found[0] if found and found[0].place == _place(batch) else None

    def retire_seen(self) -> None:
        """Retires the slots that this process has tensors over, so that they are not filled again."""
        self._retired += [slot for slot in self._slots if slot.is_seen()]
        self._slots = [slot for slot in self._slots if not slot.is_seen()]

    def _take(self, nbytes: int) -> tuple[_Slot, np.ndarray] | None:
        with self._lock:
            self._close([slot for slot in self._slots if slot.state() == _RETIRED])
            free = [slot for slot in self._slots if slot.is_free()]
            slot = next((slot for slot in free if slot.capacity >= nbytes), None)
            if slot is None:
                if self._is_full(nbytes):
                    self._close(free)  # every free slot is too small
                slot = None if self._is_full(nbytes) else self._new(nbytes)
            return None if slot is None else (slot, slot.take(nbytes))

    def _is_full(self, nbytes: int) -> bool:
        total = sum(slot.capacity for slot in self._slots)
        return len(self._slots) >= _SLOTS_MAX or total + nbytes > _SLOTS_BYTES_MAX

    def _new(self, nbytes: int) -> _Slot | None:
        try:
            self._slots.append(_Slot(nbytes))
        except OSError:
            return None
        return self._slots[-1]

    def _close(self, slots: list[_Slot]) -> None:
        """Closes slots. Their memory stays for as long as a process has it mapped."""
        for slot in slots:
            self._slots.remove(slot)
            os.close(slot.fd)


def _place(batch: Batch) -> list[Any]:
    return [
        (each.data_ptr(), each.shape, each.stride(), each.dtype, each.requires_grad)
        for each in batch
    ]


_mine: tuple[int, Slots] | None = None


def slots_of_worker() -> Slots | None:
    """Returns the slots of this worker, or `None` if its parent could not map them."""
    global _mine
    pid = os.getpid()
    if _mine is None or _mine[0] != pid:
        try:
            # The parent must be able to open this worker's files in /proc. If this worker can list the
            # parent's files there, the parent can open this worker's files too.
            os.listdir(f"/proc/{os.getppid()}/fd")
        except OSError:
            return None
        if not hasattr(os, "memfd_create"):
            return None
        _mine = pid, Slots()
    return _mine[1]


def _send(batch: _SlotBatch) -> tuple[Any, ...]:
    mine = _mine
    slot = mine[1].holding(batch) if mine is not None and mine[0] == os.getpid() else None
    if slot is None:
        return Batch, tuple(batch)  # torch sends the tensors
    if slot.is_sent:
        return Batch, tuple(tensor.clone() for tensor in batch)
    slot.is_sent, slot.bytes[0] = True, _SENT
    shape, dtype = tuple(batch.rows.shape), str(batch.rows.dtype).removeprefix("torch.")
    return _receive, (os.getpid(), slot.fd, slot.token, slot.capacity, shape, dtype)


# Only the pickler of queues and pipes uses slots. Other pickles must contain the rows themselves, because
# any process may load them at any time.
ForkingPickler.register(_SlotBatch, _send)


class _Received:
    """A slot of a worker, mapped by the process that receives the batches."""

    def __init__(self, pid: int, fd: int, token: bytes, capacity: int) -> None:
        path = f"/proc/{pid}/fd/{fd}"
        with open(path, "r+b", buffering=0) as file:
            self._map = mmap.mmap(file.fileno(), _HEAD_BYTES + capacity)
        self.bytes = np.frombuffer(self._map, np.uint8)
        if self.bytes[_TOKEN].tobytes() != token:
            raise RuntimeError(f"{path} is no longer a batch of worker {pid}: the worker has ended")


_received: dict[tuple[int, int, bytes], _Received] = {}
# The finalizers that give the held batches back to their workers, by number.
_leases: dict[int, weakref.finalize[Any, Any]] = {}
_numbers = itertools.count()


def _receive(
    pid: int, fd: int, token: bytes, capacity: int, shape: tuple[int, ...], dtype: str
) -> Batch:
    key = pid, fd, token
    slot = _received.get(key)
    if slot is None:
        _forget_ended()
        slot = _received[key] = _Received(pid, fd, token, capacity)
    if int(slot.bytes[0]) != _SENT:
        raise RuntimeError("this batch was already received: a message can only be read once")
    slot.bytes[0] = _HELD
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize + 8 * shape[0]
    flat, number = slot.bytes[_HEAD_BYTES : _HEAD_BYTES + nbytes], next(_numbers)
    lease = weakref.finalize(flat, _give_back, number, slot, os.getpid())
    lease.atexit = False
    _leases[number] = lease
    return Batch(*_tensors(torch.from_numpy(flat), shape, dtype))


def _give_back(number: int, slot: _Received, pid: int) -> None:
    # A child that was forked meanwhile inherits this finalizer, but must not give the batch back.
    if os.getpid() == pid:
        _leases.pop(number, None)
        slot.bytes[0] = _FREE
        if not _leases:
            _forget_ended()


def _forget_ended() -> None:
    """Forgets the slots of workers that have ended. Tensors over such a slot keep it mapped."""
    for key in list(_received):
        if not os.path.exists(f"/proc/{key[0]}"):
            _received.pop(key, None)


def _retire_held() -> None:
    """Retires the slots that this process holds, just before it forks: the child may still read them
    after this process has dropped them."""
    for number in list(_leases):
        lease = _leases.pop(number, None)
        call = None if lease is None else lease.detach()
        if call is None:
            continue
        slot = call[2][1]
        slot.bytes[0] = _RETIRED
        for key in [key for key, each in list(_received.items()) if each is slot]:
            _received.pop(key, None)
    mine = _mine
    if mine is not None and mine[0] == os.getpid():
        mine[1].retire_seen()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_retire_held)
