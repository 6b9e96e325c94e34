"""Reads a histogram log and encoded histograms with PyPI's hdrhistogram; compares with what is
expected of them. Arguments: the log, the expectations as JSON."""

import json
import sys

from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader


def check(histogram, cell, where):
    where = f"{where} of {cell['backend']}"
    for name, found in (
        ("count", histogram.get_total_count()),
        ("max", histogram.get_max_value()),
    ):
        if found != cell[name]:
            sys.exit(f"{where}: {name} {found} instead of {cell[name]}")
    for percentile, values in cell["percentiles"].items():
        found = histogram.get_value_at_percentile(float(percentile))
        if found not in values:
            sys.exit(f"{where}: {percentile} % {found} instead of one of {values}")


log, expectations = sys.argv[1:]
with open(expectations, encoding="utf-8") as file:
    expected = json.load(file)

reader = HistogramLogReader(log, HdrHistogram(1, 60_000_000_000, 3))
for cell in expected["cells"]:
    check(HdrHistogram.decode(cell["encoded"]), cell, "cell")
    logged = reader.get_next_interval_histogram()
    if logged is None:
        sys.exit(f"the log ends before {cell['backend']}")
    check(logged, cell, "log")
    tag = logged.get_tag().split("/")
    if tag[0] != cell["backend"] or (tag[-1] == "invalid") == cell["valid"]:
        sys.exit(f"tag {tag} of {cell['backend']}")
if reader.get_next_interval_histogram() is not None:
    sys.exit("the log goes on")

merged = HdrHistogram(1, 60_000_000_000, 3)
for encoded in expected["merge"]:
    merged.add(HdrHistogram.decode(encoded))
check(merged, expected["merged"], "sum")
print(len(expected["cells"]), "histograms")
