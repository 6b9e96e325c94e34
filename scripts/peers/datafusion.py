"""Compares scans of parquet files through RingmainStore with the same scans through LocalFileSystem, cold and
warm, interleaved. The reader is that of DataFusion's scans; each measurement runs in its own process.

python datafusion.py PARQUET_SCAN FOLDER [ROUNDS]
"""

import statistics
import subprocess
import sys
from pathlib import Path

from page_cache import make_cold, make_warm

ROUNDS = 7
# The first columns that are read, of 16.
COLUMNS = [4, 16]
# A warm process scans this often. The first scan is left out: a program that runs queries has run one before.
WARM_SCANS = 6
STORES = ["ringmain", "local"]


def seconds_of(program, folder, store, columns, state):
    """Returns the seconds of a scan, and the sum of all values."""
    for path in sorted(folder.glob("*.parquet")):
        (make_cold if state == "cold" else make_warm)(path)
    scans = 1 if state == "cold" else WARM_SCANS
    command = [program, "scan", folder, store, str(columns), str(scans)]
    lines = subprocess.run(command, text=True, stdout=subprocess.PIPE, check=True).stdout.splitlines()
    seconds = [float(line.split()[0]) for line in lines]
    (total,) = {line.split()[1] for line in lines}
    return statistics.median(seconds[-1:] if state == "cold" else seconds[1:]), total


def compare(program, folder, columns, state, rounds):
    seconds, totals = {store: [] for store in STORES}, set()
    for number in range(rounds):
        # Each of them is the first one in every other round.
        for store in STORES if number % 2 else STORES[::-1]:
            taken, total = seconds_of(program, folder, store, columns, state)
            seconds[store].append(taken)
            totals.add(total)
    if len(totals) != 1:
        sys.exit(f"the stores delivered different values: {totals}")
    ours, theirs = seconds["ringmain"], seconds["local"]
    ratios = sorted(their / our for our, their in zip(ours, theirs))
    print(
        f"{state}, {columns:2} of 16 columns: RingmainStore {statistics.median(ours):.3f} s, LocalFileSystem "
        f"{statistics.median(theirs):.3f} s, ratio of rates {statistics.median(ratios):.2f} "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f})",
        flush=True,
    )


def main():
    program, folder = sys.argv[1], Path(sys.argv[2])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else ROUNDS
    size = sum(path.stat().st_size for path in folder.glob("*.parquet"))
    print(f"{size / 1e6:.0f} MB of parquet files, medians of {rounds} interleaved rounds")
    for state in ("cold", "warm"):
        for columns in COLUMNS:
            compare(program, folder, columns, state, rounds)


if __name__ == "__main__":
    main()
