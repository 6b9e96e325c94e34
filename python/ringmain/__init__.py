"""Feeds ML loaders from local files as fast as the device delivers, with flat memory."""

from ._ringmain import Engine, probe

__all__ = ["Engine", "probe"]
