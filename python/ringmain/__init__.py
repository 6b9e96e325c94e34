"""Feeds ML loaders from local files as fast as the device delivers, with flat memory."""

from ._ringmain import ContiguousMemmap, Engine, open_npy, open_raw, probe, read_many

__all__ = ["ContiguousMemmap", "Engine", "open_npy", "open_raw", "probe", "read_many"]
