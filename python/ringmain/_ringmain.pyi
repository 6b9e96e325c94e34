from collections.abc import Callable, Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, SupportsIndex, TypedDict, final, overload

import numpy as np
import numpy.typing as npt

__version__: str

_Path = str | bytes | PathLike[str] | PathLike[bytes]
_Backend = Literal["auto", "pread", "mmap", "direct", "uring", "uncached", "tokio-uring"]
# An array or a tensor to fill.
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

    backend: "auto", the default, chooses for every read: it copies data that is in the page cache, and
        reads the rest from the device.
    memory_limit: the limit on all buffers, in bytes. The default is 512 MiB, or a quarter of the memory
        of the machine or container if that is less, and at least 64 MiB. About half of the limit is for
        arrays and batches, the rest for the backend's own buffers.
    depth: the largest number of requests to the device that a batch keeps in flight; 128 by default.
    chunk_bytes: the size of the largest request to the device; 1 MiB by default.
    residency: whether "mmap" keeps the pages that it has read in memory; "keep" by default.
    open_files: the largest number of files that stay open. The default is an eighth of the limit of the
        process (`ulimit -n`), but at least 16 and at most 512.
    warmth: whether data that "auto" reads stays in the page cache, so that the next read copies it from
        memory. "auto", the default, keeps the data of epochs if it fits in the available memory. "keep"
        keeps all data. "leave" reads cold data past the page cache.
    access: the order in which files are read, which decides how far the kernel reads ahead. With
        "random" the kernel reads nothing ahead; with "sequential" it reads further ahead than usual.
        "as-it-comes", the default, leaves the choice to the kernel.
    threads: the largest number of threads that copy one large batch from the page cache, the calling one
        included; 8 by default.
    profile: the path of a profile of `ringmain recommend --save`, which "auto" follows. "off" ignores the
        profile that the user has saved, which is the default.
    record: the path of a new file to which every read is recorded, for `ringmain bench --trace`. The file
        is complete after finish_recording(), or when the program ends. Other processes do not record:
        neither forked ones nor those that unpickle the engine.
    disk_cache: a folder on a fast local disk that keeps what is read of objects in stores, for the next
        read and the next program. It needs disk_cache_limit. Local files are not kept.
    disk_cache_limit: the bytes that the cache may have on the disk.

    Paths can be URLs of object stores everywhere: s3://bucket/key, gs://, az://, abfss://, https://.
    Credentials, region and endpoint come from the environment: AWS_ACCESS_KEY_ID, AWS_ENDPOINT and the like.
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
        threads: int | None = None,
        profile: _Path | None = None,
        record: _Path | None = None,
        disk_cache: _Path | None = None,
        disk_cache_limit: int | None = None,
    ) -> Engine: ...
    @property
    def backend(self) -> str:
        """The name of the backend that the engine was made with. describe() names the backends that
        "auto" chooses from."""
    @property
    def memory_limit(self) -> int:
        """The limit on all buffers, in bytes."""
    def describe(self, path: _Path | None = None) -> str:
        """Returns a description for people: the backend, what it can do, and which features are missing
        here. With a path, it says how the engine would read that file, and why."""
    def stats(self) -> dict[str, Any]:
        """Returns counters since the engine was made: batches, reads and bytes in total; reads and bytes
        from the page cache, from the device and through aligned buffers; how often "auto" asked the
        kernel what is in the page cache, and how often it wrongly took a read for cached; retries and
        open files. "batch_seconds" has quantiles of the time per batch. Only batches of eight reads or
        more and one in sixteen of the smaller ones are timed; the quantiles are None before the first of
        them."""
    def finish_recording(self) -> dict[str, Any]:
        """Ends the recording that the argument `record` began, and returns its path and the numbers of
        batches, reads and bytes in it. "stopped" says why it ended before; otherwise it is None."""
    def disk_cache_stats(self) -> dict[str, Any]:
        """Returns what the disk cache did for this process: hits, misses, blocks that were stored, evicted
        or damaged. "degraded" says why blocks are not stored or not read now; otherwise it is None."""
    def pool_stats(self) -> _PoolStats:
        """Returns the bytes of the pool that arrays and batches hold, the bytes that wait for their next
        use, the limit of the pool, and how many buffers were newly allocated or used again."""

