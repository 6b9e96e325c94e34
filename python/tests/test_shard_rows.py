"""`ShardRows`: rows of shards by their ids, for DataLoaders. Torch is optional: without it pytest skips these tests."""

import pickle

import numpy as np
import pytest
from test_shards import LENGTHS, TOTAL, VALUES, WIDTH, corpus, write_shard  # noqa: F401


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def rows(corpus, torch):  # noqa: F811
    import ringmain.torch

    return ringmain.torch.ShardRows(corpus)


def test_rows_are_found_by_their_ids(rows):
    assert len(rows) == TOTAL
    for row_id in (0, 1, TOTAL // 2, TOTAL - 1, -1, -TOTAL):
        row, found = rows[row_id]
        assert found == row_id % TOTAL
        np.testing.assert_array_equal(row.numpy(), VALUES[row_id])
    for row_id in (TOTAL, -TOTAL - 1):
        with pytest.raises(IndexError, match=f"cannot get row {row_id}: the shards have {TOTAL} rows"):
            rows[row_id]
    assert rows.__getitems__([]) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_delivers_each_batch_as_it_was_read(rows, torch, workers):
    loader = torch.utils.data.DataLoader(rows, batch_size=7, shuffle=True, num_workers=workers)
    found = []
    for batch in loader:
        np.testing.assert_array_equal(batch.rows.numpy(), VALUES[batch.row_ids.numpy()])
        found += batch.row_ids.tolist()
    assert sorted(found) == list(range(TOTAL))
    together = rows.__getitems__([3, 1])
    batch = torch.utils.data.default_collate(together)
    assert batch.rows.data_ptr() == together[0].row.data_ptr(), "without a copy"
    # Rows that were read one by one.
    apart = torch.utils.data.default_collate([rows[3], rows[1]])
    assert torch.equal(apart.rows, batch.rows) and torch.equal(apart.row_ids, batch.row_ids)


def test_a_pickle_reads_the_same_rows(rows):
    again = pickle.loads(pickle.dumps(rows))
    np.testing.assert_array_equal(again[5].row.numpy(), VALUES[5])


@pytest.mark.parametrize("shape", [(2 * max(LENGTHS), WIDTH - 1), (2 * max(LENGTHS), WIDTH)], ids=["width", "rows"])
def test_a_pickle_of_shards_that_were_replaced_is_an_error(corpus, rows, shape):  # noqa: F811
    """Workers that are not forked opened the new shards with the old width, and cut their floats at the wrong places."""
    pickled = pickle.dumps(rows)
    for path in corpus.iterdir():
        write_shard(path, np.zeros(shape, "f4"))
    with pytest.raises(ValueError, match=f"{shape[0] * len(LENGTHS)} rows of {shape[1]} columns now, but ShardRows"):
        pickle.loads(pickled)
