"""Batches from a DataLoader's worker to its parent through memory that is used again.

Torch gives each tensor that leaves a worker shared memory of its own: pages that have to be zeroed,
a descriptor that has to be sent, a mapping on the other side. For batches of a few megabytes that
takes longer than to read them. Here a worker has a few slots, anonymous files that both sides have
mapped. A message says which slot, and the slot is the worker's again when the last tensor of the batch
is gone.

A slot is `FREE`, `FILLED` by the worker, or `SENT`; only the receiver makes a sent one free. What a
receiver holds while it forks is never used again, as the child may look at it. Where there can be no
slot, or all are taken, batches go torch's way.
"""

from __future__ import annotations

import itertools
import mmap
import os
import secrets
import weakref
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import numpy as np
import torch

_FREE, _FILLED, _SENT = range(3)
# A byte for the state, and the token by which the receiver knows that it has mapped the right file.
_TOKEN = slice(16, 32)
_HEAD_BYTES = mmap.PAGESIZE
# Of a worker. What a consumer keeps beyond that is copied by torch.
_SLOTS_MAX = 16
_SLOTS_BYTES_MAX = 256 << 20


class Batch(NamedTuple):
    """Rows, and the id of each."""

    rows: torch.Tensor
    row_ids: torch.Tensor


class _SlotBatch(Batch):
    """A batch that may be in a slot of this process: then its tensors have the attribute `_turn`."""


class _Turn:
    """Which filling of a slot a tensor is of."""

    def __init__(self, slot: _Slot, number: int) -> None:
        self.slot, self.number = slot, number

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # a pickled tensor is in no slot


