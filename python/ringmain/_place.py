"""Finds the place of this process in a job: its rank, the number of ranks, its node, and the number of nodes."""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

from ._ringmain import _nodes_of, _nodes_of_environment, _place_of_environment


class JobPlace(NamedTuple):
    """The place of a process in a job.

    nodes: the number of nodes; 1 if the launcher does not say how many ranks a node has. None if the nodes have
        different numbers of ranks, or if the ranks are not numbered node after node: the ranks then could not
        agree about the number.
    """

    rank: int
    world: int
    node: int = 0
    nodes: int | None = 1

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.world}"


def job_place(
    rank: int | None = None, world: int | None = None, *, group: Any = None
) -> JobPlace:
    """Returns the place of this process in a job.

    It is given, or else that of `torch.distributed`, of Ray Train, or of the environment variables of torchrun
    (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and GROUP_RANK); without any of these, it is rank 0 of 1. If
    several of them exist and differ, it is a ValueError that names two of them.

    rank, world: the place that is given. Give both or neither.
    group: a process group of `torch.distributed`. The place is then that in this group, which need not be the
        whole job: for example, the group of the processes that read different data, if others share the data.

    Processes that are started without a launcher and given the same rank cannot find out: each reads the same
    items.
    """
    if (rank is None) != (world is None):
        raise ValueError("give rank and world together, or leave both out")
    found = _found(rank, world, group)
    for (source, place), (other_source, other) in zip(found, found[1:]):
        if place[:2] != other[:2]:
            raise ValueError(
                f"{source} is {place}, but {other_source} is {other}: every process must have its own rank; "
                f"leave out rank and world, give those of the launcher, or give the `group` of "
                f"torch.distributed in which they are numbered"
            )
    if not found:
        return JobPlace(0, 1)
    # A place that is given has no node.
    return max((place for _, place in found), key=lambda place: place.nodes or float("inf"))


def nodes_of(place: JobPlace) -> int:
    """Returns the number of nodes for `nodes="auto"`."""
    if place.nodes is not None:
        return place.nodes
    # The source of the place raises an error with the reason.
    of_ray = _nodes_of_ray()
    return _nodes_of_environment() if of_ray is None else of_ray


def moved(place: JobPlace, group: Any) -> JobPlace | None:
    """Returns the place of this process now, if it has a launcher and is no longer at `place`.

    In a worker that was spawned under Lightning, nothing knows the place: WORLD_SIZE alone is set, and
    torch.distributed is not initialised.
    """
    if group is None and _is_half_set() and _distributed() is None:
        return None
    found = _found(None, None, group)
    return found[0][1] if found and found[0][1][:2] != place[:2] else None


def _found(rank: int | None, world: int | None, group: Any) -> list[tuple[str, JobPlace]]:
    """Returns the places that are known, each with the name of its source."""
    found = []
    if rank is not None and world is not None:
        if not 0 <= rank < world:
            raise ValueError(
                f"rank {rank} of {world} does not exist: ranks are numbered from 0 to world - 1"
            )
        found.append(("the given place", JobPlace(rank, world)))
    if group is not None:
        return [*found, ("the place in the group of torch.distributed", _of_group(group))]
    sources = (
        ("the place in torch.distributed", _of_torch),
        ("the place in Ray Train", _of_ray),
        ("the place in the environment variables RANK and WORLD_SIZE", _of_environment),
    )
    for name, find in sources:
        if find is _of_environment and found and _is_half_set():
            continue
        place = find()
        if place is not None:
            found.append((name, place))
    return found


def _of_torch() -> JobPlace | None:
    return None if _distributed() is None else _of_group(None)


def _of_group(group: Any) -> JobPlace:
    distributed = _distributed()
    if distributed is None:
        raise ValueError("`group` needs torch.distributed, which is not initialised")
    rank, world = distributed.get_rank(group), distributed.get_world_size(group)
    if rank < 0:
        raise ValueError("this process is not in the `group` that was given")
    return JobPlace(rank, world)


def _distributed() -> Any:
    """Returns torch.distributed if it is initialised."""
    # Torch takes seconds to import; without it nothing is initialised.
    torch = sys.modules.get("torch")
    distributed = None if torch is None else getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def _of_ray() -> JobPlace | None:
    context = _context_of_ray()
    if context is None:
        return None
    rank, world = context.get_world_rank(), context.get_world_size()
    if rank is None or world is None:
        return None
    try:
        nodes = _nodes_of_ray()
    except ValueError:
        return JobPlace(rank, world, context.get_node_rank(), None)
    return JobPlace(rank, world) if nodes is None else JobPlace(rank, world, context.get_node_rank(), nodes)


def _nodes_of_ray() -> int | None:
    """Returns the number of nodes in Ray Train, `None` if it is not known, or an error if the ranks would not agree."""
    context = _context_of_ray()
    if context is None:
        return None
    place = (
        context.get_world_rank(), context.get_world_size(), context.get_node_rank(),
        context.get_local_rank(), context.get_local_world_size(),
    )  # fmt: skip
    return None if None in place else _nodes_of(*place)


def _context_of_ray() -> Any:
    """Returns the context of a training function of Ray, or `None` outside of one."""
    train = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        context = train.get_context()
        if _is_of_no_function(context):
            return None
        context.get_world_rank()
    except RuntimeError:
        return None
    return context


def _is_of_no_function(context: Any) -> bool:
    """Returns whether this is what the first version of Ray Train returns outside of a training function, instead of
    an error: a context of rank 0 of 1."""
    first, session = (sys.modules.get(f"ray.train.{name}") for name in ("context", "_internal.session"))
    if first is None or session is None or not isinstance(context, first.TrainContext):
        return False
    return session.get_session() is None


def _is_half_set() -> bool:
    """Returns whether only one of the variables is set. Lightning sets WORLD_SIZE alone and initialises
    torch.distributed, which knows the rank."""
    return bool(os.environ.get("RANK")) != bool(os.environ.get("WORLD_SIZE"))


def _of_environment() -> JobPlace | None:
    place = _place_of_environment()
    return None if place is None else JobPlace(*place)
