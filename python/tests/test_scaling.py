"""scripts/scaling.py: its tables are in docs/scaling.md, its constants are those of the code, and its orders are those of
the engine."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
from test_shards import write_shard

import ringmain

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def scaling():
    spec = importlib.util.spec_from_file_location("scaling", ROOT / "scripts/scaling.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_tables_of_the_script(scaling):
    page = (ROOT / "docs/scaling.md").read_text()
    found = scaling.updated(page)
    assert found == page, "run scripts/scaling.py --update docs/scaling.md"
    assert scaling.updated(page.replace("| readers |", "| others |")) == page


def test_a_page_without_a_table_is_refused(scaling):
    page = (ROOT / "docs/scaling.md").read_text()
    with pytest.raises(SystemExit, match="0 places for the table 'costs'"):
        scaling.updated(page.replace("table: costs", "table: coasts"))


def product(text):
    """The value of `8 << 20` or `2`, as Rust has it."""
    value, _, shift = text.replace("_", "").partition("<<")
    return int(value) << int(shift or 0)


@pytest.mark.parametrize(
    ("name", "file", "pattern"),
    [
        ("PART_BYTES", "object-store/src/remote/options.rs", r"part_bytes: (\d+ << \d+),"),
        ("GAP_BYTES", "object-store/src/remote/options.rs", r"gap_bytes: (\d+ << \d+),"),
        ("REQUESTS_MAX", "object-store/src/remote/options.rs", r"impl Default for RemoteOptions .*?requests_max: (\d+),"),
        ("STALL_SECONDS", "object-store/src/remote/options.rs", r"stall_timeout: Duration::from_secs\((\d+)\)"),
        ("HEDGE_TIMES_SLOWER", "object-store/src/remote/options.rs", r"times_slower: (\d+)\.0, wait_min"),
        ("CACHE_BLOCK_BYTES", "object-store/src/disk_cache/options.rs", r"block_bytes: (\d+ << \d+),\n"),
        ("GROUP_BYTES", "engine/src/shards/row_batch_reader.rs", r"GROUP_BYTES_MAX: usize = (\d+ << \d+);"),
    ],
)
def test_constants_are_those_of_the_code(scaling, name, file, pattern):
    assert product(re.search(pattern, (ROOT / file).read_text(), re.DOTALL)[1]) == getattr(scaling, name)


def test_the_wait_of_a_hedge_is_that_of_the_code(scaling):
    options = (ROOT / "object-store/src/remote/options.rs").read_text()
    milliseconds = re.search(r"times_slower: 3\.0, wait_min: Duration::from_millis\((\d+)\)", options)[1]
    assert int(milliseconds) / 1000 == scaling.HEDGE_WAIT_MIN_SECONDS


@pytest.mark.parametrize(("order", "block"), [("shuffled", None), ("blocks", 8)])
def test_orders_are_those_of_the_engine(scaling, tmp_path, order, block):
    rows = 1000
    write_shard(tmp_path / "a.shard", np.zeros((rows, 1)))
    source = ringmain.ShardSource(tmp_path, order=order, block_rows=block, seed=7, epoch=3)
    made = scaling.by_rows if block is None else scaling.by_blocks(block)
    expected = np.concatenate([row_ids for _, row_ids in source])
    at = made(rows, 7, 3)
    assert [at(position) for position in range(rows)] == expected.tolist()


def test_the_order_of_pages_is_that_of_the_engine(scaling):
    pinned = re.search(r"let pinned = \[(.*?)\];", (ROOT / "engine/src/epochs/pages.rs").read_text())[1]
    at = scaling.by_pages(3, 2)(12, 7, 3)
    assert [at(position) for position in range(12)] == [int(item) for item in pinned.split(",")]


def test_near_items_share_a_request(scaling):
    part = scaling.PART_BYTES // scaling.SAMPLE_BYTES
    assert scaling.requests_of(range(part)) == 1
    assert scaling.requests_of(range(part + 1)) == 2
    assert scaling.requests_of([5, 3, 4]) == 1
    assert scaling.requests_of([0, 2, 4]) == 3, "the gap of a sample is larger than 64 KiB"


def test_a_block_is_fetched_by_each_node_that_needs_a_part_of_it(scaling):
    assert scaling.fetched_by_nodes(1, 32) == 1
    assert scaling.fetched_by_nodes(1000, 1) == pytest.approx(1)
    assert scaling.fetched_by_nodes(2, 2) == pytest.approx(1.5)
    assert 31 < scaling.fetched_by_nodes(1000, 32) < 32


def test_a_node_with_room_for_many_items_gets_nearly_all_that_it_prefers(scaling):
    assert scaling.kept(1) == pytest.approx(1 - np.exp(-1))
    counts = np.random.default_rng(0).poisson(64, 100_000)
    assert scaling.kept(64) == pytest.approx(np.minimum(counts, 64).mean() / 64, abs=0.002)


def test_the_longest_of_several_waits(scaling):
    def uniform(seconds):
        return min(1.0, max(0.0, seconds))

    assert scaling.expected_longest(uniform, 1) == pytest.approx(1 / 2, abs=0.01)
    assert scaling.expected_longest(uniform, 9) == pytest.approx(9 / 10, abs=0.01)


def test_latencies_have_the_quantiles_that_the_page_names(scaling):
    probability = scaling.answer_probability
    assert probability(scaling.FIRST_BYTE_SECONDS) == pytest.approx(0.5, abs=1e-4)
    assert probability(scaling.LATENCY_P99_SECONDS) == pytest.approx(0.99, abs=1e-4)
    assert probability(scaling.STALL_SECONDS) < 1 <= probability(scaling.STALL_SECONDS + 31)
    assert scaling.hedged_probability(20) > probability(20)
    assert scaling.hedged_probability(0.1) == pytest.approx(probability(0.1))
