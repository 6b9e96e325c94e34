"""Which part of an epoch is whose, where ranks have workers."""

from bisect import bisect_right


def part(rank: int, world: int, worker: int, workers: int) -> tuple[int, int]:
    """The rank and world of one worker among all workers of all ranks."""
    if not 0 <= rank < world:
        raise ValueError(f"rank {rank} of {world}: ranks count from 0 to below the world")
    if not 0 <= worker < workers:
        raise ValueError(f"worker {worker} of {workers}: workers count from 0")
    return rank * workers + worker, world * workers


def parts_left(batches: int, lengths: list[int]) -> list[tuple[int, int]]:
    """What each worker of a loader is to do after so many batches of an epoch were used.

    `lengths` are the batches of each part. A loader asks its workers in turn, beginning with the
    first, and passes over those that have ended. For each worker: its part, and how many batches of
    that were used. The first worker has the part whose turn it is, so that the batches come as they
    would have, and can be counted on.
    """

    def in_rounds(rounds: int) -> int:
        return sum(min(length, rounds) for length in lengths)

    rounds = bisect_right(range(max(lengths) + 1), batches, key=in_rounds) - 1
    asked = [at for at, length in enumerate(lengths) if length > rounds]
    in_turn = batches - in_rounds(rounds)
    used = [min(length, rounds) for length in lengths]
    for at in asked[:in_turn]:
        used[at] += 1
    order = asked[in_turn:] + asked[:in_turn]
    order = [at for at in order if used[at] < lengths[at]]
    ended = [at for at, length in enumerate(lengths) if used[at] == length]
    return [(at, used[at]) for at in order + ended]
