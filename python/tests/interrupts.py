"""Ctrl-C while something waits."""

import os
import signal
import threading
import time

import pytest


def raises_soon(call, seconds=10):
    """Ctrl-C ends the call, which would take much longer, by KeyboardInterrupt."""
    start = time.monotonic()
    # What runs in the background of a shell has it ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            call()
    finally:
        timer.cancel()
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - start < seconds
