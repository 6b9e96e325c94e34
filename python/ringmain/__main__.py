"""The ringmain command: `ringmain probe`, `ringmain bench`, and the rest of `ringmain --help`."""

import signal
import sys

from ._ringmain import _run_command


def main():
    # Python's handler only notes a Ctrl-C for when Python runs again, which is when the command is done.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    program = [sys.executable, "-m", "ringmain"]
    sys.exit(_run_command(["ringmain", *sys.argv[1:]], program))


if __name__ == "__main__":
    main()
