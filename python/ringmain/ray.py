"""Ray datasets over shards, `.npy` files and `.beton` files.

Each function returns a `ray.data.Dataset`. Its read tasks are ranges of rows of about the same size, and their
sizes are known before anything is read. Ray decides how many tasks there are and run at a time, and makes them
wait for slow consumers. A task reads its rows in pieces of at most 16 MiB, so that its memory does not grow with
the files. If a worker dies, Ray runs its tasks again; they read the same rows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from . import Engine

try:
    import pyarrow as pa
    from ray.data import Dataset, Datasource, ReadTask, read_datasource
    from ray.data.block import BlockMetadata
    from ray.data.context import DataContext
except ImportError as error:
    raise ImportError(
        'ringmain.ray needs Ray Data, which could not be imported; install it with pip install "ray[data]"'
    ) from error

from . import _ray_rows
from ._ray_rows import PlannedRows, RowReader
from ._row_ranges import FileRange

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["read_beton", "read_npy", "read_shards"]

_Path = str | bytes | PathLike[str] | PathLike[bytes]

# Large enough that a device has many requests in flight, and small beside Ray's blocks of up to 128 MiB, which Ray
# makes of several pieces.
_PIECE_BYTES = 16 << 20


def read_shards(
    paths: _Path | Iterable[_Path],
    *,
    engine: Engine | str | None = None,
    row_id_column: str | None = "row_id",
    **ray_options: Any,
) -> Dataset:
    """Returns a dataset of the rows of shards: "data" is a tensor of float32, "row_id" the number of the row.

    paths: a folder, whose *.shard files are read in the order of their names; a file; or any iterable of files.
        The order of the files decides the numbers of the rows.
    engine: an Engine, or the name of a backend. By default all tasks of a worker share one engine.
    row_id_column: the name of the column with the numbers of the rows, counted over all files; None leaves it
        out.
    ray_options: the arguments of `ray.data.read_datasource`, such as concurrency, override_num_blocks and num_cpus.
    """
    return _dataset("Shards", _ray_rows.plan_shards(paths, engine), row_id_column, ray_options)


def read_npy(
    paths: _Path | Iterable[_Path],
    *,
    engine: Engine | str | None = None,
    row_id_column: str | None = "row_id",
    **ray_options: Any,
) -> Dataset:
    """Returns a dataset of the rows of `.npy` files: "data" is a number or a tensor, "row_id" the number of the row.

    paths: a file; any iterable of files, whose rows must have one dtype and shape; or a folder, whose *.npy files
        are read in the order of their names. Values can be bool, integers, or floats of 16 to 64 bits.
    engine: an Engine, or the name of a backend. By default all tasks of a worker share one engine.
    row_id_column: the name of the column with the numbers of the rows, counted over all files; None leaves it
        out.
    ray_options: the arguments of `ray.data.read_datasource`, such as concurrency, override_num_blocks and num_cpus.
    """
    return _dataset("Npy", _ray_rows.plan_npy(paths, engine), row_id_column, ray_options)


def read_beton(
    paths: _Path | Iterable[_Path],
    *,
    engine: Engine | str | None = None,
    row_id_column: str | None = "row_id",
    images: Literal["decoded", "stored"] = "decoded",
    resize: tuple[int, int] | None = None,
    center_crop: float | None = None,
    index_limit: int | None = None,
    fields: dict[str, npt.DTypeLike | int] | None = None,
    **ray_options: Any,
) -> Dataset:
    """Returns a dataset of the samples of `.beton` files, with a column for each field.

    Arrays and images are tensors, and all tensors of a column have one shape, except images without `resize`. JSON
    is text. A field of a type that FFCV does not define must be left out: `fields={"name": bytes_of_its_metadata}`.

    paths: a file, or any iterable of files with the same fields.
    engine: an Engine, or the name of a backend. By default all tasks of a worker share one engine.
    row_id_column: the name of the column with the numbers of the samples, counted over all files; None leaves it
        out.
    images: "decoded" delivers tensors of (height, width, 3); "stored" delivers JPEGs as their bytes.
    resize, center_crop, index_limit, fields: as for `ringmain.Beton`.
    ray_options: the arguments of `ray.data.read_datasource`, such as concurrency, override_num_blocks and num_cpus.
    """
    options = {
        "engine": engine, "images": images, "resize": resize, "center_crop": center_crop,
        "index_limit": index_limit, "fields": fields,
    }  # fmt: skip
    return _dataset("Beton", _ray_rows.plan_beton(paths, options), row_id_column, ray_options)


def _dataset(
    name: str, rows: PlannedRows, row_id_column: Any, ray_options: dict[str, Any]
) -> Dataset:
    # `read_datasource` takes any argument and ignores those that it does not know.
    known = {
        parameter.name
        for parameter in inspect.signature(read_datasource).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    for option in ray_options:
        if option not in known:
            raise TypeError(
                f"ringmain.ray has no argument {option!r}; besides its own arguments it takes those of "
                f"ray.data.read_datasource: {', '.join(sorted(known))}"
            )
    if row_id_column is not None and not isinstance(row_id_column, str):
        raise TypeError(f"row_id_column must be a str or None, not {type(row_id_column).__name__}")
    if row_id_column in rows.columns:
        raise ValueError(
            f"row_id_column cannot be {row_id_column!r}, because a column of the data has this name; choose "
            f"another one, or None"
        )
    dataset: Dataset = read_datasource(_RowsDatasource(name, rows, row_id_column), **ray_options)
    return dataset


class _RowsDatasource(Datasource):
    def __init__(self, name: str, rows: PlannedRows, row_id_column: str | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._name, self._rows, self._row_id_column = name, rows, row_id_column
        ids = {} if row_id_column is None else {row_id_column: pa.uint64()}
        self._schema = pa.schema({**rows.columns, **ids})

    def get_name(self) -> str:
        return f"Ringmain{self._name}"

    def estimate_inmemory_data_size(self) -> int:
        return self._bytes_of(0, len(self._rows.rows))

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        context = data_context or DataContext.get_current()
        piece_bytes = min(_PIECE_BYTES, context.target_max_block_size or _PIECE_BYTES)
        # A dataset without rows has a task too, which delivers the names and types of the columns.
        cuts = self._rows.cuts(parallelism) or [(0, 0)]
        tasks = []
        for start, stop in cuts:
            parts = self._rows.rows.ranges(start, stop)
            metadata = BlockMetadata(
                num_rows=stop - start,
                size_bytes=self._bytes_of(start, stop),
                input_files=tuple(part.path for part in parts),
                exec_stats=None,
            )
            read = _read_function(
                self._rows.reader, parts, self._schema, self._row_id_column, piece_bytes
            )
            tasks.append(ReadTask(read, metadata, self._schema, per_task_row_limit))
        return tasks

    def _bytes_of(self, start: int, stop: int) -> int:
        ids = 0 if self._row_id_column is None else _ray_rows.ROW_ID_BYTES * (stop - start)
        return self._rows.bytes_of(start, stop) + ids


def _read_function(
    reader: RowReader,
    parts: list[FileRange],
    schema: pa.Schema,
    row_id_column: str | None,
    piece_bytes: int,
) -> Callable[[], Iterator[pa.Table]]:
    def read() -> Iterator[pa.Table]:
        if not parts:
            yield schema.empty_table()
        for part in parts:
            first_id = part.first_id
            for rows, columns in reader.pieces(part, piece_bytes):
                if row_id_column is not None:
                    columns[row_id_column] = _ray_rows.row_ids(first_id, rows)
                first_id += rows
                yield pa.table(columns, schema=schema)

    return read
