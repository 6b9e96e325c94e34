"""Forwards names from ringmain.safetensors to the package safetensors."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def forwarding(module: str, names: list[str]) -> Callable[[str], Any]:
    """Returns the `__getattr__` for the module of ringmain that replaces `module` of the package.

    It forwards every public name to the package. If the package is not installed, a name in `names`
    raises an ImportError that says so, and any other name an AttributeError.
    """

    def get(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module {'ringmain.' + module!r} has no attribute {name!r}")
        try:
            theirs = importlib.import_module(module)
        except ImportError as error:
            if name not in names:
                raise AttributeError(
                    f"module {'ringmain.' + module!r} has no attribute {name!r}"
                ) from error
            raise ImportError(
                f"{name} is a function of the package safetensors, which could not be imported: "
                f"pip install safetensors"
            ) from error
        if not hasattr(theirs, name):
            raise AttributeError(f"module {'ringmain.' + module!r} has no attribute {name!r}")
        return getattr(theirs, name)

    return get
