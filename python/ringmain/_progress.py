"""Progress bars, for programs that have tqdm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def bar(total: int, unit: str) -> Any:
    """Returns a bar of tqdm, or None if tqdm is not installed."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(total=total, unit=f" {unit}", dynamic_ncols=True)


@contextmanager
def counting(total: int, unit: str, progress: bool) -> Iterator[Callable[[int], Any] | None]:
    """Shows a bar if `progress` is true and tqdm is installed. Yields the function that moves it, or None."""
    shown = bar(total, unit) if progress else None
    if shown is None:
        yield None
        return
    try:
        yield shown.update
    finally:
        shown.close()
