"""Continues the part of a rank, which its workers have divided."""

from bisect import bisect_right


def parts_left(batches: int, lengths: list[int]) -> list[tuple[int, int]]:
    """Returns how a resumed loader continues after `batches` batches of an epoch were used.

    The result has an entry for each worker: its part of the epoch, and how many batches of that part
    were used. `lengths` are the numbers of batches of the parts.

    A loader asks its workers in turn, beginning with the first, and skips those that have ended. So the
    first worker gets the part whose turn is next. The batches then come in the original order, and a
    state of the resumed loader can count them again.
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
