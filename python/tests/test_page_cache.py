"""Reads return the same bytes, no matter how much of a file is in the page cache."""

import page_cache
import pytest

import ringmain


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cached")
    return folder, *page_cache.write_all(folder)


def test_warm_and_cold_reads_give_the_same_bytes(files, engine):
    page_cache.check_all(*files, engine)


@pytest.mark.parametrize(
    ("warmth", "access"), [("auto", "as-it-comes"), ("keep", "random"), ("leave", "sequential")]
)
def test_every_warmth_and_access_gives_the_same_bytes(files, warmth, access):
    page_cache.check_all(*files, ringmain.Engine(warmth=warmth, access=access))


@pytest.fixture
def cold(tmp_path, available):
    """The path of a file that is not in the page cache and that a backend can read past it."""
    path = tmp_path / "array.npy"
    page_cache.write_array(path, 3)
    page_cache.put(path, "cold")
    if page_cache.cached_pages(path) != 0:
        pytest.skip("the kernel does not drop the file from the page cache, or has no cachestat(2)")
    if not {"uring", "direct"} & available:
        pytest.skip("all reads go through the page cache here")
    return path


@pytest.mark.parametrize("warmth", [None, "auto", "keep", "leave"])
def test_warmth_decides_what_stays_cached(cold, warmth):
    engine = ringmain.Engine(warmth=warmth)
    view = ringmain.open_raw(cold, "u1", (256, 16384), engine=engine)
    ringmain.read_many([view[at : at + 4] for at in range(0, 256, 4)])
    assert (page_cache.cached_pages(cold) > 0) == (warmth == "keep")


def test_an_engine_counts_reads_and_describes_a_file(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(bytes(1 << 20))
    engine = ringmain.Engine()
    assert engine.stats()["reads"] == 0 and engine.stats()["batch_seconds"]["p50"] is None
    view = ringmain.open_raw(path, "u1", (1 << 20,), engine=engine)
    ringmain.read_many([view[at : at + 100] for at in range(0, 100_000, 5000)])
    stats = engine.stats()
    assert stats["reads"] == 20 and stats["bytes"] >= 2000
    assert stats["cache_reads"] + stats["device_reads"] == 20
    assert 0 < stats["batch_seconds"]["p50"] <= stats["batch_seconds"]["max"]
    assert "pread" in engine.describe(path)
    with pytest.raises(FileNotFoundError):
        engine.describe(tmp_path / "none")
