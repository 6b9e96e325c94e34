#!/usr/bin/env python3
"""Computes what the design costs on many machines: the tables of docs/scaling.md.

    scripts/scaling.py                        prints the tables
    scripts/scaling.py --update FILE          writes the tables into a page, between its markers
    scripts/scaling.py --measure FOLDER       measures epochs with 1, 2 and 4 processes on this machine, for VALIDATION

It needs nothing but Python, except --measure, which needs the Python package ringmain. Nothing is random,
so the same script always prints the same tables.
"""

import argparse
import functools
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
GB, TB, PB = 10**9, 10**12, 10**15

# --- Constants, each with its source ------------------------------------------------------------------------------

# https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html
PREFIX_GETS_PER_SECOND = 5500
FIRST_BYTE_SECONDS = 0.1  # "roughly 100-200 milliseconds"
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance-design-patterns.html
REQUEST_BYTES_PER_SECOND = 87e6  # "one concurrent request for each 85-90 MB/s"
# https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html
KEYS_PER_LIST = 1000
# https://aws.amazon.com/s3/pricing/ (S3 Standard, us-east-1)
DOLLARS_PER_GET = 0.0004 / 1000
DOLLARS_PER_GB_BETWEEN_REGIONS = 0.02
# https://arxiv.org/abs/2407.21783, table 5: 419 unexpected interruptions in 54 days on 16,384 processors
PROCESSOR_HOURS_PER_FAILURE = 54 * 24 * 16384 / 419

# object-store/src/remote/options.rs, object-store/src/disk_cache/options.rs, engine/src/shards/row_batch_reader.rs
PART_BYTES = 8 * MIB
GAP_BYTES = 64 * KIB
REQUESTS_MAX = 64
IN_FLIGHT_BYTES = 128 * MIB
STALL_SECONDS = 30.0
HEDGE_TIMES_SLOWER, HEDGE_WAIT_MIN_SECONDS = 3.0, 0.05
CACHE_BLOCK_BYTES = 4 * MIB
GROUP_BYTES = 2 * MIB

# Assumptions. Change them to see what your job would do.
READER_BYTES_PER_SECOND = 250e6  # what the model of one reader consumes
READERS_PER_NODE = 8
NODE_CACHE_BYTES = 4 * TB
SAMPLE_BYTES = 128 * KIB
SHARD_BYTES = GIB
SHARE = 256  # samples of one reader in a global batch
# Amazon publishes no tail of its latencies. It advises to send a GET again after 2 s, and the slowest 1 % of requests of
# one size: https://docs.aws.amazon.com/whitepapers/latest/s3-optimizing-performance-best-practices/timeouts-and-retries-for-latency-sensitive-applications.html
# So these two are assumed, and the table `tails` shows how much depends on them.
LATENCY_P99_SECONDS = 0.5
STALLED_REQUESTS = 1e-5  # the share of requests that get no answer until they are given up
TAILS = [(p99, stalled) for p99 in (0.25, 0.5, 2.0) for stalled in (1e-6, 1e-5, 1e-4)]
CHECKPOINT_SECONDS = 1800.0
RESTART_SECONDS = 300.0

# Measured with `cargo bench -p ringmain-object-store --bench far_store`: MB/s by the size of batches.
FAR_STORE = {"1 MiB": 15.6, "16 MiB": 71.3, "64 MiB": 275.4}
# Measured with `scripts/bench-micro.sh 'shares of a billion rows'`: the nanoseconds of an item of the own share without
# nodes, and of an item of the global batch with nodes.
SPLIT_NANOSECONDS = {"rows": (16, 22), "blocks": (0.23, 2)}
# Measured with `scripts/scaling.py --measure FOLDER`.
VALIDATION = {
    "in order, cold": {
        "bytes": 2147483648,
        "seconds": {1: 0.552, 2: 0.559, 4: 0.567},
        "limit_bytes_per_second": 3624601473,
    },
    "in order, warm": {
        "bytes": 2147483648,
        "seconds": {1: 0.109, 2: 0.079, 4: 0.085},
        "limit_bytes_per_second": 37173084862,
    },
    "random rows, one at a time, cold": {
        "bytes": 134217728,
        "seconds": {1: 1.853, 2: 1.29, 4: 1.054},
        "limit_bytes_per_second": 377861480,
    },
}

