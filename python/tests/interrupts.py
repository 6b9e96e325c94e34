"""Sends Ctrl-C to a call that is waiting."""

import os
import signal
import threading
import time

# A call that takes longer than this was not ended by Ctrl-C, even on a busy machine.
SECONDS_MAX = 120


def raises_soon(call, has_begun=lambda: True):
    """Asserts that Ctrl-C ends a long call with KeyboardInterrupt and no other error."""

    def interrupt():
        while not has_begun():
            time.sleep(0.01)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    # A process in the background of a shell may ignore Ctrl-C.
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
