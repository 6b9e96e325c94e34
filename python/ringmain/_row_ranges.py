"""Cuts the rows of several files into tasks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise

# Where the rows of a shard begin; docs/formats.md has the header.
SHARD_ROWS_AT = 32


@dataclass(frozen=True)
class FileRange:
    """Consecutive rows of one file."""

    path: str
    # The number of rows that the file had when it was planned.
    file_rows: int
    start: int
    stop: int
    # The number of the row `start` over all files.
    first_id: int


class FileRows:
    """The rows of an ordered list of files, numbered from 0 over all files."""

    def __init__(self, files: Iterable[tuple[str, int]]) -> None:
        self.files = [(path, rows) for path, rows in files if rows > 0]
        self._ends = list(accumulate((rows for _, rows in self.files), initial=0))

    def __len__(self) -> int:
        return self._ends[-1]

    def place(self, row: int) -> tuple[int, int]:
        """Returns the number of the file that holds a row, and the place of the row in it."""
        at = bisect_right(self._ends, row) - 1
        return at, row - self._ends[at]

    def ranges(self, start: int, stop: int) -> list[FileRange]:
        """Returns the ranges of the files that hold the rows from `start` up to `stop`."""
        found = []
        at, _ = self.place(start)
        while start < stop:
            path, rows = self.files[at]
            before = self._ends[at]
            end = min(stop, self._ends[at + 1])
            found.append(FileRange(path, rows, start - before, end - before, start))
            start, at = end, at + 1
        return found


def even_cuts(rows: int, tasks: int) -> list[tuple[int, int]]:
    """Returns the rows of each task, as (start, stop). Their numbers differ by at most one, and no task is
    empty."""
    tasks = min(tasks, rows)
    return list(pairwise(rows * task // tasks for task in range(tasks + 1))) if tasks else []
