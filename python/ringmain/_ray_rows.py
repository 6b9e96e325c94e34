"""The rows of shards, `.npy` files and `.beton` files, as Arrow tables in bounded pieces."""

from __future__ import annotations

import json
import os
import pickle
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from ray.data.extensions import ArrowTensorArray, ArrowVariableShapedTensorArray

from . import Beton, ShardSource, open_npy, open_raw
from ._ringmain import _files_of_folder
from ._row_ranges import SHARD_ROWS_AT, FileRange, FileRows, even_cuts

ROW_ID_BYTES = 8


class RowReader(ABC):
    """Reads ranges of rows in a task of Ray. It is pickled for each task, so it does not contain the list of
    the files."""

    @abstractmethod
    def pieces(
        self, part: FileRange, piece_bytes: int
    ) -> Iterator[tuple[int, dict[str, pa.Array]]]:
        """Yields the columns of consecutive rows, and how many rows they have. A piece has at most
        `piece_bytes`, or one row."""


@dataclass
class PlannedRows:
    """The rows of a dataset before they are read."""

    rows: FileRows
    reader: RowReader
    columns: dict[str, pa.DataType]
    # The bytes of a row if all rows have the same size. Otherwise the sum of the bytes up to the end of each
    # row.
    row_bytes: int = 0
    bytes_up_to: np.ndarray[Any, np.dtype[np.uint64]] | None = None

    def bytes_of(self, start: int, stop: int) -> int:
        """Returns the bytes of the rows from `start` up to `stop`."""
        if self.bytes_up_to is None:
            return self.row_bytes * (stop - start)
        before = int(self.bytes_up_to[start - 1]) if start else 0
        return (int(self.bytes_up_to[stop - 1]) if stop else 0) - before

    def cuts(self, tasks: int) -> list[tuple[int, int]]:
        """Returns the rows of each task: about the same number of bytes, and at least one row."""
        rows = len(self.rows)
        total = self.bytes_of(0, rows)
        if self.bytes_up_to is None or total == 0:
            return even_cuts(rows, tasks)
        tasks = min(tasks, rows)
        wanted = [total * task // tasks for task in range(1, tasks)]
        found = np.searchsorted(self.bytes_up_to, np.array(wanted, np.uint64), side="left") + 1
        bounds = sorted({0, rows, *(int(bound) for bound in found if bound < rows)})
        return list(zip(bounds[:-1], bounds[1:], strict=True))


def plan_shards(paths: Any, engine: Any) -> PlannedRows:
    source = ShardSource(located(paths), engine=engine)
    width = source.width
    reader = _ShardReader(width, engine)
    columns = {"data": _arrow_type(np.dtype(np.float32), (width,))}
    return PlannedRows(FileRows(source.files), reader, columns, row_bytes=4 * width)


@dataclass
class _ShardReader(RowReader):
    width: int
    engine: Any

    def pieces(
        self, part: FileRange, piece_bytes: int
    ) -> Iterator[tuple[int, dict[str, pa.Array]]]:
        # Checks the header and the length of the file.
        source = ShardSource(part.path, engine=self.engine, prefetch_bytes=0)
        _check_same(
            part.path, (part.file_rows, (self.width,)), (source.total_rows, (source.width,))
        )
        shape = part.file_rows, self.width
        view = open_raw(part.path, "<f4", shape, SHARD_ROWS_AT, engine=self.engine)
        yield from _pieces_of(view, part, 4 * self.width, piece_bytes)


def plan_npy(paths: Any, engine: Any) -> PlannedRows:
    paths = located(paths)
    paths = _listed(paths, "npy", engine) if isinstance(paths, str) else paths
    if not paths:
        raise ValueError("paths is an empty list: name at least one .npy file")
    files, first = [], None
    for path in paths:
        view = open_npy(path, engine=engine)
        if view.ndim == 0:
            raise ValueError(f"{path}: an array without axes has no rows; read it with open_npy")
        form = view.dtype, view.shape[1:]
        first = first or (path, form)
        if form != first[1]:
            (name, (dtype, shape)), (found, found_shape) = first, form
            raise ValueError(
                f"the arrays must have rows of one type: {path} has rows of {found} {found_shape}, "
                f"but {name} of {dtype} {shape}; read them as two datasets"
            )
        files.append((path, len(view)))
    path, (dtype, shape) = first or ("", (np.dtype(float), ()))
    columns = {"data": _arrow_type(dtype, shape, path)}
    row_bytes = dtype.itemsize * int(np.prod(shape))
    return PlannedRows(FileRows(files), _NpyReader(dtype, shape, engine), columns, row_bytes)


@dataclass
class _NpyReader(RowReader):
    dtype: np.dtype[Any]
    row_shape: tuple[int, ...]
    engine: Any

    def pieces(
        self, part: FileRange, piece_bytes: int
    ) -> Iterator[tuple[int, dict[str, pa.Array]]]:
        view = open_npy(part.path, engine=self.engine)
        now = view.shape[:1], (view.dtype, view.shape[1:])
        _check_same(part.path, ((part.file_rows,), (self.dtype, self.row_shape)), now)
        row_bytes = self.dtype.itemsize * int(np.prod(self.row_shape))
        yield from _pieces_of(view, part, row_bytes, piece_bytes)


def _pieces_of(
    view: Any, part: FileRange, row_bytes: int, piece_bytes: int
) -> Iterator[tuple[int, dict[str, pa.Array]]]:
    step = max(1, piece_bytes // max(1, row_bytes))
    for start in range(part.start, part.stop, step):
        stop = min(start + step, part.stop)
        yield stop - start, {"data": _as_arrow(view.read(slice(start, stop)))}


def plan_beton(paths: Any, options: dict[str, Any]) -> PlannedRows:
    paths = located(paths)
    files, sizes, first = [], [], None
    for path in [paths] if isinstance(paths, str) else paths:
        beton = Beton(path, **options)
        fields = beton.fields
        first = first or (path, fields)
        if fields != first[1]:
            raise ValueError(
                f"the datasets must have the same fields: {path} has {_described(fields)}, but "
                f"{first[0]} has {_described(first[1])}; read them as two datasets"
            )
        files.append((path, len(beton)))
        sizes.append(beton.sample_bytes())
    if first is None:
        raise ValueError("paths is an empty list: name at least one .beton file")
    form = options["images"], options["resize"]
    kinds = {name: _FieldKind.of(name, about, *form) for name, about in first[1].items()}
    kept = {name: kind for name, kind in kinds.items() if kind is not None}
    columns = {name: kind.type for name, kind in kept.items()}
    names = {name: kind.kind for name, kind in kept.items()}
    reader = _BetonReader(options, names, first[1])
    ends = np.cumsum(np.concatenate(sizes), dtype=np.uint64)
    return PlannedRows(FileRows(files), reader, columns, bytes_up_to=ends)


@dataclass
class _BetonReader(RowReader):
    options: dict[str, Any]
    # The kind of each column, by its name.
    kinds: dict[str, str]
    fields: dict[str, Any]
    # Differs for each plan, so that a worker which was used before opens a file again that was replaced.
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def pieces(
        self, part: FileRange, piece_bytes: int
    ) -> Iterator[tuple[int, dict[str, pa.Array]]]:
        beton = self._opened(part.path)
        _check_same(part.path, (part.file_rows, self.fields), (len(beton), beton.fields))
        sizes = beton.sample_bytes(range(part.start, part.stop))
        for start, stop in _bounded(sizes, piece_bytes):
            values = beton.read_batch(range(part.start + start, part.start + stop))
            columns = {
                name: _field_column(name, kind, values[name]) for name, kind in self.kinds.items()
            }
            yield stop - start, columns

    def _opened(self, path: str) -> Beton:
        """Returns the dataset at `path`. A worker keeps the last one, because opening reads the metadata of all
        samples."""
        key = pickle.dumps((self.token, path))
        if key not in _last_beton:
            beton = Beton(path, **self.options)
            _last_beton.clear()
            _last_beton[key] = beton
        return _last_beton[key]


_last_beton: dict[bytes, Beton] = {}


def _bounded(
    sizes: np.ndarray[Any, np.dtype[np.uint64]], bytes_max: int
) -> Iterator[tuple[int, int]]:
    """Cuts items into ranges of at most `bytes_max`, or one item."""
    start, total = 0, 0
    for at, size in enumerate(int(size) for size in sizes):
        if at > start and total + size > bytes_max:
            yield start, at
            start, total = at, 0
        total += size
    if start < len(sizes):
        yield start, len(sizes)


@dataclass(frozen=True)
class _FieldKind:
    """How the values of a field become an Arrow column."""

    kind: str
    type: pa.DataType

    @staticmethod
    def of(name: str, about: dict[str, Any], images: str, resize: Any) -> _FieldKind | None:
        """Returns the kind of a field, or None if the field is left out."""
        kind = about["kind"]
        if kind == "custom":
            if about["dtype"].names is None:
                return None  # the caller gave only the number of its bytes, to ignore it
            raise ValueError(
                f"the field {name!r} has a type of its own, and there is no Arrow type for it; leave it "
                f"out with fields={{{name!r}: {about['dtype'].itemsize}}}"
            )
        if kind == "image":
            if resize is not None:
                return _FieldKind("array", _arrow_type(np.dtype(np.uint8), (*resize, 3)))
            if images == "stored":
                return _FieldKind("stored image", pa.binary())
            example = ArrowVariableShapedTensorArray.from_numpy([np.zeros((1, 1, 3), np.uint8)])
            return _FieldKind("image", example.type)
        if kind in ("array", "tensor"):
            return _FieldKind("array", _arrow_type(about["dtype"], about["shape"], f"field {name}"))
        plain = {
            "int": pa.int64(),
            "float": pa.float64(),
            "bytes": pa.binary(),
            "json": pa.string(),
        }
        return _FieldKind(kind if kind in ("bytes", "json") else "array", plain[kind])


def _field_column(name: str, kind: str, values: Any) -> pa.Array:
    if kind == "array":
        return _as_arrow(values)
    if kind == "image":
        return ArrowVariableShapedTensorArray.from_numpy(values)
    if kind == "json":
        return pa.array([json.dumps(value, ensure_ascii=False) for value in values], pa.string())
    if kind == "stored image" and any(value.ndim == 3 for value in values):
        raise ValueError(
            f'field {name!r}: images="stored" delivers the bytes of JPEGs, but an image is stored as '
            f'pixels; pass images="decoded"'
        )
    return pa.array([value.tobytes() for value in values], pa.binary())


def _arrow_type(dtype: np.dtype[Any], shape: tuple[int, ...], place: str = "") -> pa.DataType:
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise ValueError(
            f"{place}: Ray's tensors cannot have values of {dtype}, only bool, integers and floats of 16 to "
            f"64 bits; read the file with ringmain.open_npy or ringmain.Beton in a function of map_batches"
        )
    return _as_arrow(np.zeros((1, *shape), dtype)).type


def _as_arrow(values: np.ndarray[Any, Any]) -> pa.Array:
    """Returns numbers or tensors as an Arrow array over the same memory. Only bool, which Arrow packs, and
    big-endian values are copied."""
    values = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
    return pa.array(values) if values.ndim == 1 else ArrowTensorArray.from_numpy(values)


def row_ids(first_id: int, rows: int) -> pa.Array:
    return pa.array(np.arange(first_id, first_id + rows, dtype=np.uint64))


def _check_same(path: str, planned: Any, found: Any) -> None:
    if planned != found:
        raise ValueError(
            f"{path}: the file has changed since the dataset was made: it had {planned} and has {found}; "
            f"make the dataset again"
        )


def located(paths: Any) -> str | list[str]:
    """Returns one path or several, absolute because the workers may have another working directory. URLs
    stay as they are."""
    if _is_path(paths):
        return _absolute(paths)
    if isinstance(paths, (set, frozenset)):
        raise TypeError(
            "paths is a set, which has no order, but the numbers of rows depend on the order of the "
            "files; pass sorted(paths)"
        )
    if not isinstance(paths, Iterable):
        raise TypeError(f"paths must be a path or a list of paths, not {type(paths).__name__}")
    found = []
    for path in paths:
        if not _is_path(path):
            raise TypeError(
                f"paths must be a path or a list of paths, not a list of {type(path).__name__}"
            )
        found.append(_absolute(path))
    return found


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, bytes, os.PathLike))


def _absolute(path: Any) -> str:
    text = os.fsdecode(path)
    return text if "://" in text else os.path.abspath(text)


def _listed(path: str, extension: str, engine: Any) -> list[str]:
    """Returns the files of a folder with this extension, in the byte order of their names. Any other path or URL is
    returned as it is."""
    found = _files_of_folder(path, extension, engine)
    if found is None:
        return [path]
    if not found:
        raise ValueError(f"{path}: the folder has no *.{extension} files")
    return found


def _described(fields: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} ({' '.join(str(part) for part in about.values())})"
        for name, about in fields.items()
    )