class _Slot:
    """Memory of this worker that its parent maps too."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.fd = os.memfd_create("ringmain-batch", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.fd, _HEAD_BYTES + capacity)
            self._map = mmap.mmap(self.fd, _HEAD_BYTES + capacity)
        except BaseException:
            os.close(self.fd)
            raise
        self.bytes = np.frombuffer(self._map, np.uint8)
        self.token = secrets.token_bytes(16)
        self.bytes[_TOKEN] = np.frombuffer(self.token, np.uint8)
        # How often it was filled: what is left of an earlier batch must not free a later one.
        self.turn = 0

    def is_free(self) -> bool:
        return int(self.bytes[0]) == _FREE

    def fill(self, rows: np.ndarray, row_ids: np.ndarray) -> _SlotBatch:
        self.turn += 1
        self.bytes[0] = _FILLED
        flat = self.bytes[_HEAD_BYTES : _HEAD_BYTES + rows.nbytes + row_ids.nbytes]
        flat[: row_ids.nbytes].view(row_ids.dtype)[...] = row_ids
        flat[row_ids.nbytes :].view(rows.dtype).reshape(rows.shape)[...] = rows
        # For when it is not sent: a collate function may have made something else of it.
        weakref.finalize(flat, self._drop, self.turn).atexit = False
        batch = _SlotBatch(*_tensors(torch.from_numpy(flat), rows.shape, str(rows.dtype)))
        turn = _Turn(self, self.turn)
        for tensor in batch:
            tensor._turn = turn  # type: ignore[attr-defined]
        return batch

    def _drop(self, turn: int) -> None:
        if self.turn == turn and int(self.bytes[0]) == _FILLED:
            self.bytes[0] = _FREE


class Slots:
    """The slots of a worker."""

    def __init__(self) -> None:
        self._slots: list[_Slot] = []

    def batch(self, rows: np.ndarray, row_ids: np.ndarray) -> Batch:
        """The batch in a slot, or in the memory that it came in."""
        slot = self._take(rows.nbytes + row_ids.nbytes)
        if slot is None:
            return plain(rows, row_ids)
        return slot.fill(rows, row_ids)

    def _take(self, nbytes: int) -> _Slot | None:
        for slot in self._slots:
            if slot.capacity >= nbytes and slot.is_free():
                return slot
        total = sum(slot.capacity for slot in self._slots)
        if len(self._slots) >= _SLOTS_MAX or total + nbytes > _SLOTS_BYTES_MAX:
            return None
        try:
            self._slots.append(_Slot(nbytes))
        except OSError:
            return None
        return self._slots[-1]


_mine: tuple[int, Slots] | None = None


def slots_of_worker() -> Slots | None:
    """The slots of this worker; `None` where its parent could not map them."""
    global _mine
    pid = os.getpid()
    if _mine is None or _mine[0] != pid:
        try:
            # Who may look at the parent's files is one whose files the parent may look at.
            os.listdir(f"/proc/{os.getppid()}/fd")
        except OSError:
            return None
        if not hasattr(os, "memfd_create"):
            return None
        _mine = pid, Slots()
    return _mine[1]


def plain(rows: np.ndarray, row_ids: np.ndarray) -> Batch:
    """A batch in the memory that it came in."""
    return Batch(torch.from_numpy(rows), torch.from_numpy(row_ids))


def _tensors(
    flat: torch.Tensor, shape: tuple[int, ...], dtype: str
) -> tuple[torch.Tensor, torch.Tensor]:
    # The ids come first, so that both are aligned.
    ids, rows = flat[: 8 * shape[0]], flat[8 * shape[0] :]
    return rows.view(getattr(torch, dtype)).view(shape), ids.view(torch.int64)


def _send(batch: _SlotBatch) -> tuple[Any, ...]:
    rows, row_ids = batch
    turn = getattr(rows, "_turn", None)
    if turn is None or turn is not getattr(row_ids, "_turn", None):
        return Batch, (rows, row_ids)  # somebody has made others of them
    slot = turn.slot
    if slot.turn != turn.number or int(slot.bytes[0]) != _FILLED or not _is_mine(slot):
        # It was sent before, and may be free at any moment.
        return Batch, (rows.clone(), row_ids.clone())
    slot.bytes[0] = _SENT
    shape, dtype = tuple(rows.shape), str(rows.dtype).removeprefix("torch.")
    return _receive, (os.getpid(), slot.fd, slot.token, slot.capacity, shape, dtype)


def _is_mine(slot: _Slot) -> bool:
    return _mine is not None and _mine[0] == os.getpid() and slot in _mine[1]._slots


# By the pickler of queues and pipes alone: other pickles are to be read by anybody at any time.
ForkingPickler.register(_SlotBatch, _send)


class _Received:
    """A slot of a worker, mapped by the one who gets its batches."""

    def __init__(self, pid: int, fd: int, token: bytes, capacity: int) -> None:
        path = f"/proc/{pid}/fd/{fd}"
        with open(path, "r+b", buffering=0) as file:
            self._map = mmap.mmap(file.fileno(), _HEAD_BYTES + capacity)
        self.bytes = np.frombuffer(self._map, np.uint8)
        if self.bytes[_TOKEN].tobytes() != token:
            raise RuntimeError(f"{path} is no batch of worker {pid}, which has ended too early")


_received: dict[tuple[int, int, bytes], _Received] = {}
# What gives the batches that are held back, by number.
_leases: dict[int, weakref.finalize[Any, Any]] = {}
_numbers = itertools.count()


def _receive(
    pid: int, fd: int, token: bytes, capacity: int, shape: tuple[int, ...], dtype: str
) -> Batch:
    key = pid, fd, token
    if key not in _received:
        _forget_ended()
        _received[key] = _Received(pid, fd, token, capacity)
    slot, number = _received[key], next(_numbers)
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize + 8 * shape[0]
    flat = slot.bytes[_HEAD_BYTES : _HEAD_BYTES + nbytes]
    _leases[number] = weakref.finalize(flat, _give_back, number, slot, os.getpid())
    _leases[number].atexit = False
    return Batch(*_tensors(torch.from_numpy(flat), shape, dtype))


def _give_back(number: int, slot: _Received, pid: int) -> None:
    # A child that was forked meanwhile has a copy of this, but not the batch.
    if os.getpid() == pid:
        _leases.pop(number, None)
        slot.bytes[0] = _FREE


def _forget_ended() -> None:
    """Those of workers that are no more; what is held of them stays mapped by who holds it."""
    for key in list(_received):
        if not os.path.exists(f"/proc/{key[0]}"):
            _received.pop(key, None)


def _keep_held() -> None:
    """A child may look at what its parent held, after that has dropped it."""
    for number in list(_leases):
        lease = _leases.pop(number, None)
        if lease is not None:
            lease.detach()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_keep_held)
