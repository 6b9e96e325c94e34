from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from typing import Any, Literal, SupportsIndex, TypedDict, final, overload

import numpy as np
import numpy.typing as npt

_Path = str | PathLike[str]
_Backend = Literal["auto", "pread", "mmap", "direct", "uring", "uncached"]

class _PoolStats(TypedDict):
    in_use_bytes: int
    idle_bytes: int
    limit_bytes: int
    fresh: int
    recycled: int

@final
class Engine:
    """Reads files through one backend, within one memory limit.

    backend: how bytes arrive; "auto" takes the fastest that works here.
    memory_limit: of all buffers, in bytes; 64 MiB by default.
    depth: device requests that a batch keeps in flight.
    chunk_bytes: the largest single device request.
    residency: what "mmap" does with the pages it has read.
    open_files: how many files are kept open.
    """

    def __new__(
        cls,
        backend: _Backend | str = "auto",
        *,
        memory_limit: int | None = None,
        depth: int | None = None,
        chunk_bytes: int | None = None,
        residency: Literal["keep", "release"] | None = None,
        open_files: int | None = None,
    ) -> Engine: ...
    @property
    def backend(self) -> str:
        """The name of the backend."""
    @property
    def memory_limit(self) -> int:
        """The limit on the memory of all buffers, in bytes."""
    def describe(self) -> str:
        """Which backend reads, what it can do, and what it had to do without."""
    def pool_stats(self) -> _PoolStats:
        """What arrays hold of the pool, what waits to be used again, and how much there can be."""

@final
class ContiguousMemmap:
    """A view of an array in a file: slicing and reshaping are free, reading is file I/O.

    arr: an np.memmap, or any view of one.
    cache: accepted because exca's class has it; the engine keeps open files itself.
    engine: what reads; without, the one that all such views of the process share.
    """

    def __new__(
        cls, arr: npt.NDArray[Any], cache: object = None, *, engine: Engine | None = None
    ) -> ContiguousMemmap: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def path(self) -> PathLike[str]:
        """The file that holds the array."""
    @property
    def offset(self) -> int:
        """Where in the file the first byte is."""
    @property
    def engine(self) -> Engine:
        """What reads it."""
    @property
    def T(self) -> ContiguousMemmap: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __getitem__(self, key: Any, /) -> Any:
        """A view; an empty array for an empty selection; an element for a single one.

        Strided and fancy selections are refused with TypeError: `read` reads them.
        """
    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]: ...
    def __dlpack__(self, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def read(self, selection: Any = ..., out: npt.NDArray[Any] | None = None) -> Any:
        """Reads a selection, by NumPy's rules for any index, into an array of its own or `out`."""
    def reshape(self, *shape: Any, order: str = "C") -> ContiguousMemmap: ...
    def ravel(self, order: str = "C") -> ContiguousMemmap: ...
    def transpose(self, *axes: Any) -> ContiguousMemmap: ...
    def swapaxes(self, axis1: int, axis2: int) -> ContiguousMemmap: ...
    def squeeze(self, axis: int | Sequence[int] | None = None) -> ContiguousMemmap: ...
    def view(self, dtype: npt.DTypeLike | None = None) -> ContiguousMemmap: ...

def open_raw(
    path: _Path,
    dtype: npt.DTypeLike,
    shape: SupportsIndex | Sequence[int],
    offset: int = 0,
    *,
    engine: Engine | None = None,
) -> ContiguousMemmap:
    """A view of an array that lies in a file without a header, in C order from `offset` on."""

def open_npy(path: _Path, *, engine: Engine | None = None) -> ContiguousMemmap:
    """A view of the array of a .npy file."""

@overload
def read_many(
    views: Iterable[ContiguousMemmap], out: None = None, *, stack: Literal[False] = False
) -> list[npt.NDArray[Any]]: ...
@overload
def read_many(
    views: Iterable[ContiguousMemmap], out: None = None, *, stack: Literal[True]
) -> npt.NDArray[Any]: ...
@overload
def read_many(
    views: Iterable[ContiguousMemmap], out: list[npt.NDArray[Any]], *, stack: bool = False
) -> list[npt.NDArray[Any]]: ...
@overload
def read_many(
    views: Iterable[ContiguousMemmap], out: npt.NDArray[Any], *, stack: bool = False
) -> npt.NDArray[Any]:
    """Reads views of any number of files as one batch.

    Returns a list of arrays, one for each view; with stack=True, where all views have one shape and
    dtype, one array with an axis more. `out` is either of the two, to be filled.
    """

def probe(path: _Path | None = None) -> dict[str, Any]:
    """What this kernel, the filesystem of `path` and each backend on it can do, found by trying."""
