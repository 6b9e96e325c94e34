"""Feeds ML loaders from files and object stores as fast as the device delivers, with flat memory.

The modules `ringmain.ray`, `ringmain.safetensors` and `ringmain.torch` are imported when they are first used.
"""

from . import _refusals
from ._bench import BenchResult, bench
from ._mapped_weights import MappedWeights, WeightCache
from ._place import JobPlace, job_place
from ._ringmain import (
    Beton,
    BetonEpoch,
    BetonWriter,
    ContiguousMemmap,
    Engine,
    ShardSource,
    ShardWriter,
    __version__,
    open_npy,
    open_raw,
    probe,
    read_many,
)
from .exca import open_exca

_refusals.install(ContiguousMemmap.__base__)

__all__ = [
    "BenchResult",
    "Beton",
    "BetonEpoch",
    "BetonWriter",
    "ContiguousMemmap",
    "Engine",
    "JobPlace",
    "MappedWeights",
    "ShardSource",
    "ShardWriter",
    "WeightCache",
    "__version__",
    "bench",
    "job_place",
    "open_exca",
    "open_npy",
    "open_raw",
    "probe",
    "read_many",
]


def __getattr__(name):
    # Importing torch or Ray takes seconds, and they need not be installed.
    if name in ("ray", "safetensors", "torch"):
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    from importlib.util import find_spec

    # help() gets every name in this list, so it must not contain a module that cannot be imported.
    needs = {"ray": ("ray", "pandas", "pyarrow"), "safetensors": (), "torch": ("torch",)}
    modules = [name for name, packages in needs.items() if all(map(find_spec, packages))]
    return sorted({*globals(), *modules})
