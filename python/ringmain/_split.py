"""Which part of an epoch is whose, where ranks have workers."""


def part(rank: int, world: int, worker: int, workers: int) -> tuple[int, int]:
    """The rank and world of one worker among all workers of all ranks."""
    if not 0 <= rank < world:
        raise ValueError(f"rank {rank} of {world}: ranks count from 0 to below the world")
    if not 0 <= worker < workers:
        raise ValueError(f"worker {worker} of {workers}: workers count from 0")
    return rank * workers + worker, world * workers


def share(batches: int, worker: int, workers: int, lengths: list[int] | None = None) -> int:
    """How many of a loader's first batches came from one worker.

    A loader asks its workers in turn, and passes over those that have ended. `lengths` are the
    batches that each worker has; without, as if none had ended.
    """
    if lengths is None or batches <= workers * min(lengths):
        return max(0, (batches - worker + workers - 1) // workers)
    taken = [min(lengths)] * workers
    left = batches - sum(taken)
    while left > 0 and taken != lengths:
        for at in range(workers):
            if left > 0 and taken[at] < lengths[at]:
                taken[at] += 1
                left -= 1
    return taken[worker]
