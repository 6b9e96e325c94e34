"""The ringmain command: `ringmain probe`, `ringmain bench`, and the rest of `ringmain --help`."""

import signal
import sys

from ._ringmain import _run_command


def main():
    # Python's own handler only records a Ctrl-C until Python code runs again. That would be after the
    # command has ended, so the default action of the system ends the process instead.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    program = [sys.executable, "-m", "ringmain"]
    sys.exit(_run_command(["ringmain", *sys.argv[1:]], program))


if __name__ == "__main__":
    main()
