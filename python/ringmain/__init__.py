"""Feeds ML loaders from local files as fast as the device delivers, with flat memory."""

from . import _refusals
from ._ringmain import ContiguousMemmap, Engine, open_npy, open_raw, probe, read_many

_refusals.install(ContiguousMemmap)

__all__ = ["ContiguousMemmap", "Engine", "open_npy", "open_raw", "probe", "read_many"]
