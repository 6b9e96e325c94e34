"""ShardWriter: rows of arrays become shards."""

import sys
import threading

import interrupts
import numpy as np
import pytest

import ringmain

ROWS = np.random.default_rng(1).normal(size=(50, 6)).astype(np.float32)


def rows_of(path):
    return np.concatenate([rows.copy() for rows, _ in ringmain.ShardSource(path)])


def test_rows_come_back_as_they_were_written(tmp_path):
    path = tmp_path / "part-000.shard"
    with ringmain.ShardWriter(path, 6) as shard:
        for part in np.split(ROWS, [1, 1, 20]):  # one part is empty
            shard.write(part)
        assert shard.rows == 50 and shard.width == 6 and shard.path == path
        assert not path.exists(), "it gets its name when it is complete"
    np.testing.assert_array_equal(rows_of(tmp_path), ROWS)
    assert "50 rows" in repr(shard) and [file.name for file in tmp_path.iterdir()] == ["part-000.shard"]


@pytest.mark.parametrize(
    "rows",
    [
        ROWS.astype(np.float64),
        ROWS.astype(">f4"),
        np.asfortranarray(ROWS),
        np.repeat(ROWS, 2, axis=1)[:, ::2],
        ROWS[::-1][::-1],
        ROWS.tolist(),
    ],
    ids=["float64", "big-endian", "F order", "gaps", "negative strides", "lists"],
)
def test_rows_of_other_types_and_layouts(tmp_path, rows):
    with ringmain.ShardWriter(str(tmp_path / "a.shard"), width=6) as shard:
        shard.write(rows)
    np.testing.assert_array_equal(rows_of(tmp_path), ROWS)


def test_numbers_are_rounded_to_float32(tmp_path):
    with ringmain.ShardWriter(tmp_path / "a.shard", 2) as shard:
        shard.write(np.array([[0.1, 1 / 3]]))
        shard.write(np.array([[1, 2]], np.int64))
        shard.write(np.array([[0.5, 2]], np.float16))
        shard.write(np.array([[True, False]]))
    expected = np.array([[0.1, 1 / 3], [1, 2], [0.5, 2], [1, 0]]).astype(np.float32)
    np.testing.assert_array_equal(rows_of(tmp_path), expected)


def test_a_view_is_written(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    with ringmain.ShardWriter(tmp_path / "a.shard", 6) as shard:
        shard.write(ringmain.open_npy(tmp_path / "rows.npy")[10:])
    np.testing.assert_array_equal(rows_of(tmp_path / "a.shard"), ROWS[10:])


def test_rows_of_the_wrong_shape_or_type_are_refused(tmp_path):
    with ringmain.ShardWriter(tmp_path / "a.shard", 6) as shard:
        for wrong, shape in [(ROWS[:, :5], r"\(50, 5\)"), (ROWS[0], r"\(6,\)"), (ROWS[None], r"\(1, 50, 6\)")]:
            with pytest.raises(ValueError, match=rf"\(any number, 6\), not {shape}"):
                shard.write(wrong)
        for wrong in (ROWS.astype(complex), ROWS.astype(str), ROWS.astype(object)):
            with pytest.raises(TypeError, match="float32"):
                shard.write(wrong)
        shard.write(ROWS)  # nothing of the refused rows was written
    np.testing.assert_array_equal(rows_of(tmp_path), ROWS)


def test_an_exception_in_the_block_leaves_nothing_behind(tmp_path):
    (tmp_path / "old.shard").write_bytes(b"old")
    for name in ("new.shard", "old.shard"):
        with pytest.raises(KeyError), ringmain.ShardWriter(tmp_path / name, 6) as shard:
            shard.write(ROWS)
            raise KeyError
        with pytest.raises(ValueError, match="discarded"):
            shard.write(ROWS)
        with pytest.raises(ValueError, match="discarded"):
            shard.finish()
    assert [file.name for file in tmp_path.iterdir()] == ["old.shard"]
    assert (tmp_path / "old.shard").read_bytes() == b"old"


def test_a_writer_that_is_dropped_leaves_nothing_behind(tmp_path):
    shard = ringmain.ShardWriter(tmp_path / "a.shard", 6)
    shard.write(ROWS)
    del shard
    assert list(tmp_path.iterdir()) == []


def test_without_a_block_finish_completes_the_shard(tmp_path):
    shard = ringmain.ShardWriter(tmp_path / "a.shard", 6)
    shard.write(ROWS)
    assert shard.finish() == shard.rows == 50
    for call in (shard.finish, lambda: shard.write(ROWS)):
        with pytest.raises(ValueError, match="complete"):
            call()
    with ringmain.ShardWriter(tmp_path / "b.shard", 6) as shard:
        shard.write(ROWS)
        assert shard.finish() == 50
    np.testing.assert_array_equal(rows_of(tmp_path), np.concatenate([ROWS, ROWS]))


def test_a_shard_may_be_empty(tmp_path):
    with ringmain.ShardWriter(tmp_path / "a.shard", 6) as shard:
        assert shard.rows == 0
    with ringmain.ShardWriter(tmp_path / "b.shard", 6) as shard:
        shard.write(ROWS)
    np.testing.assert_array_equal(rows_of(tmp_path), ROWS)


def test_errors_at_the_beginning(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        ringmain.ShardWriter(tmp_path / "none" / "a.shard", 6)
    assert str(tmp_path / "none") in str(caught.value)
    with pytest.raises(ValueError, match="width cannot be 0"):
        ringmain.ShardWriter(tmp_path / "a.shard", 0)
    with pytest.raises(ValueError, match="width cannot be -1"):
        ringmain.ShardWriter(tmp_path / "a.shard", -1)
    with pytest.raises(TypeError, match="width must be an int, not str"):
        ringmain.ShardWriter(tmp_path / "a.shard", "6")
    assert list(tmp_path.iterdir()) == []


def test_threads_do_not_write_at_the_same_time(tmp_path):
    """The rows of a call stay together, or the call is refused. It must not wait while it holds the
    interpreter lock."""
    rows, refused = np.ones((1 << 18, 8), np.float32), []
    with ringmain.ShardWriter(tmp_path / "a.shard", 8) as shard:

        def write():
            for _ in range(8):
                try:
                    shard.write(rows)
                except RuntimeError as error:
                    refused.append(error)

        threads = [threading.Thread(target=write) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert shard.rows == (16 - len(refused)) << 18
        assert all("another thread" in str(error) for error in refused)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot send Ctrl-C to one process")
def test_ctrl_c_ends_a_write_and_leaves_nothing_behind(tmp_path):
    rows = np.ones((1 << 14, 1 << 10), np.float32)  # 64 MiB: two parts

    def write():
        with ringmain.ShardWriter(tmp_path / "a.shard", 1 << 10) as shard:
            while True:
                shard.write(rows)

    interrupts.raises_soon(write)
    assert list(tmp_path.iterdir()) == []
