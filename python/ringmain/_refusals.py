"""Attributes of arrays that views do not have, and say so."""

import numpy as np


class _Refusal:
    """Stands for a method of np.ndarray on the class of views.

    A `__getattr__` would do as well, but be called whenever NumPy asks a view for what it need not
    have, twice for each `np.asarray`: several times the price of the read.
    """

    def __init__(self, name):
        self._name = name

    def __get__(self, instance, owner=None):
        raise AttributeError(
            f"ContiguousMemmap does not support '.{self._name}' directly — use "
            f"np.asarray(arr).{self._name} to read data first."
        )


def install(base):
    """Refuses every public attribute of arrays, on the base of views, which have some of them.

    Those of protocols (`__array_interface__`, `__int__`, …) are left out. Python and NumPy take one that
    is there for a promise: `int(arr)` would be an AttributeError, not a TypeError, and each
    `np.asarray` would pay for the two that NumPy asks for first.
    """
    for name in dir(np.ndarray):
        if not name.startswith("_"):
            setattr(base, name, _Refusal(name))
