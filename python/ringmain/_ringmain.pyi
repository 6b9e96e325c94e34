from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from typing import Any, Literal, SupportsIndex, TypedDict, final, overload

import numpy as np
import numpy.typing as npt

__version__: str

_Path = str | PathLike[str]
_Backend = Literal["auto", "pread", "mmap", "direct", "uring", "uncached", "tokio-uring"]
# An array or a tensor to be filled.
_Out = Any

class _PoolStats(TypedDict):
    in_use_bytes: int
    idle_bytes: int
    limit_bytes: int
    fresh: int
    recycled: int

@final
class Engine:
    """Reads files through one backend, within one memory limit.

    backend: how bytes arrive. "auto" chooses for every read: it copies what the page cache has, and
        reads the rest from the device.
    memory_limit: of all buffers, in bytes. The default is 512 MiB, or a quarter of the memory of the
        machine or container if that is less, and at least 64 MiB. Half of it is for arrays and batches.
    depth: device requests that a batch keeps in flight.
    chunk_bytes: the largest single device request.
    residency: what "mmap" does with the pages it has read.
    open_files: how many files are kept open.
    warmth: whether data that "auto" reads stays in the page cache, to be copied from memory the next
        time. "auto", the default, keeps the data of epochs if it fits into the memory that is
        available. "keep" keeps everything. "leave" reads cold data past the page cache.
    access: in which order files are read, which decides what the kernel reads ahead. "random" brings
        in only what is read, "sequential" reads further ahead than usual. "as-it-comes", the default,
        leaves it to the kernel.
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
        warmth: Literal["auto", "keep", "leave"] | None = None,
        access: Literal["as-it-comes", "random", "sequential"] | None = None,
    ) -> Engine: ...
    @property
    def backend(self) -> str:
        """The name that the engine was made with; describe() says what "auto" chooses from."""
    @property
    def memory_limit(self) -> int:
        """The limit on the memory of all buffers, in bytes."""
    def describe(self, path: _Path | None = None) -> str:
        """Which backend reads, what it can do, and what it had to do without. With a path, how that
        file would be read, and why."""
    def stats(self) -> dict[str, Any]:
        """What was read so far: batches, reads and bytes in all and by way (page cache, device, and
        through aligned memory), questions to the kernel about the page cache, wrong estimates, retries,
        open files. "batch_seconds" has quantiles of the time that batches took; None without any."""
    def pool_stats(self) -> _PoolStats:
        """What arrays hold of the pool, what waits to be used again, and how much there can be."""

@final
class ContiguousMemmap:
    """A view of an array in a file: slicing and reshaping are free, reading is file I/O.

    arr: an np.memmap, or any view of one; with gaps between its elements or backwards, too.
    cache: accepted because exca's class has it; the engine keeps open files itself.
    engine: what reads; without, the one that all such views of the process share.
    """

    def __new__(
        cls, arr: npt.NDArray[Any], cache: object = None, *, engine: Engine | _Backend | str | None = None
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
    def __reversed__(self) -> Iterator[Any]: ...
    def __getitem__(self, key: Any, /) -> Any:
        """A view; an empty array for an empty selection; an element for a single one.

        Strided and fancy selections are refused with TypeError: `read` reads them.
        """
    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]: ...
    def __dlpack__(self, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __array_function__(
        self, func: Any, types: Any, args: Any, kwargs: Any
    ) -> Any: ...
    def __arrow_array__(self, type: Any = None) -> Any: ...
    def read(self, selection: Any = ..., out: _Out | None = None) -> Any:
        """Reads a selection, by NumPy's rules for any index, into an array of its own or `out`, which
        may be a tensor."""
    def reshape(
        self, *shape: Any, order: Literal["C", "F", "A"] = "C", copy: bool | None = None
    ) -> ContiguousMemmap: ...
    def ravel(self, order: Literal["C", "F", "A", "K"] = "C") -> ContiguousMemmap: ...
    def transpose(self, *axes: Any) -> ContiguousMemmap: ...
    def swapaxes(self, axis1: int, axis2: int) -> ContiguousMemmap: ...
    def squeeze(self, axis: int | Sequence[int] | None = None) -> ContiguousMemmap: ...
    def view(
        self, dtype: npt.DTypeLike | None = None, type: type[np.ndarray[Any, Any]] | None = None
    ) -> ContiguousMemmap: ...

def open_raw(
    path: _Path,
    dtype: npt.DTypeLike,
    shape: SupportsIndex | Sequence[int] | None = None,
    offset: int = 0,
    *,
    order: Literal["C", "F"] = "C",
    engine: Engine | _Backend | str | None = None,
    backend: _Backend | str | None = None,
) -> ContiguousMemmap:
    """A view of an array that lies in a file without a header, from `offset` on.

    Without a shape it is all elements up to the end of the file; one axis of a shape may be -1.
    """

def open_npy(
    path: _Path,
    *,
    engine: Engine | _Backend | str | None = None,
    backend: _Backend | str | None = None,
) -> ContiguousMemmap:
    """A view of the array of a .npy file. Python objects are refused, never unpickled."""

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
    views: Iterable[ContiguousMemmap], out: list[_Out], *, stack: bool = False
) -> list[Any]: ...
@overload
def read_many(
    views: Iterable[ContiguousMemmap], out: _Out, *, stack: bool = False
) -> Any:
    """Reads views of any number of files as one batch.

    Returns a list of arrays, one for each view; with stack=True, where all views have one shape and
    dtype, one array with an axis more. `out` is either of the two, to be filled.
    """

def _run_command(args: list[str], program: list[str]) -> int: ...
def probe(path: _Path | None = None) -> dict[str, Any]:
    """What this kernel, the filesystem of `path` and each backend on it can do, found by trying."""

_Rows = npt.NDArray[np.float32] | npt.NDArray[np.float64]
_Ids = npt.NDArray[np.uint64]

@final
class ShardSource:
    """Delivers the rows of shards in batches: an iterator of (rows, row_ids).

    paths: a directory, whose *.shard files are taken by name; a file; or a list of files in order.
    order: "shuffled" and "blocks" (of block_rows) depend on seed and epoch alone.
    rank, world: delivers one of `world` parts of every epoch.
    batch_rows: rows of a batch at most; 1024 by default, or fewer where these are large. In sequential
        order a batch ends at the end of its shard.
    drop_last: leaves out batches with fewer rows than the others.
    dtype: of the rows; they are stored as float32.
    rows: delivers these alone: their numbers, or a mask with a bool for each row.
    prefetch_bytes: how much is read before it is asked for; 8 MiB by default, 0 for nothing.
    patience: how many seconds are waited for memory that batches hold, until it is MemoryError.

    The arrays show memory of the engine's pool, which takes it back when the last array of a batch
    is gone.
    """

    def __new__(
        cls,
        paths: _Path | Sequence[_Path],
        *,
        engine: Engine | _Backend | str | None = None,
        order: Literal["sequential", "shuffled", "blocks"] = "sequential",
        seed: int = 0,
        epoch: int = 0,
        block_rows: int | None = None,
        rank: int = 0,
        world: int = 1,
        batch_rows: int | None = None,
        drop_last: bool = False,
        dtype: npt.DTypeLike = "float32",
        rows: Sequence[int] | npt.NDArray[np.integer[Any] | np.bool] | None = None,
        prefetch_bytes: int | None = None,
        patience: float | None = None,
    ) -> ShardSource: ...
    @property
    def total_rows(self) -> int:
        """All rows of all shards."""
    @property
    def epoch_rows(self) -> int:
        """The rows that this source delivers in an epoch: those of its rank, and of `rows`."""
    @property
    def remaining_rows(self) -> int:
        """The rows that are still to come in this epoch."""
    @property
    def width(self) -> int:
        """The columns of a row."""
    @property
    def batch_rows(self) -> int:
        """The rows of a batch at most."""
    @property
    def epoch(self) -> int:
        """Which pass over the rows it is."""
    @property
    def engine(self) -> Engine:
        """What reads."""
    def __len__(self) -> int:
        """The batches of an epoch."""
    def __iter__(self) -> ShardSource:
        """The batches that are left in this epoch; after a loop to its end, those of the next epoch."""
    def __next__(self) -> tuple[_Rows, _Ids]:
        """The next batch. After an error, or Ctrl-C, it tries the same batch again."""
    def reset(self) -> None:
        """Back to the first row of the epoch."""
    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch. Right after load_state_dict, the epoch of the state goes on where it was."""
    def skip_rows(self, rows: int) -> None:
        """Passes over this number of rows, or all that are left, without reading them."""
    def skip_batches(self, batches: int) -> None:
        """Passes over this number of batches, or all that are left, without reading them."""
    def seek(self, row_id: int) -> None:
        """To where a row stands in the order: the next batch begins with it."""
    def state_dict(self) -> dict[str, int]:
        """Where the source stands."""
    def load_state_dict(self, state: dict[str, int]) -> None:
        """Goes on from a state of a source over the same shards with the same order, rank, world
        and rows."""

