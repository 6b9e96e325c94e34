"""The thread that makes batches ahead of a loop."""

import threading

import pytest

from ringmain._ahead import Ahead


def test_a_loop_that_waits_ends_if_another_thread_stops_it():
    """The thread ended without an end marker, so the loop waited forever."""
    ahead = Ahead(lambda: iter(range(9)), 1)
    items = ahead._made.items
    assert items.get(timeout=300) == (0, None, False)  # the thread waits for room now, or is about to

    class StoppedMeanwhile:
        put = items.put

        def get(self):
            closing = threading.Thread(target=ahead.close)
            closing.start()
            closing.join(300)
            return items.get(block=False)

    ahead._made.items = StoppedMeanwhile()
    with pytest.raises(StopIteration):
        next(ahead)


def test_a_forked_child_takes_no_lock_of_a_loop():
    """Another thread may hold the lock at the fork, and then no thread of the child releases it."""
    ahead = Ahead(lambda: iter(range(9)), 10)
    # All items are made, so the thread uses none of this any more.
    made = ahead._made
    made._thread.join(300)
    made._process -= 1
    made.room = None
    made.stop()
