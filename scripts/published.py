"""Compares what scripts/reproduce.sh has measured with the published figures (docs/results/published.toml).
Needs only Python's standard library, 3.11 or later.

python3 scripts/published.py parts                 prints the parts that measure figures
python3 scripts/published.py ratios RUN.json       prints the rates and ratios of a run of `ringmain bench`
python3 scripts/published.py table FOLDER PART...  prints the table from the outputs FOLDER/PART.txt
"""

import json
import re
import statistics
import sys
import tomllib
from pathlib import Path

PUBLISHED = Path(__file__).parent.parent / "docs/results/published.toml"
# A figure without a published range may differ by this share.
TOLERANCE = 0.25
# A published rate of the table "Every workload" may differ by this factor: repetitions of a fifth of a second do.
RATE_FACTOR = 2
# The groups of `ringmain bench` whose figures are published: workload, cache state, batch, variant.
GROUPS = {
    "mixed": ("mixed", "mixed", 32, None),
    "views-cold": ("views", "cold", 32, None),
    "views-warm": ("views", "warm", 32, None),
    "rand-single-cold": ("rand", "cold", 1, None),
    "rand-single-warm": ("rand", "warm", 1, None),
    "rand-cold": ("rand", "cold", 128, None),
    "rand-warm": ("rand", "warm", 128, None),
    "seq-cold": ("seq", "cold", 8, None),
    "seq-warm": ("seq", "warm", 8, None),
    "shards-cold": ("shards", "cold", 1024, "sequential"),
    "shards-warm": ("shards", "warm", 1024, "sequential"),
    "shards-shuffled-cold": ("shards", "cold", 1024, "shuffled"),
    "shards-shuffled-warm": ("shards", "warm", 1024, "shuffled"),
}


def published():
    with open(PUBLISHED, "rb") as file:
        return tomllib.load(file)


def figures():
    """Returns the published figures; each rate of the table "Every workload" is one too."""
    data = published()
    for rates in data["rates"]:
        group = rates["group"]
        for backend, value in rates.items():
            if backend not in ("group", "row"):
                yield {
                    "part": "workloads",
                    "about": f"{rates['row'].replace(' | ', ', ')}: {backend}",
                    "find": rf"^rate {group} {re.escape(backend)} +([\d.]+)$",
                    "value": value,
                    "unit": "GB/s",
                    "low": value / RATE_FACTOR,
                    "high": value * RATE_FACTOR,
                }
    yield from data["figure"]


def medians(cells, group):
    """Returns the median rate of each backend in a group."""
    rates = {}
    for cell in cells:
        setting = cell["setting"]
        found = cell["workload"], cell["cache"], setting.get("batch"), setting.get("variant")
        if cell["valid"] and found == group:
            rates.setdefault(cell["backend"], []).append(cell["throughput_bytes_per_s"])
    return {backend: statistics.median(values) for backend, values in rates.items()}


def ratios(path):
    """Prints the rate of each backend in each group in GB/s, `auto` divided by the best fixed backend, and `uring` by fio."""
    with open(path) as file:
        cells = json.load(file)["cells"]
    for name, group in GROUPS.items():
        rates = medians(cells, group)
        for backend, rate in rates.items():
            print(f"rate {name} {backend} {rate / 1e9:.4g}")
        fixed = [rate for backend, rate in rates.items() if backend != "auto" and not backend.startswith("fio:")]
        if "auto" in rates and fixed:
            print(f"ratio auto-{name} {rates['auto'] / max(fixed):.3f}")
    rates = medians(cells, GROUPS["rand-cold"])
    if "fio:io_uring" in rates and "uring" in rates:
        print(f"ratio fio-rand-4k-128 {rates['uring'] / rates['fio:io_uring']:.3f}")


def measured(figure, text):
    """Returns the value of a figure in the output of its part, or the median of several; None if it is not there."""
    if "row" in figure:
        pattern = rf"^\| {re.escape(figure['row'])} \|[^|]*\|[^|]*\| ([\d.]+) \|"
    else:
        pattern = figure["find"]
    found = [float(value) for value in re.findall(pattern, text, re.MULTILINE)]
    return statistics.median(found) if found else None


def bounds(figure):
    value = figure["value"]
    return figure.get("low", value * (1 - TOLERANCE)), figure.get("high", value * (1 + TOLERANCE))


def show(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def judge(figure, value):
    if value is None:
        return "not measured"
    low, high = bounds(figure)
    return "inside" if low <= value <= high else "outside, higher" if value > high else "outside, lower"


def table(folder, parts):
    """Prints a row for each figure of these parts, and how many are inside."""
    print("| figure | published | range | now | |")
    print("|---|---:|---:|---:|---|")
    counts = {}
    for figure in figures():
        if figure["part"] not in parts:
            continue
        output = folder / f"{figure['part']}.txt"
        value = measured(figure, output.read_text(errors="replace")) if output.exists() else None
        verdict = judge(figure, value)
        counts[verdict.split(",")[0]] = counts.get(verdict.split(",")[0], 0) + 1
        low, high = bounds(figure)
        unit = f" {figure['unit']}" if "unit" in figure else ""
        now = "–" if value is None else f"{value:g}{unit}"
        print(f"| {figure['about']} | {figure['value']:g}{unit} | {show(low)} to {show(high)} | {now} | {verdict} |")
    print("\n" + ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))


def main():
    match sys.argv[1:]:
        case ["parts"]:
            print("\n".join(published()["commands"]))
        case ["ratios", path]:
            ratios(path)
        case ["table", folder, *parts] if parts:
            table(Path(folder), parts)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
