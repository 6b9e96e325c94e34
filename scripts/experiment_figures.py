"""Prints the figures of an experiment that docs/experiments.md names, from the run.json of its plan, as a table
with medians and ranges. Needs only Python's standard library.

python3 scripts/experiment_figures.py NAME RUN.json

NAME is the name of the plan: bench-harness/plans/NAME.toml.
"""

import json
import statistics
import sys

MIB = 1 << 20


class Run:
    """The valid cells of a run."""

    def __init__(self, cells):
        self.cells = [cell for cell in cells if cell["valid"]]

    def values(self, figure, backend, **wanted):
        """Returns a figure of each repetition, in order. `wanted` names the workload, the cache state and settings."""
        found = {}
        for cell in self.cells:
            known = {"workload": cell["workload"], "cache": cell["cache"], **cell["setting"]}
            if cell["backend"] == backend and all(known.get(name) == value for name, value in wanted.items()):
                found[cell["repetition"]] = figure(cell)
        return found

    def ratio(self, ours, theirs, figure=None):
        """Compares two sides, each `(backend, wanted)`, within each repetition."""
        figure = figure or rate
        (a, of_a), (b, of_b) = ours, theirs
        above, below = self.values(figure, a, **of_a), self.values(figure, b, **of_b)
        return [above[at] / below[at] for at in sorted(above.keys() & below.keys()) if below[at]]


def rate(cell):
    return cell["throughput_bytes_per_s"]


def grown_mib(cell):
    parts = cell["rss_anon_bytes"], cell["rss_file_bytes"]
    return sum(part["peak"] - part["start"] for part in parts) / MIB


def pss_grown_mib(cell):
    return (cell["pss_bytes"]["peak"] - cell["pss_bytes"]["start"]) / MIB


def hard_fault_us(cell):
    """The time that the first epoch takes longer than the second, which has no hard faults, for each fault."""
    first, second = cell["epochs"][:2]
    faults = first["faults"]["major"] - second["faults"]["major"]
    return (first["seconds"] - second["seconds"]) / faults * 1e6 if faults > 0 else float("nan")


def faults_of(epoch, kind):
    return lambda cell: cell["epochs"][epoch]["faults"][kind]


def faults_a_read(cell):
    return cell["faults"]["major"] / cell["reads"]


def epoch_rate(epoch):
    return lambda cell: cell["epochs"][epoch]["throughput_bytes_per_s"] / 1e6


def epoch_device_share(epoch):
    return lambda cell: cell["epochs"][epoch]["device_bytes"] / cell["epochs"][epoch]["bytes"]


def device_share(cell):
    return cell["device_bytes"] / cell["bytes"]


def dtlb_misses(cell):
    return float("nan") if cell["dtlb_misses"] is None else cell["dtlb_misses"] / cell["reads"]


def latency_us(cell):
    return cell["latency_ns"]["p50"] / 1000


def views(run):
    for processes in (None, 2):
        name = f"{processes} processes" if processes else "one process"
        wanted = {"processes": processes}
        for backend in ("mmap", "mmap+release", "pread", "uring", "auto"):
            yield f"{name}, {backend}: RSS growth, MiB", run.values(grown_mib, backend, **wanted).values()
            if processes:
                yield f"{name}, {backend}: PSS growth, MiB", run.values(pss_grown_mib, backend, **wanted).values()
            if backend != "mmap":
                speeds = run.ratio((backend, wanted), ("mmap", wanted))
                yield f"{name}, {backend} / mmap: speed of both epochs", speeds


def page_faults(run):
    for backend in ("mmap", "mmap+random"):
        warm = {"cache": "warm"}
        yield f"{backend}, warm: soft faults in epoch 1", run.values(faults_of(0, "minor"), backend, **warm).values()
        yield f"{backend}, warm: soft faults in epoch 2", run.values(faults_of(1, "minor"), backend, **warm).values()
    for backend in ("mmap", "mmap+random"):
        cold = {"cache": "cold"}
        yield f"{backend}, cold: a hard fault, µs", run.values(hard_fault_us, backend, **cold).values()
        yield f"{backend}, cold: hard faults in epoch 1", run.values(faults_of(0, "major"), backend, **cold).values()
        yield f"{backend}, cold: hard faults in epoch 2", run.values(faults_of(1, "major"), backend, **cold).values()
    one_read = run.values(lambda cell: cell["epochs"][0]["seconds"] / cell["epochs"][0]["bytes"] * 4096e6, "pread+random", cache="cold")
    yield "pread+random, cold: a read of 4 KiB, µs", one_read.values()


def advice(run):
    for workload in ("seq", "rand"):
        for backend in ("mmap", "pread"):
            for policy in ("sequential", "random"):
                for batch in (1, 32):
                    wanted = {"workload": workload, "batch": batch}
                    sides = (f"{backend}+{policy}", wanted), (backend, wanted)
                    yield f"{workload} 64 KiB × {batch}: {backend}+{policy} / {backend}", run.ratio(*sides)
    for backend in ("mmap+random", "pread+random"):
        sides = (backend, {"workload": "rand", "batch": 32}), (backend, {"workload": "rand", "batch": 1})
        yield f"WILLNEED: rand, {backend}, batches of 32 / single reads", run.ratio(*sides)