@final
class Beton:
    """A dataset of FFCV's: beton[id] is a sample, as a dict by the names of its fields.

    images: "decoded" to height x width x 3 bytes, or "stored" as they are, JPEGs as their bytes.
    index_limit: the memory that metadata and allocation table may have, in bytes; 4 GiB by default.
    fields: for each field of a type that FFCV does not have, the dtype of its metadata. If that has a
        "ptr" (and a "size"), the value is a dict of "metadata" and "data"; else it is the metadata.

    Samples and batches that are kept are not limited: once the engine's pool is spent, they get
    memory of their own. Those of an epoch are of the pool, and count against its limit.
    """

    def __new__(
        cls,
        path: _Path,
        *,
        engine: Engine | _Backend | str | None = None,
        images: Literal["decoded", "stored"] = "decoded",
        index_limit: int | None = None,
        fields: dict[str, npt.DTypeLike] | None = None,
    ) -> Beton: ...
    @property
    def fields(self) -> dict[str, dict[str, Any]]:
        """What each field holds: its kind, and dtype and shape of arrays. BetonWriter takes it."""
    @property
    def path(self) -> PathLike[str]:
        """The file."""
    @property
    def engine(self) -> Engine:
        """What reads."""
    def __len__(self) -> int: ...
    def __getitem__(self, id: int, /) -> dict[str, Any]: ...
    def __iter__(self) -> Iterator[dict[str, Any]]: ...
    def read_batch(self, ids: Sequence[int] | npt.NDArray[np.integer[Any]]) -> dict[str, Any]:
        """Some samples, read as one batch of reads; negative ids count from the end.

        Numbers and arrays are one array with an axis more; bytes and images are a list of arrays,
        JSON a list of what it says.
        """
    def epoch(
        self,
        traversal: Literal["sequential", "random", "quasi_random"] = "sequential",
        *,
        seed: int = 0,
        epoch: int = 0,
        open_pages: int | None = None,
        batch_size: int | None = None,
        drop_last: bool = False,
        rank: int = 0,
        world: int = 1,
        memory_manager: Literal["direct", "os_cache", "process_cache"] = "direct",
        cache_pages: int | None = None,
        damaged: Literal["fail", "leave_out"] = "fail",
        prefetch_bytes: int | None = None,
    ) -> BetonEpoch:
        """All samples in batches, while a thread reads ahead.

        open_pages: how many pages "quasi_random" draws samples from at a time.
        memory_manager: "os_cache" needs the backend "mmap", "process_cache" cache_pages.
        damaged: what is done with samples that are, also with JPEGs and JSON that cannot be decoded.

        JPEGs are decoded by the thread that asks for the batch, without the interpreter lock.
        """

