"""A map-style torch dataset over the rows of shards."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset
from torch.utils.data._utils import collate

from ._ringmain import ContiguousMemmap, ShardSource, open_raw, read_many
from ._row_ranges import SHARD_ROWS_AT, FileRows
from ._slots import Batch


class Row(NamedTuple):
    """A row, and its id."""

    row: torch.Tensor
    row_id: int


class _Rows(list[Row]):
    """Rows that were read together, and the batch that they are parts of."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(map(Row, batch.rows, batch.row_ids.tolist()))
        self.batch = batch


def _collate(batch: Sequence[Row], *, collate_fn_map: Any = None) -> Batch:
    """Returns rows that were read together as the batch that they are, without a copy."""
    if isinstance(batch, _Rows):
        return batch.batch
    return Batch(torch.stack([row.row for row in batch]), torch.tensor([row.row_id for row in batch]))


collate.default_collate_fn_map[Row] = _collate


class ShardRows(Dataset[Row]):
    """The rows of shards, by their ids: `rows[id]` is `(row, row_id)`.

    A DataLoader reads the rows of a batch together, as one batch of reads, and delivers `(rows, row_ids)`. Its
    samplers and its workers work as with any other dataset that has a length. For whole epochs in the order of
    Ringmain, a `ShardDataset` reads ahead.

    paths: the shards, as for ringmain.ShardSource.
    engine: an Engine, or the name of a backend.
    """

    def __init__(self, paths: Any, *, engine: Any = None) -> None:
        super().__init__()
        source = ShardSource(paths, engine=engine, prefetch_bytes=0)
        self._rows, self._width, self._engine = FileRows(source.files), source.width, engine
        self._shards = self._opened()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shards": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._rows.files:
            paths = [path for path, _ in self._rows.files]
            found = ShardSource(paths, engine=self._engine, prefetch_bytes=0)
            if (found.files, found.width) != (self._rows.files, self._width):
                raise ValueError(
                    f"the shards have {sum(rows for _, rows in found.files)} rows of {found.width} columns now, but "
                    f"{self!r} was made for others: make another one in every process"
                )
        self._shards = self._opened()

    def _opened(self) -> list[ContiguousMemmap]:
        """Opens the shards, whose headers were checked."""
        return [
            open_raw(path, np.float32, (rows, self._width), SHARD_ROWS_AT, engine=self._engine)
            for path, rows in self._rows.files
        ]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row_id: int) -> Row:
        return self.__getitems__([row_id])[0]

    def __getitems__(self, row_ids: Sequence[int]) -> list[Row]:
        """Reads several rows as one batch of reads. A DataLoader calls this for each batch."""
        ids = [self._known(row_id) for row_id in row_ids]
        if not ids:
            return []
        rows = read_many([self._view(row_id) for row_id in ids], stack=True)
        return _Rows(Batch(torch.from_numpy(rows), torch.tensor(ids)))

    def __repr__(self) -> str:
        return f"ShardRows({len(self)} rows of {self._width} columns)"

    def _known(self, row_id: int) -> int:
        found = index(row_id)
        found = found + len(self) if found < 0 else found
        if not 0 <= found < len(self):
            raise IndexError(f"cannot get row {row_id}: the shards have {len(self)} rows")
        return found

    def _view(self, row_id: int) -> ContiguousMemmap:
        shard, row = self._rows.place(row_id)
        view: ContiguousMemmap = self._shards[shard][row]
        return view
