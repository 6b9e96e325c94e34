"""The same bytes, whatever the page cache has of a file."""

import page_cache
import pytest


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cached")
    return folder, *page_cache.write_all(folder)


def test_warm_and_cold_reads_give_the_same_bytes(files, engine):
    page_cache.check_all(*files, engine)