@final
class ContiguousMemmap:
    """A view of an array in a file. Slicing and reshaping read nothing; reading is file I/O.

    arr: an np.memmap, or any view of one, even with gaps between its elements or in reverse order; or a
        ContiguousMemmap.
    cache: ignored. It is accepted because exca's class has this argument.
    engine: an Engine, or the name of a backend. The default is the engine that all views share.
    """

    def __new__(
        cls, arr: npt.NDArray[Any] | ContiguousMemmap, cache: object = None, *, engine: Engine | _Backend | str | None = None
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
    def path(self) -> PathLike[str] | str:
        """The file that holds the array, or the URL of an object as a str."""
    @property
    def offset(self) -> int:
        """The offset of the first element in the file, in bytes."""
    @property
    def engine(self) -> Engine:
        """The engine that reads the view."""
    @property
    def T(self) -> ContiguousMemmap: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __reversed__(self) -> Iterator[Any]: ...
    def __getitem__(self, key: Any, /) -> Any:
        """Returns a view, an empty array for an empty selection, or an element if the key selects one.

        The key has integers, slices, `...` and `None`, as in NumPy, and selects one range of the file. Other
        selections raise TypeError; `read` reads them.
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
        """Reads a selection, which can be any index of positions that NumPy accepts. Returns a new array, or
        fills and returns `out`, which is an array or a tensor. For a field of a structured dtype, use
        np.asarray(view)["field"]."""
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
    """Returns a view of an array in a file without a header, from `offset` on.

    Without a shape, the view has one axis with all elements up to the end of the file. One axis of a
    shape may be -1.
    """

def open_npy(
    path: _Path,
    *,
    engine: Engine | _Backend | str | None = None,
    backend: _Backend | str | None = None,
) -> ContiguousMemmap:
    """Returns a view of the array in a .npy file. Python objects are refused and never unpickled."""

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

    Returns a list of arrays, one for each view. With stack=True it returns a single array whose first
    axis counts the views; all views must then have the same shape and dtype. `out` is a list or an array
    of that form, which is filled and returned.
    """

def _files_of_folder(
    path: _Path, extension: str, engine: Engine | str | None
) -> list[str] | None: ...
def _nodes_of(rank: int, world: int, node: int, local_rank: int, local_world: int) -> int: ...
def _nodes_of_environment() -> int: ...
def _state_of_workers(states: list[dict[str, Any]]) -> dict[str, Any]: ...
def _place_of_environment() -> tuple[int, int, int, int | None] | None: ...
def _read_exca_infos(
    path: _Path, engine: Engine | _Backend | str | None = None
) -> list[tuple[str, Path, int, list[int], str]]: ...
def _open_view(
    path: PathLike[str],
    dtype: npt.DTypeLike,
    shape: Sequence[int],
    strides: Sequence[int],
    offset: int,
    engine: Engine | _Backend | str | None,
) -> ContiguousMemmap: ...
def _engine(token: str, options: dict[str, Any]) -> Engine: ...
def _run_command(args: list[str], program: list[str]) -> int: ...
def probe(path: _Path | None = None) -> dict[str, Any]:
    """Tests what this kernel, the filesystem of `path` and each backend on that filesystem can do, and
    returns the results."""

_Rows = npt.NDArray[np.float32] | npt.NDArray[np.float64]
_Ids = npt.NDArray[np.uint64]

@final
class ShardSource:
    """An iterator of (rows, row_ids) that delivers the rows of shards in batches.

    A loop reads to the end of the epoch, and a new loop begins the next epoch. After a `break`, the next
    loop reads the rest of the epoch. `reset` goes back to the start of the epoch.

    paths: a folder, whose *.shard files are read in the order of their names; a file; or any iterable of
        files. The order of the files decides the numbers of the rows, so sort the result of a glob.
    order: "shuffled" and "blocks" depend only on seed and epoch. "blocks" keeps block_rows rows together.
    rank, world: splits every epoch into `world` parts and delivers part number `rank`.
    worker, workers: delivers only the part of one of the `workers` workers of this rank.
    global_batch: the number of rows in a batch of all ranks. Each batch has the same rows for any number of
        ranks and workers, and this source delivers its share. Any number of ranks can continue from a state.
    nodes: with global_batch, gives the nodes of a job the rows that they had in earlier epochs.
    batch_rows: the largest number of rows in a batch; 1024 by default, or fewer if the rows are large.
        In sequential order a batch ends at the end of its shard.
    drop_last: leaves out batches that have fewer rows than batch_rows. If no batch is left for any rank, it
        is an error.
    dtype: float32, the type in which rows are stored, or float64.
    rows: the rows to deliver, as numbers or as a mask with a bool for each row; by default all rows.
        Numbers may come in any order, but not twice: the order of delivery is that of `order`, and
        "sequential" delivers them sorted.
    prefetch_bytes: how many bytes a thread reads ahead; 8 MiB by default. 0 reads nothing ahead.
    patience: how many seconds a batch waits for memory that other batches hold, before it raises a
        MemoryError; 5 by default.

    The arrays use memory of the engine's pool. It returns to the pool when the last array of a batch is
    dropped.
    """

    def __new__(
        cls,
        paths: _Path | Iterable[_Path],
        *,
        engine: Engine | _Backend | str | None = None,
        order: Literal["sequential", "shuffled", "blocks"] = "sequential",
        seed: int = 0,
        epoch: int = 0,
        block_rows: int | None = None,
        rank: int = 0,
        world: int = 1,
        worker: int = 0,
        workers: int = 1,
        batch_rows: int | None = None,
        global_batch: int | None = None,
        nodes: int = 1,
        drop_last: bool = False,
        dtype: npt.DTypeLike | None = None,
        rows: Iterable[int] | npt.NDArray[np.integer[Any] | np.bool] | None = None,
        prefetch_bytes: int | None = None,
        patience: float | None = None,
    ) -> ShardSource: ...
    @property
    def total_rows(self) -> int:
        """The number of rows in all shards."""
    @property
    def epoch_rows(self) -> int:
        """The number of rows that this source delivers in an epoch, given its rank and its `rows`."""
    @property
    def remaining_rows(self) -> int:
        """The number of rows that remain in this epoch."""
    @property
    def width(self) -> int:
        """The number of columns."""
    @property
    def files(self) -> list[tuple[str, int]]:
        """The shards that have rows, in order: a list of (path, rows)."""
    @property
    def batch_rows(self) -> int:
        """The largest number of rows in a batch."""
    @property
    def epoch(self) -> int:
        """The number of the current epoch."""
    @property
    def engine(self) -> Engine:
        """The engine that reads."""
    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]: ...
    def __len__(self) -> int:
        """Returns the number of batches in an epoch."""
    def __iter__(self) -> ShardSource:
        """Returns an iterator over the remaining batches of this epoch, or over the next epoch if a loop
        has reached the end of this one."""
    def __next__(self) -> tuple[_Rows, _Ids]:
        """Returns the next batch. After an error or Ctrl-C, the next call tries the same batch again."""
    def reset(self) -> None:
        """Goes back to the first row of the epoch."""
    def set_epoch(self, epoch: int) -> None:
        """Begins the epoch with the number `epoch`. If load_state_dict was called just before with a state
        of this epoch, the epoch continues from that state."""
    def skip_rows(self, rows: int) -> None:
        """Skips this number of rows without reading them, or the rest of the epoch if fewer are left."""
    def skip_batches(self, batches: int) -> None:
        """Skips this number of batches without reading them, or the rest of the epoch if fewer are
        left."""
    def seek(self, row_id: int) -> None:
        """Goes to a row in the order of the epoch: the next batch begins with the row `row_id`."""
    def state_dict(self) -> dict[str, Any]:
        """Returns the position of the source as a plain dict. With `global_batch`, it is the position of
        the whole job."""
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a state, in the epoch of the state. The state must come from a source over the
        same shards with the same order, rank, world and rows."""

@final
class ShardWriter:
    """Writes a shard, which ShardSource reads. Use it in a `with` block.

    The file gets its name at the end of the block, when all rows are on the device, and replaces a file of
    that name. If an exception leaves the block, nothing is left behind. Without a `with` block, finish()
    completes the shard.

    path: the file, with the suffix .shard. Its folder must exist.
    width: the number of columns of every row.
    """

    def __new__(cls, path: _Path, width: int) -> ShardWriter: ...
    @property
    def path(self) -> PathLike[str]:
        """The file."""
    @property
    def width(self) -> int:
        """The number of columns of every row."""
    @property
    def rows(self) -> int:
        """The number of rows that were written so far."""
    def write(self, rows: npt.ArrayLike) -> None:
        """Adds rows: an array of (any number of rows, width), or anything that np.asarray converts to one.
        Shards hold float32; other real numbers are rounded to it."""
    def finish(self) -> int:
        """Completes the shard and returns the number of its rows. The end of a `with` block calls this."""
    def __enter__(self) -> ShardWriter: ...
    def __exit__(self, kind: object, error: object, traceback: object) -> None: ...

@final
class Beton:
    """A dataset in FFCV's .beton format. beton[id] reads one sample and returns a dict of its fields by
    name.

    images: "decoded" delivers arrays of (height, width, 3); "stored" delivers JPEGs as their bytes.
    resize: the (height, width) that all images are resampled to. The images of a batch are then one array
        of (batch, height, width, 3).
    center_crop: with resize, resamples only a square at the centre of the image. Its side is this fraction,
        above 0 and at most 1, of the image's shorter side.
    random_crop: with resize, resamples a random part of each image: (smallest, largest) area as a fraction
        of the image. It depends on crop_seed, the number of the epoch and the id of the sample alone.
    crop_ratio: with random_crop, the (smallest, largest) width divided by the height; (3/4, 4/3) by default.
    crop_seed: with random_crop, the seed; 0 by default.
    dtype: with resize, the type of the images: "uint8", "float16" or "float32", or NumPy's dtypes of them.
    layout: with resize, "nhwc" for (batch, height, width, 3) or "nchw" for (batch, 3, height, width).
    mean, std: with a dtype of floats, delivers (level - mean) / std for red, green and blue. Both count
        levels from 0 to 255, as FFCV's NormalizeImage: multiply the values of torchvision by 255.
    transform: with resize, a function that gets each array of (batch, ...) images and the ids of their
        samples, and changes the images in place. A note on its exception names the samples.
    decode_threads: the number of threads that decode the images of a batch; by default the number of
        processors, or 1 in a worker of a DataLoader. It changes no byte.
    pixels_max: JPEGs with more pixels are errors, before memory is allocated for them; 178,956,970 by
        default, as in Pillow.
    index_limit: the most memory that the metadata and the allocation table may take, in bytes; 4 GiB by
        default.
    fields: a NumPy dtype for each field whose type FFCV does not define, or the number of its bytes. The
        dtype describes the field's metadata. If the dtype has a "ptr" (and a "size"), the value is a dict of "metadata" and "data";
        otherwise the value is the metadata.

    The memory limit applies neither to single samples nor to the batches of `read_batch`: once the engine's
    pool is exhausted, they get memory outside of it. The batches of an epoch always use the pool and count
    against its limit; only their decoded images may get memory outside of it.
    """

    def __new__(
        cls,
        path: _Path,
        *,
        engine: Engine | _Backend | str | None = None,
        images: Literal["decoded", "stored"] = "decoded",
        resize: tuple[int, int] | None = None,
        center_crop: float | None = None,
        random_crop: tuple[float, float] | None = None,
        crop_ratio: tuple[float, float] | None = None,
        crop_seed: int | None = None,
        dtype: npt.DTypeLike | None = None,
        layout: Literal["nhwc", "nchw"] | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        transform: Callable[[npt.NDArray[Any], npt.NDArray[np.uint64]], None] | None = None,
        decode_threads: int | None = None,
        pixels_max: int | None = None,
        index_limit: int | None = None,
        fields: dict[str, npt.DTypeLike | int] | None = None,
    ) -> Beton: ...
    @property
    def fields(self) -> dict[str, dict[str, Any]]:
        """The fields by name. Each is a dict with its kind, for arrays also with dtype and shape, and for
        custom fields with the dtype of the metadata. BetonWriter accepts these dicts."""
    @property
    def path(self) -> PathLike[str] | str:
        """The file, or the URL of an object as a str."""
    @property
    def engine(self) -> Engine:
        """The engine that reads."""
    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, id: int, /) -> dict[str, Any]:
        """Reads the sample with the number `id`. A negative number counts from the end."""
    def __iter__(self) -> Iterator[dict[str, Any]]: ...
    def read_batch(
        self, ids: Sequence[int] | npt.NDArray[np.integer[Any]], *, epoch: int = 0
    ) -> dict[str, Any]:
        """Reads several samples as one batch of reads and returns a dict by field name. Negative ids count
        from the end.

        A field of numbers or arrays becomes one array whose first axis counts the samples. A field of
        bytes or images becomes a list of arrays, a JSON field a list of parsed values. With `resize`, a
        field of images becomes one array.

        epoch: the number of the epoch, on which random crops depend. Those of beton[id] are those of epoch 0.
        """
    def sample_bytes(
        self, ids: Sequence[int] | npt.NDArray[np.integer[Any]] | None = None
    ) -> npt.NDArray[np.uint64]:
        """Returns how many bytes the values of each sample take as `read_batch` delivers them: images
        decoded or resized, unless they are delivered as stored. It reads nothing from the file. JSON
        counts as its text, and a value of a custom field as its metadata and data.

        ids: the numbers of the samples, as for `read_batch`; by default all samples.
        """
    def epoch(
        self,
        traversal: Literal["sequential", "random", "quasi_random"] = "sequential",
        *,
        seed: int = 0,
        epoch: int = 0,
        open_pages: int | None = None,
        batch_size: int | None = None,
        global_batch: int | None = None,
        drop_last: bool = False,
        rank: int = 0,
        world: int = 1,
        worker: int = 0,
        workers: int = 1,
        nodes: int = 1,
        memory_manager: Literal["direct", "os_cache", "process_cache"] = "direct",
        cache_pages: int | None = None,
        damaged: Literal["fail", "leave_out"] = "fail",
        prefetch_bytes: int | None = None,
        patience: float | None = None,
    ) -> BetonEpoch:
        """Returns an iterator of (batch, ids) over all samples. A thread reads ahead.

        open_pages: how many pages "quasi_random" draws samples from at a time.
        batch_size: the number of samples in a batch; 256 by default.
        global_batch: the number of samples in a batch of all ranks, of which this rank delivers its share.
        nodes: with global_batch, gives the nodes of a job the samples that they had in earlier epochs.
        drop_last: leaves out the last batch if it is smaller than the others. If that leaves no batch, it
            is an error.
        memory_manager: "direct" reads samples straight into the batch; "os_cache" reads through the page
            cache and needs the backend "mmap"; "process_cache" keeps cache_pages pages of the file in memory.
        damaged: "fail" raises an error at a damaged sample; "leave_out" leaves the sample out. A sample
            is also damaged if its JPEG or its JSON cannot be decoded.
        patience: how many seconds a batch waits for memory that other batches hold, before it raises a
            MemoryError; 5 by default.

        The thread that calls `next` decodes the JPEGs, with `decode_threads` - 1 others and the interpreter
        lock released.
        """

@final
class BetonEpoch:
    """An iterator of (batch, ids) over the batches of an epoch of a dataset.

    A loop reads to the end of the epoch, and a new loop begins the next epoch. After a `break`, the next
    loop reads the rest of the epoch. `reset` goes back to the start of the epoch.
    """

    @property
    def epoch(self) -> int:
        """The number of the epoch."""
    @property
    def batch_size(self) -> int:
        """The number of samples in a batch; the last batch may have fewer."""
    @property
    def left_out(self) -> int:
        """The number of damaged samples that were left out so far."""
    def __len__(self) -> int:
        """Returns the number of batches in the epoch. There may be fewer if damaged samples are left
        out."""
    def __iter__(self) -> BetonEpoch:
        """Returns an iterator over the remaining batches of this epoch, or over the next epoch if a loop
        has reached the end of this one."""
    def __next__(self) -> tuple[dict[str, Any], _Ids]:
        """Returns the next batch. After an error or Ctrl-C, the next call tries the same batch again."""
    def reset(self) -> None:
        """Goes back to the first sample of the epoch."""
    def set_epoch(self, epoch: int) -> None:
        """Begins the epoch with the number `epoch`. If load_state_dict was called just before with a state
        of this epoch, the epoch continues from that state."""
    def skip_batches(self, batches: int) -> None:
        """Skips this number of batches without reading them, or the rest of the epoch if fewer are
        left."""
    def state_dict(self) -> dict[str, Any]:
        """Returns the position in the epoch as a plain dict. With `global_batch`, it is the position of the
        whole job."""
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a state, in the epoch of the state. The state must come from an epoch of the same
        dataset with the same traversal, rank and world."""

