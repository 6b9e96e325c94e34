"""Ctrl-C while something waits."""

import os
import signal
import threading
import time

# What would go on for longer than this has not been ended, on however busy a machine.
SECONDS_MAX = 120


def raises_soon(call, has_begun=lambda: True):
    """Ctrl-C ends the call, which would take longer, by KeyboardInterrupt and no other error."""

    def interrupt():
        while not has_begun():
            time.sleep(0.01)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    # What runs in the background of a shell has it ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    start, found = time.monotonic(), None
    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        try:
            call()
        finally:
            thread.join()
    except BaseException as error:
        found = error
    finally:
        signal.signal(signal.SIGINT, before)
    assert type(found) is KeyboardInterrupt and found.__context__ is None, repr(found)
    assert time.monotonic() - start < SECONDS_MAX