READERS = (1, 8, 64, 512, 4096, 10_000)
DATA = (TB, 100 * TB, PB)


def nodes_of(readers):
    return math.ceil(readers / READERS_PER_NODE)


# --- Orders, as docs/formats.md specifies them --------------------------------------------------------------------

WORD = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(x):
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & WORD
    return x ^ x >> 31


class Permutation:
    """A bijection of 0..n for each seed and epoch."""

    def __init__(self, count, seed, epoch):
        self.count, self.half = count, 1
        while 1 << 2 * self.half < count:
            self.half += 1
        state, self.keys = mix(seed & WORD) ^ mix((epoch + GOLDEN) & WORD), []
        for _ in range(8):
            state = (state + GOLDEN) & WORD
            self.keys.append(mix(state))

    def at(self, position):
        mask = (1 << self.half) - 1
        while True:
            left, right = position >> self.half, position & mask
            for key in self.keys:
                left, right = right, left ^ (mix((right + key) & WORD) & mask)
            position = left << self.half | right
            if position < self.count:
                return position


def in_order(count, seed, epoch):
    return lambda position: position


def by_rows(count, seed, epoch):
    return Permutation(count, seed, epoch).at


def by_blocks(block_items):
    """Blocks of consecutive items in random order. `count` must be a multiple of `block_items`."""

    def order(count, seed, epoch):
        blocks = Permutation(count // block_items, seed, epoch)

        def at(position):
            block, skipped = divmod(position, block_items)
            return blocks.at(block) * block_items + skipped

        return at

    return order


def by_pages(page_items, open_pages):
    """The items of `open_pages` random pages at a time, in random order. All pages are full."""

    def order(count, seed, epoch):
        pages = Permutation(count // page_items, seed, epoch)
        size = page_items * open_pages

        def at(position):
            group, place = divmod(position, size)
            items = min(size, count - group * size)
            inside = Permutation(items, mix((seed ^ mix(group + 1)) & WORD), epoch).at(place)
            slot, item = divmod(inside, page_items)
            return pages.at(group * open_pages + slot) * page_items + item

        return at

    return order


# --- Requests and money -------------------------------------------------------------------------------------------


def money(dollars):
    if dollars >= 100:
        return f"${dollars:,.0f}"
    return f"${dollars:.2f}" if dollars >= 0.01 else "< $0.01"


def amount(value):
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:.3g}"


def size(value):
    return f"{value / PB:.3g} PB" if value >= PB else f"{value / TB:.3g} TB"


def duration(seconds):
    for limit, unit in ((2 * 86400, "days"), (2 * 3600, "h"), (120, "min")):
        if seconds >= limit:
            return f"{seconds / {'days': 86400, 'h': 3600, 'min': 60}[unit]:.3g} {unit}"
    if seconds < 0.001:
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


REQUEST_SIZES = (
    ("in order or by blocks, batches of 8 MiB or more", PART_BYTES),
    ("the same, smaller batches (2 MiB are read together)", GROUP_BYTES),
    (f"rows of {SAMPLE_BYTES // KIB} KiB in random order", SAMPLE_BYTES),
)


def costs():
    rows = []
    for name, request_bytes in REQUEST_SIZES:
        cells = [f"{amount(data / request_bytes)}, {money(data / request_bytes * DOLLARS_PER_GET)}" for data in DATA]
        rows.append([name, *cells])
    return ["requests of an epoch, and their price", *map(size, DATA)], rows


def rates():
    rows = []
    for readers in READERS:
        bytes_per_second = readers * READER_BYTES_PER_SECOND
        gets = [bytes_per_second / request_bytes for _, request_bytes in REQUEST_SIZES]
        cells = [f"{amount(get)}/s, {math.ceil(get / PREFIX_GETS_PER_SECOND):,}" for get in gets]
        rows.append([f"{readers:,}", f"{amount(bytes_per_second)}B/s", *cells])
    heads = [f"GET of {name}, prefixes" for name in ("8 MiB", "2 MiB", f"{SAMPLE_BYTES // KIB} KiB")]
    return ["readers", "bytes", *heads], rows


# --- The disk cache -----------------------------------------------------------------------------------------------


def fetched_by_nodes(nodes, rows_of_block):
    """How often a block is fetched in the first epoch if its rows go to random nodes, each with a cache of its own:
    the expected number of nodes that get at least one of them."""
    return nodes * (1 - (1 - 1 / nodes) ** rows_of_block)


def kept(items_of_node):
    """The share of a global batch that goes to the nodes that it prefers, if each node has room for this many items and
    prefers a random number of them with that mean: E[min(X, R)] / R for X of Poisson's distribution."""
    mean = items_of_node
    return 1 - math.exp(-mean + mean * math.log(mean) - math.lgamma(mean + 1))


def cache():
    rows = []
    rows_of_block = CACHE_BLOCK_BYTES // SAMPLE_BYTES
    rows_of_node = READERS_PER_NODE * SHARE
    for data in DATA:
        for readers in (8, 512, 10_000):
            nodes = nodes_of(readers)
            blocks_kept = kept(rows_of_node / rows_of_block) if nodes > 1 else 1
            rows_kept = kept(rows_of_node) if nodes > 1 else 1
            anywhere = min(1, NODE_CACHE_BYTES / data)
            own = blocks_kept * min(1, nodes * NODE_CACHE_BYTES / data) + (1 - blocks_kept) * anywhere
            rows.append([
                size(data), f"{readers:,}", f"{nodes:,}", f"{anywhere:.1%}", f"{own:.1%}",
                money(data * (1 - anywhere) / CACHE_BLOCK_BYTES * DOLLARS_PER_GET),
                money(data * (1 - own) / CACHE_BLOCK_BYTES * DOLLARS_PER_GET),
                f"{fetched_by_nodes(nodes, rows_of_block):.1f} ×", f"{1 + rows_of_block * (1 - rows_kept):.1f} ×",
            ])  # fmt: skip
    return [
        "data", "readers", "nodes", "hits", 'hits, `nodes="auto"`', "price of a later epoch", '`nodes="auto"`',
        "bytes of the first epoch, random rows", '`nodes="auto"`',
    ], rows  # fmt: skip


# --- Starting -----------------------------------------------------------------------------------------------------


def opening_seconds(shards, at_once=1):
    """A HEAD and a GET of the header for each shard, after a list of their names."""
    lists = math.ceil(shards / KEYS_PER_LIST)
    return (lists + 2 * math.ceil(shards / at_once)) * FIRST_BYTE_SECONDS


def start():
    rows = []
    for data in DATA:
        shards = math.ceil(data / SHARD_BYTES)
        first = fetch_seconds(PART_BYTES)
        for readers in (1, 512, 10_000):
            requests = readers * 2 * shards
            rows.append([
                size(data), f"{shards:,}", f"{readers:,}",
                duration(opening_seconds(shards) + first),
                f"{amount(requests)}, {money(requests * DOLLARS_PER_GET)}",
                duration(requests / PREFIX_GETS_PER_SECOND),
                duration(opening_seconds(shards, REQUESTS_MAX) + first),
                duration(FIRST_BYTE_SECONDS + 64 * shards / REQUEST_BYTES_PER_SECOND + first),
            ])  # fmt: skip
    return [
        "data", "shards", "readers", "first batch, now", "requests of all readers", "they take, with one prefix",
        f"first batch, {REQUESTS_MAX} opened at once", "first batch, one index",
    ], rows  # fmt: skip


def fetch_seconds(read_bytes):
    """How long a read takes whose requests are all in flight."""
    return FIRST_BYTE_SECONDS + min(read_bytes, PART_BYTES) / REQUEST_BYTES_PER_SECOND


def reader_rate(read_bytes):
    """The bytes per second of a source that has one read of this size in flight at a time."""
    return read_bytes / fetch_seconds(read_bytes)


def reading():
    wanted = READER_BYTES_PER_SECOND
    rows = []
    for name, read_bytes in (("1 MiB", GROUP_BYTES), ("16 MiB", 16 * MIB), ("64 MiB", 64 * MIB)):
        rate, measured = reader_rate(read_bytes), FAR_STORE[name]
        cells = [f"{read_bytes // MIB} MiB", f"{rate / 1e6:.0f} MB/s", f"{measured:.0f} MB/s"]
        rows.append([name, *cells, f"{math.ceil(wanted / rate)}"])
    head = ["batches", "read together", "model", "measured", f"sources for {wanted / 1e6:.0f} MB/s"]
    return head, rows


# --- Shuffling ----------------------------------------------------------------------------------------------------

ROWS = 8 * MIB  # of 128 KiB: 1 TiB
CLASSES = 1000
READERS_OF_JOB = 64
GLOBAL_BATCHES = 2


def requests_of(items):
    """The requests for these items: near ones share a request."""
    count, begin, end = 0, None, None
    for item in sorted(items):
        at = item * SAMPLE_BYTES
        if end is None or at - end > GAP_BYTES or at + SAMPLE_BYTES - begin > PART_BYTES:
            count, begin = count + 1, at
        end = at + SAMPLE_BYTES
    return count


def shuffling():
    megabyte_rows = MIB // SAMPLE_BYTES
    orders = [
        ("in order", in_order),
        ("blocks of 128 MiB", by_blocks(128 * megabyte_rows)),
        ("blocks of 8 MiB", by_blocks(8 * megabyte_rows)),
        ("blocks of 4 MiB", by_blocks(4 * megabyte_rows)),
        ("pages of 8 MiB, 8 open", by_pages(8 * megabyte_rows, 8)),
        ("pages of 8 MiB, 256 open", by_pages(8 * megabyte_rows, 256)),
        ("rows", by_rows),
    ]
    return (
        [
            "order", "requests of a batch", "MiB a request", "MiB between neighbours", "classes in a batch",
            f"classes in the batches of {READERS_OF_JOB} readers",
        ],  # fmt: skip
        [[name, *in_batches(order)] for name, order in orders],
    )


def in_batches(order):
    """For a reader whose batches have SHARE samples: requests, MiB a request, the median distance of neighbours in the
    files, and classes. Then the classes in a global batch of READERS_OF_JOB readers. The data is sorted by class."""
    at = order(ROWS, 7, 1)
    requests, distances, classes, all_classes = 0, [], 0, 0
    for number in range(GLOBAL_BATCHES):
        first = ROWS // GLOBAL_BATCHES * number
        items = [at(first + place) for place in range(SHARE * READERS_OF_JOB)]
        all_classes += len(set(map(class_of, items)))
        for begin in range(0, len(items), SHARE):
            share = sorted(items[begin : begin + SHARE])
            requests += requests_of(share)
            classes += len(set(map(class_of, share)))
            distances += [(after - before - 1) * SAMPLE_BYTES / MIB for before, after in pairwise(share)]
    batches = GLOBAL_BATCHES * READERS_OF_JOB
    mean = requests / batches
    return [
        f"{mean:,.0f}", f"{SHARE * SAMPLE_BYTES / MIB / mean:.3g}", f"{median(distances):,.0f}",
        f"{classes / batches:,.0f}", f"{all_classes / GLOBAL_BATCHES:,.0f}",
    ]  # fmt: skip


def class_of(item):
    return item * CLASSES // ROWS


# --- The split of a global batch ------------------------------------------------------------------------------------


def split():
    """What a rank computes to find its share of a step, and which part of the time of the step that is."""
    rows = []
    step_seconds = SHARE * SAMPLE_BYTES / READER_BYTES_PER_SECOND
    for readers in READERS:
        cells = [f"{readers:,}"]
        for own_ns, batch_ns in SPLIT_NANOSECONDS.values():
            for nanoseconds in (own_ns * SHARE, batch_ns * SHARE * readers):
                cells.append(f"{duration(nanoseconds / 1e9)}, {nanoseconds / 1e9 / step_seconds:.2%}")
        rows.append(cells)
    kinds = [text for order in SPLIT_NANOSECONDS for text in (order, f'{order}, `nodes="auto"`')]
    return ["readers", *kinds], rows


# --- Slow and dying nodes -----------------------------------------------------------------------------------------


REQUESTS_OF_STEP = 8  # of 8 MiB: each reader reads 64 MiB in a step


def answer_probability(seconds, p99=LATENCY_P99_SECONDS, stalled=STALLED_REQUESTS):
    """The probability that a request is answered by then: lognormal around the usual time, except for requests that
    get no answer."""
    if seconds <= 0:
        return 0.0
    sigma = math.log(p99 / FIRST_BYTE_SECONDS) / 2.3263
    usual = 0.5 * math.erfc(-math.log(seconds / FIRST_BYTE_SECONDS) / sigma / math.sqrt(2))
    if seconds >= STALL_SECONDS + FIRST_BYTE_SECONDS:
        return usual * (1 - stalled) + stalled
    return usual * (1 - stalled)


def hedged_probability(seconds, p99=LATENCY_P99_SECONDS, stalled=STALLED_REQUESTS):
    wait = hedge_after(p99, stalled)
    late = 1 - answer_probability(seconds, p99, stalled)
    return 1 - late * (1 - answer_probability(seconds - wait, p99, stalled) if seconds > wait else 1)


@functools.cache
def hedge_after(p99=LATENCY_P99_SECONDS, stalled=STALLED_REQUESTS):
    low, high = 0.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if answer_probability(middle, p99, stalled) < 0.95 else (low, middle)
    return max(HEDGE_WAIT_MIN_SECONDS, HEDGE_TIMES_SLOWER * high)


def expected_longest(probability, requests):
    """The expected time until all of these requests are answered: the integral of 1 - F(t)^n."""
    total, at = 0.0, 0.0
    while at < STALL_SECONDS + 2:
        step = 0.002 if at < 4 else 0.05
        total += (1 - probability(at + step / 2) ** requests) * step
        at += step
    return total


def stragglers():
    rows = []
    for readers in READERS:
        requests = readers * REQUESTS_OF_STEP
        plain = expected_longest(answer_probability, requests)
        hedged = expected_longest(hedged_probability, requests)
        stalls = 1 - (1 - STALLED_REQUESTS) ** requests
        rows.append([f"{readers:,}", f"{plain:.2f} s", f"{hedged:.2f} s", f"{stalls:.2%}"])
    extra = 1 - answer_probability(hedge_after())
    head = ["readers", "slowest of a step", f"with hedging (+{extra:.2%} requests)", "steps with a stalled request"]
    return head, rows


def tails():
    """The slowest request of a step with other tails than the one that is assumed."""
    rows = []
    for p99, stalled in TAILS:
        cells = [f"{p99:g} s", f"1 in {1 / stalled:,.0f}"]
        for readers in (512, READERS[-1]):
            for probability in (answer_probability, hedged_probability):
                bound = functools.partial(probability, p99=p99, stalled=stalled)
                cells.append(f"{expected_longest(bound, readers * REQUESTS_OF_STEP):.2f} s")
        rows.append(cells)
    head = ["99th percentile", "no answer", "512 readers", "hedged", f"{READERS[-1]:,} readers", "hedged"]
    return head, rows


def chart():
    """The slowest request of a step over the number of readers, on a logarithmic scale."""
    lines = []
    for readers in READERS:
        for mark, probability in (("·", answer_probability), ("h", hedged_probability)):
            seconds = expected_longest(probability, readers * REQUESTS_OF_STEP)
            bar = mark * round(12 * math.log2(seconds / FIRST_BYTE_SECONDS))
            lines.append(f"{readers:>6,} {bar} {seconds:.2f} s" if mark == "·" else f"{'':>6} {bar} {seconds:.2f} s")
    return "```text\n" + "\n".join(lines) + "\n```\n"


def slow_nodes():
    rows = []
    for headroom in (1.0, 1.5, 2.0, 4.0):
        steps = [max(1.0, 1 / (speed * headroom)) for speed in (0.9, 0.5, 0.1)]
        rows.append([f"{headroom:g} ×", *(f"{step:.2f} ×" for step in steps)])
    head = ["a node can read, of what it needs", "one node at 90 %", "at 50 %", "at 10 %"]
    return head, rows


def failures():
    rows = []
    shards = math.ceil(100 * TB / SHARD_BYTES)
    for readers in READERS[1:]:
        between = PROCESSOR_HOURS_PER_FAILURE / readers * 3600
        lost = CHECKPOINT_SECONDS / 2 + RESTART_SECONDS
        opening = opening_seconds(shards)
        cells = [f"{lost_share(lost + extra, between):.2%}" for extra in (0, opening_seconds(shards, 64), opening)]
        rows.append([f"{readers:,}", duration(between), duration(lost), *cells])
    return [
        "readers", "time between failures", "lost by a failure", "time lost",
        "and 100 TB opened 64 at once", "and opened one by one",
    ], rows  # fmt: skip


def lost_share(lost, between):
    return lost / (lost + between)


# --- This machine -------------------------------------------------------------------------------------------------


def validation():
    rows = []
    for name, found in VALIDATION.items():
        one = found["seconds"][1]
        for processes, measured in found["seconds"].items():
            predicted = epoch_seconds(found["bytes"], one, found["limit_bytes_per_second"], processes)
            ratio = f"{predicted / measured:.2f}"
            rows.append([name, str(processes), f"{predicted:.2f} s", f"{measured:.2f} s", ratio])
    return ["epoch", "processes", "model", "measured", "model / measured"], rows


def epoch_seconds(data_bytes, one_seconds, limit_bytes_per_second, processes):
    """Processes are as fast together as each alone, up to the limit of what they share."""
    return max(one_seconds / processes, data_bytes / limit_bytes_per_second)


# Each program says that it is ready, waits for a line, reads, and prints how many bytes it has read in which time.
PART_READER = """
import json, sys, time, ringmain
folder, rank, world, options = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
engine, every = ringmain.Engine(**options.pop("engine")), options.pop("every")
rows = range(0, ringmain.ShardSource(folder).total_rows, every) if every > 1 else None
source = ringmain.ShardSource(folder, engine=engine, rank=rank, world=world, rows=rows, **options)
print("ready", flush=True)
sys.stdin.readline()
begun = time.monotonic()
total = sum(rows.nbytes for rows, _ in source)
print(total, time.monotonic() - begun, flush=True)
"""
WHOLE_READER = """
import json, sys, time, numpy, ringmain
from pathlib import Path
folder, rank, world, options = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
engine = ringmain.Engine(**options["engine"])
out = numpy.ones(32 << 20, numpy.uint8)
views = [ringmain.open_raw(path, "u1", offset=32, engine=engine) for path in sorted(Path(folder).iterdir())]
print("ready", flush=True)
sys.stdin.readline()
begun, total = time.monotonic(), 0
for view in views[rank::world]:
    for at in range(0, len(view), len(out)):
        part = view[at : at + len(out)]
        total += part.read(out=out[: len(part)]).nbytes
print(total, time.monotonic() - begun, flush=True)
"""
AUTO = {"backend": "auto", "warmth": "leave"}
IN_ORDER = {"engine": AUTO, "every": 1}
# Every 16th row, so that no two of them are neighbours.
RANDOM = {"engine": AUTO, "every": 16, "order": "shuffled"}
ONE_BY_ONE = {**RANDOM, "engine": {"backend": "pread"}, "batch_rows": 1, "prefetch_bytes": 0}
# The name of an epoch; the state of the page cache; how the epoch is read; how the limit is measured.
EPOCHS = [
    ("in order, cold", "cold", (PART_READER, IN_ORDER), (WHOLE_READER, IN_ORDER)),
    ("in order, warm", "warm", (PART_READER, IN_ORDER), (WHOLE_READER, IN_ORDER)),
    ("random rows, one at a time, cold", "cold", (PART_READER, ONE_BY_ONE), (PART_READER, RANDOM)),
]


def measure(folder):
    """Prints the seconds of an epoch with 1, 2 and 4 processes that each read their part, and the bytes per second of
    the fastest reads of such data on all processors. They take turns for five rounds; the numbers are medians."""
    import numpy as np
    import ringmain

    rows, width, shards = 1 << 16, 1024, 8
    found = {}
    with tempfile.TemporaryDirectory(dir=folder) as corpus:
        for number in range(shards):
            with ringmain.ShardWriter(f"{corpus}/{number}.shard", width) as shard:
                shard.write(np.ones((rows, width), np.float32))
        for name, cache_state, reader, fastest in EPOCHS:
            data_bytes = shards * rows * width * 4 // reader[1]["every"]
            seconds, limits = {1: [], 2: [], 4: []}, []
            for _ in range(5):
                for processes, times in seconds.items():
                    times.append(together(*reader, corpus, processes, cache_state, data_bytes))
                limits.append(together(*fastest, corpus, os.cpu_count(), cache_state, data_bytes))
            found[name] = {
                "bytes": data_bytes,
                "seconds": {processes: round(median(times), 3) for processes, times in seconds.items()},
                "limit_bytes_per_second": round(data_bytes / median(limits)),
            }
    print(json.dumps(found, indent=4))


def together(program, options, corpus, processes, cache_state, data_bytes):
    """The seconds until the last of several processes has read its part."""
    for path in Path(corpus).iterdir():
        prepare(path, cache_state)
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, corpus, str(rank), str(processes), json.dumps(options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for rank in range(processes)
    ]  # fmt: skip
    for process in started:
        if process.stdout.readline() != "ready\n":
            raise SystemExit("a reading process has failed")
    for process in started:
        process.stdin.write("\n")
        process.stdin.flush()
    found = [process.communicate()[0].split() for process in started]
    if sum(int(read) for read, _ in found) != data_bytes:
        raise SystemExit("the processes have not read all bytes")
    return max(float(seconds) for _, seconds in found)


def prepare(path, cache_state):
    with open(path, "rb") as file:
        if cache_state == "cold":
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        else:
            while file.read(16 * MIB):
                pass


def median(values):
    return sorted(values)[len(values) // 2]


# --- Pages --------------------------------------------------------------------------------------------------------

TABLES = {
    "costs": costs,
    "rates": rates,
    "cache": cache,
    "start": start,
    "reading": reading,
    "shuffling": shuffling,
    "split": split,
    "stragglers": stragglers,
    "tails": tails,
    "chart": chart,
    "slow nodes": slow_nodes,
    "failures": failures,
    "validation": validation,
}


@functools.cache
def shown(name):
    made = TABLES[name]()
    return made if isinstance(made, str) else markdown(*made)


def markdown(head, rows):
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def updated(page):
    """Returns the page with each table between its markers computed again."""
    for name in TABLES:
        found = re.compile(rf"(<!-- table: {re.escape(name)} -->\n).*?(<!-- end -->\n)", re.DOTALL)
        table = shown(name)
        page, count = found.subn(lambda match, table=table: f"{match[1]}\n{table}\n{match[2]}", page)
        if count != 1:
            raise SystemExit(f"the page has {count} places for the table {name!r}; it must have one")
    return page


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--update", metavar="FILE", type=Path, help="write the tables into a page")
    parser.add_argument("--measure", metavar="FOLDER", type=Path, help="measure epochs on this machine, in this folder")
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure)
    elif arguments.update:
        arguments.update.write_text(updated(arguments.update.read_text()))
    else:
        for name in TABLES:
            print(f"{name}\n\n{shown(name)}")


if __name__ == "__main__":
    main()
