"""Ctrl-C while something waits."""

import os
import signal
import threading
import time


def raises_soon(call, seconds=10):
    """Ctrl-C ends the call, which would take longer, by KeyboardInterrupt and no other error."""
    # What runs in the background of a shell has it ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    start, found = time.monotonic(), None
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        try:
            call()
        finally:
            timer.join()
    except BaseException as error:
        found = error
    finally:
        signal.signal(signal.SIGINT, before)
    assert type(found) is KeyboardInterrupt and found.__context__ is None, repr(found)
    assert time.monotonic() - start < seconds
