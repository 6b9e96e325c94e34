"""Weights of safetensors files as arrays over the mapping of the file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from ._ringmain import _MappedFile, _MappingCache

if TYPE_CHECKING:
    from ._ringmain import _MapOptions


class MappedWeights(Mapping[str, np.ndarray]):
    """A safetensors file whose tensors are NumPy arrays and torch tensors over the file itself: nothing is copied.

    The system reads pages when they are touched, and all processes that map the file share them, so that several
    workers need the memory of one model. `weights["name"]` is a read-only array; `weights.tensor("name")` is a torch
    tensor. An array keeps the file mapped for as long as it lives.

    path: the file. A model of several files has one MappedWeights for each.
    unchanging: must be True. It promises that no program writes to the file or truncates it while an array over it
        exists. If the promise is broken, arrays change their contents, and touching an element that the file no longer
        has ends the process with SIGBUS. Replacing the file by renaming another one over it keeps the promise: the
        arrays show the old file. To read files that may change, use `ringmain.safetensors`, which copies.
    huge_pages: asks for huge pages. Linux has them for files of some filesystems only.
    read_ahead_pages: begins to read the first pages, of 4096 bytes each.
    populate: reads the whole file before the constructor returns.
    lock: keeps all pages in memory, as far as the limit of the process (`ulimit -l`) allows.

    `unmet` lists the options that the system did not apply. A pickle contains the path and the options; unpickling
    maps the file again.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        unchanging: bool,
        huge_pages: bool = False,
        read_ahead_pages: int = 0,
        populate: bool = False,
        lock: bool = False,
    ) -> None:
        options = _options(huge_pages, read_ahead_pages, populate, lock)
        self._begin(_MappedFile(path, unchanging, options), options)

    def _begin(self, file: _MappedFile, options: _MapOptions) -> None:
        self._file, self._options = file, options

    @classmethod
    def _of(cls, file: _MappedFile, options: _MapOptions) -> MappedWeights:
        """Returns the weights of a file that is mapped already."""
        weights = cls.__new__(cls)
        weights._begin(file, options)
        return weights

    def __reduce__(self) -> tuple[Any, ...]:
        return _open, (self.path, self._options)

    def __repr__(self) -> str:
        return f"MappedWeights({str(self.path)!r}, {self.nbytes} bytes)"

    def __getitem__(self, name: str) -> np.ndarray:
        """Returns a read-only array over a tensor."""
        dtype, _ = self._file.info(name)
        return self._file.array(name, _frameworks().NumPy().element(dtype, name), False)

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.names())

    def __len__(self) -> int:
        return len(self._file.names())

    def __contains__(self, name: object) -> bool:
        return name in self._file.names()

    def tensor(self, name: str) -> Any:
        """Returns a torch tensor over the tensor called `name`. Do not write to it: torch has no read-only tensors,
        and writing to it ends the process with SIGSEGV. `clone()` makes a tensor that can be written to.

        If the tensor does not begin at a multiple of the size of its elements, which torch needs, it is a copy.
        """
        framework = _frameworks().Torch("cpu")
        dtype, shape = self._file.info(name)
        element = framework.element(dtype, name)
        array = self._file.array(name, element, True)
        return framework.finish(array if array.flags.aligned else array.copy(), dtype, shape)

    def get_bytes(self, name: str) -> np.ndarray:
        """Returns a read-only array over the bytes of the tensor called `name`, whatever its type."""
        return self._file.array(name, None, False)

    def info(self, name: str) -> tuple[str, tuple[int, ...]]:
        """Returns the element type of the tensor called `name`, by its name in the format, and its shape."""
        dtype, shape = self._file.info(name)
        return dtype, tuple(shape)

    def populate(self) -> None:
        """Reads the whole file, so that no access waits for the device. Bytes that cannot be read are an OSError
        here, while touching them would end the process."""
        self._file.populate()

    def lock(self) -> None:
        """Reads the whole file and keeps it in memory until `unlock`."""
        self._file.lock()

    def unlock(self) -> None:
        """Lets the system evict the pages again when it needs memory."""
        self._file.unlock()

    def is_intact(self) -> bool:
        """Returns False if the file was written to or truncated since it was mapped, judging by its length and the
        time of its last change. This asks the file system, so ask when a model is loaded, not for each tensor."""
        return self._file.is_intact()

    @property
    def is_locked(self) -> bool:
        """Whether the pages are locked in memory by this process."""
        return self._file.is_locked

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self._file.path)

    @property
    def nbytes(self) -> int:
        """The size of the file in bytes."""
        return self._file.nbytes

    @property
    def unmet(self) -> dict[str, str]:
        """The options that the system did not apply, each with the reason."""
        return dict(self._file.unmet)


