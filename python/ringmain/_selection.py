"""NumPy's rules for indices with lists, masks and arrays, applied to an array in a file."""

from math import prod

import numpy as np


def plan(shape, strides, itemsize, key):
    """Returns which bytes a fancy key selects from a view with this shape and these strides in bytes.

    The result has four parts: the distance of each run of bytes from the first element of the view,
    the number of bytes in a run, the shape of the selection, and whether NumPy would return an element
    instead of an array.
    """
    parts = key if isinstance(key, tuple) else (key,)
    axes = _axes(_expand(parts, len(shape)), shape, strides)
    # The last axes form one run if they are selected whole and their elements follow each other in the
    # file.
    run = []
    while axes and isinstance(axes[-1], _Whole) and axes[-1].continues(prod(run) * itemsize):
        run.insert(0, axes.pop().length)
    groups = _groups(axes)
    lengths = [length for group in groups for length in group.shape]
    result = (*lengths, *run)
    is_element = result == () and not any(part is Ellipsis for part in parts)
    if 0 in result:
        return np.empty(0, np.int64), itemsize, result, is_element
    places, dims = np.zeros(1, np.int64), len(lengths)
    for group in groups:
        dims -= group.ndim
        places = places + group.reshape(group.shape + (1,) * dims)
    places = np.broadcast_to(places, lengths or (1,)).ravel()
    return places, prod(run) * itemsize, result, is_element


class _Whole:
    """An axis that is selected whole, in order, or a new axis of length 1."""

    def __init__(self, length, stride):
        self.length, self.stride = length, stride

    def continues(self, run_bytes):
        """Returns whether runs of this many bytes follow each other in the file along this axis. On an axis
        of length 1 there is only one run, so the answer is True."""
        return self.length == 1 or self.stride == run_bytes

    def distances(self):
        return np.arange(self.length) * self.stride


class _Some:
    """An axis from which a slice selects a part, or all elements in another order."""

    def __init__(self, taken, stride):
        self.taken, self.stride = taken, stride

    def distances(self):
        return np.asarray(self.taken, np.int64) * self.stride


class _Listed:
    """An axis whose elements are selected by a list of indices. The keys True and False also become a list,
    of length 1 or 0, which belongs to no axis."""

    def __init__(self, indices, stride):
        self.indices, self.stride = indices, stride


class _Gap:
    """The position of the ellipsis. It separates the lists on its two sides, even if it covers no
    axis."""


def _expand(parts, ndim):
    """Returns the parts with each mask replaced by one list per axis of the mask, and with a whole slice
    for each axis that the ellipsis covers. A mask without axes, True or False, becomes a list that belongs
    to no axis, of length 1 or 0."""
    expanded = []
    for part in parts:
        if part is None or part is Ellipsis or isinstance(part, slice):
            expanded.append(part)
            continue
        indices = np.asarray(part)
        if indices.size == 0 and not isinstance(part, np.ndarray):
            indices = indices.astype(np.intp)
        if indices.dtype == bool:
            expanded += zip(indices.nonzero(), indices.shape) if indices.ndim else [(None, int(indices))]
        elif indices.dtype.kind in "iu":
            expanded.append((indices, None))
        elif indices.dtype.kind == "U":
            raise IndexError(
                f"a view has no fields — use np.asarray(arr)[{part!r}] to read fields of a structured dtype."
            )
        else:
            raise IndexError("arrays used as indices must be of integer (or boolean) type")
    if sum(part is Ellipsis for part in expanded) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    used = sum(_uses_axis(part) for part in expanded)
    if used > ndim:
        raise IndexError(f"too many indices: {used} were given for a view of {ndim} axes")
    whole = [slice(None)] * (ndim - used)
    for at, part in enumerate(expanded):
        if part is Ellipsis:
            return expanded[: at + 1] + whole + expanded[at + 1 :]
    return expanded + whole


def _uses_axis(part):
    if isinstance(part, tuple):
        return part[0] is not None
    return part is not None and part is not Ellipsis


def _axes(parts, shape, strides):
    axes, axis = [], 0
    for part in parts:
        if part is Ellipsis:
            axes.append(_Gap())
            continue
        if part is None:
            axes.append(_Whole(1, 0))
            continue
        if not _uses_axis(part):
            axes.append(_Listed(np.zeros(part[1], np.int64), 0))
            continue
        length, stride = shape[axis], strides[axis]
        if isinstance(part, slice):
            taken = range(length)[part]
            axes.append(_Whole(length, stride) if taken == range(length) else _Some(taken, stride))
        else:
            indices, mask_length = part
            if mask_length not in (None, length):
                raise IndexError(
                    f"boolean index did not match indexed array along axis {axis}; size of axis is "
                    f"{length} but size of corresponding boolean axis is {mask_length}"
                )
            axes.append(_Listed(_resolve(indices, length, axis), stride))
        axis += 1
    return axes


def _resolve(indices, length, axis):
    """Returns the indices counted from the beginning. Raises IndexError if one is out of bounds."""
    indices = indices.astype(np.int64)
    wrong = indices[(indices < -length) | (indices >= length)]
    if wrong.size:
        raise IndexError(f"index {wrong.flat[0]} is out of bounds for axis {axis} with size {length}")
    return np.where(indices < 0, indices + length, indices)


def _groups(axes):
    """Returns the distances along the dimensions of the result. All lists are broadcast together into one
    group. The group takes the position of the lists, or comes first if other axes or the ellipsis are
    between the lists."""
    at = [place for place, axis in enumerate(axes) if isinstance(axis, _Listed)]
    try:
        listed = sum(axes[place].indices * axes[place].stride for place in at)
    except ValueError:
        shapes = " ".join(str(axes[place].indices.shape) for place in at)
        raise IndexError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {shapes}"
        ) from None
    groups = _distances(axes[: at[0]])
    others = _distances(axes[at[0] :])
    together = at[-1] - at[0] == len(at) - 1
    first, rest = ([], groups) if not together else (groups, [])
    return [*first, np.asarray(listed, np.int64), *rest, *others]


def _distances(axes):
    return [axis.distances() for axis in axes if isinstance(axis, (_Whole, _Some))]
