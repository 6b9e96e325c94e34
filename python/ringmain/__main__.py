"""The ringmain command: `ringmain probe`, `ringmain bench`, and the rest of `ringmain --help`."""

import sys

from ._ringmain import _run_command


def main():
    program = [sys.executable, "-m", "ringmain"]
    sys.exit(_run_command(["ringmain", *sys.argv[1:]], program))


if __name__ == "__main__":
    main()