def huge_pages(run):
    for workload in ("rand", "seq"):
        wanted = {"workload": workload}
        yield f"{workload} 4 KiB: mmap+huge / mmap", run.ratio(("mmap+huge", wanted), ("mmap", wanted))
        for backend in ("mmap", "mmap+huge"):
            faults = run.values(faults_of(0, "minor"), backend, **wanted)
            yield f"{workload} 4 KiB: {backend}, soft faults in epoch 1", faults.values()
            yield f"{workload} 4 KiB: {backend}, dTLB misses a read", run.values(dtlb_misses, backend, **wanted).values()


def reading_ahead(run):
    for backend in ("mmap", "pread", "direct", "uring"):
        for window in (8 * MIB, 128 * MIB):
            sides = (backend, {"window_bytes": window}), (backend, {"window_bytes": 0})
            yield f"{backend}: a window of {window // MIB} MiB / none", run.ratio(*sides)


def process_cache(run):
    for backend in ("pread", "direct", "uring"):
        sides = (backend, {"variant": "quasi-random-pages"}), (backend, {"variant": "quasi-random"})
        yield f"{backend}: whole pages kept by the process / single samples, same order", run.ratio(*sides)
    best = ("uring", {"variant": "random"})
    pages = ("pread", {"variant": "quasi-random-pages"})
    yield "uring, single samples, random / pread, whole pages, quasi-random", run.ratio(best, pages)
    yield "mmap: OS cache with WILLNEED / plain, random", run.ratio(("mmap", {"variant": "random-os-cache"}), ("mmap", {"variant": "random"}))


def alignment(run):
    for backend in ("mmap", "pread", "direct", "uring"):
        for batch in (1, 256):
            sides = (backend, {"workload": "samples-aligned", "batch": batch}), (backend, {"workload": "samples", "batch": batch})
            yield f"{backend}, batches of {batch}: aligned / packed, speed", run.ratio(*sides)
            if batch == 1:
                yield f"{backend}, one sample: aligned / packed, median latency", run.ratio(*sides, figure=latency_us)
            yield f"{backend}, batches of {batch}: aligned / packed, bytes from the device", run.ratio(*sides, figure=device_share)


def small_alignment(run):
    """Each sample is one read, so faults and bytes divided by reads are those of a sample."""
    places = (("samples-sectors", "512"), ("samples-aligned", "4096"))
    for backend in ("mmap+random", "pread+random", "direct", "uring"):
        for workload, place in (("samples", "packed"), *places):
            one = {"workload": workload, "batch": 1}
            yield f"{backend}, one sample, {place}: bytes from the device / bytes used", run.values(device_share, backend, **one).values()
            if backend == "mmap+random":
                yield f"{backend}, one sample, {place}: hard faults", run.values(faults_a_read, backend, **one).values()
        for workload, place in places:
            for batch in (1, 256):
                sides = (backend, {"workload": workload, "batch": batch}), (backend, {"workload": "samples", "batch": batch})
                yield f"{backend}, batches of {batch}: {place} / packed, speed", run.ratio(*sides)
                if batch == 1:
                    yield f"{backend}, one sample: {place} / packed, median latency", run.ratio(*sides, figure=latency_us)


def little_memory(run):
    for variant in ("sequential", "shuffled"):
        for backend in ("mmap", "pread", "uring", "auto"):
            wanted = {"variant": variant}
            for epoch in range(3):
                of_epoch = epoch_rate(epoch)
                yield f"{variant}, {backend}: epoch {epoch + 1}, MB/s", run.values(of_epoch, backend, **wanted).values()
            again = run.values(epoch_device_share(2), backend, **wanted)
            yield f"{variant}, {backend}: bytes from the device in epoch 3 / bytes used", again.values()


FIGURES = {
    "what-does-alignment-of-small-samples-gain": small_alignment,
    "does-data-that-fits-into-memory-stay": little_memory,
    "what-if-data-exceeds-memory": little_memory,
    "do-views-accumulate-memory": views,
    "what-do-page-faults-cost": page_faults,
    "what-does-access-advice-gain": advice,
    "what-do-huge-pages-gain": huge_pages,
    "what-does-reading-ahead-gain": reading_ahead,
    "what-does-a-process-cache-gain": process_cache,
    "what-does-sample-alignment-gain": alignment,
}


def show(value):
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in FIGURES:
        sys.exit(f"usage: experiment_figures.py NAME RUN.json, where NAME is one of {', '.join(FIGURES)}")
    name, path = sys.argv[1:]
    with open(path) as file:
        cells = json.load(file)["cells"]
    invalid = sum(not cell["valid"] for cell in cells)
    print("| figure | median | range | repetitions |")
    print("|---|---:|---:|---:|")
    for figure, values in FIGURES[name](Run(cells)):
        known = [value for value in values if value == value]
        if known:
            middle, low, high = statistics.median(known), min(known), max(known)
            print(f"| {figure} | {show(middle)} | {show(low)} to {show(high)} | {len(known)} |")
        else:
            print(f"| {figure} | not measured | | 0 |")
    if invalid:
        print(f"\n{invalid} of {len(cells)} cells are invalid and not counted; run.json has the reasons.")


if __name__ == "__main__":
    main()
