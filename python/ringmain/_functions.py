"""NumPy functions that are called with views."""

import numpy as np

# These functions would call a ufunc on the view or reverse the view, and a view refuses both. So the view
# is read first. Other functions convert their arguments themselves, and functions that only rearrange axes
# return a view.
_READING = frozenset(
    {np.sum, np.prod, np.max, np.min, np.amax, np.amin, np.any, np.all, np.ptp, np.flip}
)


def call(view_type, function, types, args, kwargs):
    """Implements `__array_function__`: reads the views first, or passes them on to the function."""
    if not all(issubclass(kind, (view_type, np.ndarray)) for kind in types):
        return NotImplemented
    if function in _READING:

        def read(value):
            return np.asarray(value) if isinstance(value, view_type) else value

        return function(*map(read, args), **{name: read(value) for name, value in kwargs.items()})
    implementation = getattr(function, "_implementation", None)
    return NotImplemented if implementation is None else implementation(*args, **kwargs)
