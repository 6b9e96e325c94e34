"""Functions of NumPy on views."""

import numpy as np

# They would call a ufunc on the view, or reverse it, which a view refuses. Other functions convert
# their arguments themselves, and those that only rearrange axes return a view.
_READING = frozenset(
    {np.sum, np.prod, np.max, np.min, np.amax, np.amin, np.any, np.all, np.ptp, np.flip}
)


def call(view_type, function, types, args, kwargs):
    """What `__array_function__` of views does: reads the views, or leaves them to the function."""
    if not all(issubclass(kind, (view_type, np.ndarray)) for kind in types):
        return NotImplemented
    if function in _READING:

        def read(value):
            return np.asarray(value) if isinstance(value, view_type) else value

        return function(*map(read, args), **{name: read(value) for name, value in kwargs.items()})
    implementation = getattr(function, "_implementation", None)
    return NotImplemented if implementation is None else implementation(*args, **kwargs)
