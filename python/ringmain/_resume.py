"""A state from which a loop over a dataset continues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ._ringmain import _state_of_workers


def job_state(loader_state: dict[str, Any]) -> dict[str, Any]:
    """Returns the state of a job from the `state_dict()` of a StatefulDataLoader over a dataset with a
    `global_batch`. Any number of ranks and workers can load it with `dataset.load_state_dict`.

    It counts the batches that the loader has delivered. The loader must have `in_order=True`, the default.
    """
    snapshot = loader_state.get("_snapshot")
    if not isinstance(snapshot, dict):
        state = loader_state.get("dataset_state") or loader_state
        return _of_job(dict(state))
    workers = [
        worker["dataset_state"] for worker in snapshot.get("_worker_snapshots", {}).values()
    ]
    if not workers or any(state is None for state in workers):
        raise ValueError("this state of a StatefulDataLoader has no state of each worker")
    workers = [dict(state) for state in workers]
    if any("batches_done" not in state for state in workers):
        return _of_job(workers[0])
    job = _state_of_workers(workers)
    # A loader does not take a snapshot of its workers after every batch.
    return {**job, "batches_done": job["batches_done"] + loader_state.get("_steps_since_snapshot", 0)}


def _of_job(state: dict[str, Any]) -> dict[str, Any]:
    if "batches_done" not in state:
        raise ValueError(
            "this is not a state of a dataset with a global_batch: only such a state belongs to a whole job"
        )
    return state


@dataclass
class Resume:
    """A state that only the next iteration continues from."""

    state: dict[str, Any]
    epoch: int
    # The number of workers that must continue; any number continues with global batches.
    workers: int | None
    # For each worker: its part of the epoch, and how many batches of that part were used.
    parts: list[tuple[int, int]]
    # A number for the iteration that has used the state, then a flag for each worker of that iteration.
    uses: torch.Tensor

    def is_used(self) -> bool:
        return bool(self.uses.any())

    def is_left(self, info: Any) -> bool:
        """Returns whether this iteration can use the state: no earlier one has, nor this worker of this iteration."""
        iteration, flag = self._marks(info)
        return int(self.uses[0]) in (0, iteration) and not self.uses[flag]

    def use(self, info: Any) -> bool:
        """Marks the state as used by this iteration. Returns False if an earlier iteration used it, in
        this process or in its workers."""
        if not self.is_left(info):
            return False
        if self.workers not in (None, worker_of(info)[1]):
            taken_with = self.state.get("num_workers", 0)
            raise ValueError(
                f"the state was taken with num_workers={taken_with}, and the rows of its epoch are "
                f"split over that number; finish the epoch with it, and change it in the next epoch"
            )
        iteration, flag = self._marks(info)
        self.uses[0] = iteration
        self.uses[flag] = 1
        return True

    def _marks(self, info: Any) -> tuple[int, int]:
        """Returns the number of an iteration, and the place of the flag of its worker."""
        worker, _ = worker_of(info)
        # The seed of a worker is the seed of its iteration plus the number of the worker, so the
        # difference identifies the iteration. If a program sets the same seed for each epoch, the next
        # iteration looks the same, but the flags of its workers are already set.
        iteration = -1 if info is None else (info.seed - worker) % (1 << 62) + 1
        return iteration, 1 + worker % (len(self.uses) - 1)


def worker_of(info: Any) -> tuple[int, int]:
    """Returns the number of a worker and the number of workers, from what torch tells about them."""
    return (info.id, info.num_workers) if info is not None else (0, 1)