class WeightCacheStats(TypedDict):
    """The contents and counters of a WeightCache."""

    entries: int
    total_bytes: int
    limit_bytes: int
    hits: int
    misses: int
    evictions: int


class WeightCache:
    """The mappings of the weights that were used last, with a limit on the sum of their sizes.

    The mapping that was not used for the longest time is evicted first, of those that have no arrays and are not locked.
    If a file does not fit, `open` raises a MemoryError and evicts nothing. A file that was replaced is mapped again at
    its next `open`, while arrays of the old one stay as they are.

    limit_bytes: the limit.
    unchanging: must be True: the promise that MappedWeights explains, for all files that the cache maps.
    huge_pages, read_ahead_pages, populate, lock: the options of MappedWeights, for each mapping.

    A forked child, and a process that unpickles the cache, begin with an empty one. They still share the pages of the
    files with all other processes that map them.
    """

    def __init__(
        self,
        limit_bytes: int,
        *,
        unchanging: bool,
        huge_pages: bool = False,
        read_ahead_pages: int = 0,
        populate: bool = False,
        lock: bool = False,
    ) -> None:
        self._options = _options(huge_pages, read_ahead_pages, populate, lock)
        self._limit_bytes = limit_bytes
        self._mappings = _MappingCache(limit_bytes, unchanging, self._options)

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_cache, (self._limit_bytes, self._options)

    def __repr__(self) -> str:
        stats = self.stats()
        return f"WeightCache({stats['entries']} files, {stats['total_bytes']} of {stats['limit_bytes']} bytes)"

    def open(self, path: str | os.PathLike[str]) -> MappedWeights:
        """Returns the weights of the file at this path, and maps it if it is not mapped yet."""
        return MappedWeights._of(self._mappings.get_or_open(path), self._options)

    def evict(self, nbytes: int) -> int:
        """Drops mappings that nothing uses, the least recently used first, until `nbytes` bytes are free or none is
        left. Returns the number of bytes freed."""
        return self._mappings.evict_lru(nbytes)

    def clear(self) -> int:
        """Drops all mappings that nothing uses, locked ones too. Returns the number of bytes freed."""
        return self._mappings.clear()

    def stats(self) -> WeightCacheStats:
        """Returns a dict: the numbers of mappings ("entries"), of their bytes, of requests that found their mapping
        ("hits") or had to map ("misses"), and of evictions."""
        return self._mappings.stats()


def _options(huge_pages: bool, read_ahead_pages: int, populate: bool, lock: bool) -> _MapOptions:
    if isinstance(read_ahead_pages, bool) or not isinstance(read_ahead_pages, int) or read_ahead_pages < 0:
        raise ValueError(f"read_ahead_pages must be a number of pages, not {read_ahead_pages!r}")
    return {
        "huge_pages": bool(huge_pages),
        "read_ahead_pages": read_ahead_pages,
        "populate": bool(populate),
        "lock": bool(lock),
    }


def _open(path: Path, options: _MapOptions) -> MappedWeights:
    """Maps a file whose weights are being unpickled: the promise was made where they were mapped first."""
    return MappedWeights(path, unchanging=True, **options)


def _open_cache(limit_bytes: int, options: _MapOptions) -> WeightCache:
    return WeightCache(limit_bytes, unchanging=True, **options)


def _frameworks() -> Any:
    """Returns the module of element types. `import ringmain` does not need it, nor the package safetensors."""
    from .safetensors import _elements

    return _elements
