"""Feeds ML loaders from local files as fast as the device delivers, with flat memory."""

from . import _refusals
from ._ringmain import (
    Beton,
    BetonEpoch,
    BetonWriter,
    ContiguousMemmap,
    Engine,
    ShardSource,
    __version__,
    open_npy,
    open_raw,
    probe,
    read_many,
)

_refusals.install(ContiguousMemmap.__base__)

__all__ = [
    "Beton",
    "BetonEpoch",
    "BetonWriter",
    "ContiguousMemmap",
    "Engine",
    "ShardSource",
    "__version__",
    "open_npy",
    "open_raw",
    "probe",
    "read_many",
]