class _WriteReport(TypedDict):
    samples: int
    pages: int
    file_bytes: int

@final
class BetonWriter:
    """Writes datasets in the .beton format, which FFCV can read. If writing fails, no file is left behind.

    fields: the kind of each field by name: "int", "float", "bytes", "json", "image", or a dict of kind
        ("array" or "tensor"), dtype and shape. A dict of the kind "custom" and a dtype is a field whose type
        FFCV does not define; its values have the form in which Beton delivers them.
    page_size: the size of a page in bytes, a power of two from 2 MiB on; 8 MiB by default. A sample must
        fit in a page. A file consists of whole pages: one for the header, and at least one per worker.
    alignment: 512 or 4096 aligns samples for direct reads. By default samples are packed.
    workers: the number of threads that write; by default the number of processors. Your code holds the interpreter lock while it makes a
        sample, so only the rest of the work runs in parallel.
    deterministic: makes the bytes of the file independent of the number and timing of the workers.
    direct: writes past the page cache.
    progress: shows a bar of tqdm while it writes, if tqdm is installed.

    A sample is a dict by field name, or a tuple in the order of the fields. An image is an array of
    (height, width, 3) uint8, an RGB image of Pillow, or the bytes of a JPEG. An array is converted to the
    dtype of its field if np.can_cast allows it; for a list it is enough that its numbers fit.

    The writer's own threads run your code, not the thread that called the writer. If an object is bound to
    a thread, such as an sqlite3 connection, open it inside that code.
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
        progress: bool = False,
    ) -> BetonWriter: ...
    def from_indexed(self, samples: Any) -> _WriteReport:
        """Writes the samples from samples[0] up to samples[len(samples) - 1]. Workers get them one at a
        time, in any order."""
    def from_iterable(self, samples: Iterable[Any], count: int | None = None) -> _WriteReport:
        """Writes the samples that an iterable yields: `count` samples, by default len(samples)."""

@final
class _Weights:
    def __new__(cls, path: _Path, engine: Engine | _Backend | str | None = None) -> _Weights: ...
    def names(self) -> list[str]: ...
    def info(self, name: str) -> tuple[str, list[int]]: ...
    def metadata(self) -> dict[str, str] | None: ...
    def read(self, name: str, element: npt.DTypeLike | None) -> npt.NDArray[Any]: ...
    def load(
        self,
        elements: dict[str, Any],
        names: list[str] | None = None,
        arrived: Callable[[int], Any] | None = None,
    ) -> dict[str, npt.NDArray[Any]]: ...
    def view(self, name: str, element: npt.DTypeLike) -> ContiguousMemmap: ...

class _MapOptions(TypedDict):
    huge_pages: bool
    read_ahead_pages: int
    populate: bool
    lock: bool

@final
class _MappedFile:
    def __new__(cls, path: _Path, unchanging: bool, options: _MapOptions) -> _MappedFile: ...
    def names(self) -> list[str]: ...
    def info(self, name: str) -> tuple[str, list[int]]: ...
    def array(
        self, name: str, element: npt.DTypeLike | None, is_writable: bool
    ) -> npt.NDArray[Any]: ...
    def populate(self) -> None: ...
    def lock(self) -> None: ...
    def unlock(self) -> None: ...
    def is_intact(self) -> bool: ...
    @property
    def is_locked(self) -> bool: ...
    @property
    def path(self) -> Path: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def unmet(self) -> list[tuple[str, str]]: ...

@final
class _MappingCache:
    def __new__(
        cls, limit_bytes: int, unchanging: bool, options: _MapOptions
    ) -> _MappingCache: ...
    def get_or_open(self, path: _Path) -> _MappedFile: ...
    def evict_lru(self, bytes: int) -> int: ...
    def clear(self) -> int: ...
    def stats(self) -> Any: ...
