"""Progress bars, for programs that have tqdm."""

from __future__ import annotations

from typing import Any


def bar(total: int, unit: str) -> Any:
    """Returns a bar of tqdm, or None if tqdm is not installed."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(total=total, unit=f" {unit}", dynamic_ncols=True)