@final
class BetonEpoch:
    """The batches of an epoch of a dataset: an iterator of (batch, ids)."""

    @property
    def epoch(self) -> int:
        """The number of the epoch."""
    @property
    def batch_size(self) -> int:
        """The samples of a batch; the last may have fewer."""
    @property
    def left_out(self) -> int:
        """How many damaged samples were left out so far."""
    def __len__(self) -> int:
        """The batches of the epoch, as long as no damaged samples are left out."""
    def __iter__(self) -> BetonEpoch:
        """The batches that are left in this epoch; after a loop to its end, those of the next epoch."""
    def __next__(self) -> tuple[dict[str, Any], _Ids]:
        """The next batch. After an error, or Ctrl-C, it tries the same batch again."""
    def reset(self) -> None:
        """Back to the first sample."""
    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch. Right after load_state_dict, the epoch of the state goes on where it was."""
    def skip_batches(self, batches: int) -> None:
        """Passes over this number of batches, or all that are left, without reading them."""
    def state_dict(self) -> dict[str, int]:
        """Where the epoch stands."""
    def load_state_dict(self, state: dict[str, int]) -> None:
        """Goes on from a state of an epoch of the same dataset with the same traversal, rank and
        world."""

class _WriteReport(TypedDict):
    samples: int
    pages: int
    file_bytes: int

@final
class BetonWriter:
    """Writes datasets that FFCV reads too.

    fields: by name, "int", "float", "bytes", "json", "image", or a dict of kind ("array" or
        "tensor"), dtype and shape.
    page_size: a power of two, 2 MiB or more; 8 MiB by default. A sample must fit in one. A file has
        whole pages, at least one for each worker, and begins with one for its header.
    alignment: 512 or 4096 for direct reads; packed without.
    workers: threads that write; your code has the interpreter lock while it makes a sample.
    deterministic: the file does not depend on the workers.
    direct: past the page cache.

    A sample is a dict by the names of the fields, or a tuple in their order. An image is an array
    of (height, width, 3) uint8, an RGB image of Pillow, or the bytes of a JPEG. Arrays are converted to the dtype of their
    field where nothing can be lost; the numbers of a list need only fit. Nothing is left of what
    fails.

    Samples are asked for on other threads than the caller's: what is bound to one, such as a
    connection of sqlite3, is to be opened there.
    """

    def __new__(
        cls,
        path: _Path,
        fields: dict[str, Any],
        *,
        page_size: int | None = None,
        alignment: Literal[1, 512, 4096] | None = None,
        workers: int | None = None,
        deterministic: bool = False,
        direct: bool = False,
    ) -> BetonWriter: ...
    def from_indexed(self, samples: Any) -> _WriteReport:
        """Writes samples[0] to samples[len(samples) - 1], which are asked for in any order."""
    def from_iterable(self, samples: Iterable[Any], count: int | None = None) -> _WriteReport:
        """Writes what an iterable yields: `count` samples, or as many as it has by len()."""

@final
class _Weights:
    def __new__(cls, path: _Path, engine: Engine | _Backend | str | None = None) -> _Weights: ...
    def names(self) -> list[str]: ...
    def info(self, name: str) -> tuple[str, list[int]]: ...
    def metadata(self) -> dict[str, str] | None: ...
    def read(self, name: str, element: npt.DTypeLike | None) -> npt.NDArray[Any]: ...
    def load(
        self, elements: dict[str, Any], names: list[str] | None = None
    ) -> dict[str, npt.NDArray[Any]]: ...
    def view(self, name: str, element: npt.DTypeLike) -> ContiguousMemmap: ...
