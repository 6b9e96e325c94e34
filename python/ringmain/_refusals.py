"""Error messages for the attributes of arrays that views do not have."""

import numpy as np


class _Refusal:
    """Raises an error that tells how to use an attribute of np.ndarray with a view.

    A `__getattr__` would do the same, but Python would also call it whenever NumPy looks for an
    optional attribute. That happens twice for each `np.asarray` and would take several times as long as
    the read.
    """

    def __init__(self, name):
        self._name = name

    def __get__(self, instance, owner=None):
        raise AttributeError(
            f"ContiguousMemmap does not support '.{self._name}' directly — use "
            f"np.asarray(arr).{self._name} to read data first."
        )


def install(base):
    """Puts a `_Refusal` on the base class of views for every public attribute of arrays.

    The class of views overrides the attributes that it supports. Attributes of protocols
    (`__array_interface__`, `__int__`, …) get no `_Refusal`, because Python and NumPy use a protocol
    whose attribute exists: `int(arr)` would raise an AttributeError instead of a TypeError, and each
    `np.asarray` would raise and catch two exceptions, because NumPy looks up `__array_struct__` and
    `__array_interface__` before `__array__`.
    """
    names = {name for name in dir(np.ndarray) if not name.startswith("_")}
    for name in names:
        setattr(base, name, _Refusal(name))

    def __dir__(self):
        """Returns the names of the attributes, without those that only raise an error."""
        refused = {name for name in names if not hasattr(type(self), name)}
        return [name for name in object.__dir__(self) if name not in refused]

    base.__dir__ = __dir__
