"""Datasets of Ray over shards, `.npy` and `.beton` files. They run a local Ray with two processors.

Ray is optional: without it pytest skips these tests and says so.
"""

import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from beton_files import FIELDS, make
from test_shards import write_shard
from test_urls import Store, find_server

import ringmain
from ringmain._row_ranges import FileRows, even_cuts

# Ray must not report to its makers that it was used, and must listen on the loopback interface only.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
# A busy machine with little memory must not make Ray kill workers.
os.environ["RAY_memory_monitor_refresh_ms"] = "0"
# Nor must it make Ray give up on processes that start slowly or do not answer for a while: only a hang takes so long.
os.environ["RAY_worker_register_timeout_seconds"] = "600"
os.environ["RAY_raylet_start_wait_time_s"] = "600"
os.environ["RAY_health_check_failure_threshold"] = "1000"

for package in ("pandas", "pyarrow", "ray"):
    pytest.importorskip(package, reason=f"{package} is not installed")

import pyarrow as pa
import ray

import ringmain.ray

MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def local_ray():
    # Ray puts sockets there, whose paths must be short.
    folder = tempfile.mkdtemp(prefix="rm-ray-", dir="/tmp")
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=256 * MIB,
        log_to_driver=False,
        _temp_dir=folder,
    )
    assert ray.util.get_node_ip_address() == "127.0.0.1"
    ray.data.DataContext.get_current().enable_progress_bars = False
    # The functions of this file are not in a module that workers could import.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def small_blocks():
    """Makes Ray's blocks small, so that a task has many of them."""
    context = ray.data.DataContext.get_current()
    before = context.target_max_block_size
    context.target_max_block_size = 64 << 10
    yield
    context.target_max_block_size = before


def rows_of(dataset):
    """All rows by number, with a check that each came once."""
    found = {}
    for row in dataset.iter_rows():
        assert row["row_id"] not in found, "a row came twice"
        found[row.pop("row_id")] = row
    assert sorted(found) == list(range(len(found)))
    return [found[number] for number in range(len(found))]


def values(rows, width=3):
    return np.arange(rows * width, dtype=np.float32).reshape(rows, width)


@pytest.fixture
def corpus(tmp_path):
    """Shards of 7, 0, 1, 40 and 53 rows, and their rows."""
    folder = tmp_path / "shards"
    folder.mkdir()
    expected, start = values(101), 0
    for at, rows in enumerate([7, 0, 1, 40, 53]):
        part = expected[start : start + rows] if rows else np.zeros((0, 3))
        write_shard(folder / f"part-{at}.shard", part)
        start += rows
    return folder, expected


@pytest.mark.parametrize("blocks", [1, 2, 7, 101, 300])
def test_every_row_of_shards_comes_once(corpus, blocks):
    folder, expected = corpus
    dataset = ringmain.ray.read_shards(folder, override_num_blocks=blocks)
    assert dataset.count() == 101
    found = rows_of(dataset)
    assert len(found) == 101
    np.testing.assert_array_equal(np.stack([row["data"] for row in found]), expected)


def test_a_task_delivers_many_blocks(tmp_path, small_blocks):
    expected = values(2000, 64)
    for at, part in enumerate(np.split(expected, [3, 1500])):
        write_shard(tmp_path / f"{at}.shard", part)
    dataset = ringmain.ray.read_shards(tmp_path, override_num_blocks=2).materialize()
    assert dataset.num_blocks() >= 8
    np.testing.assert_array_equal(np.stack([row["data"] for row in rows_of(dataset)]), expected)


def tasks_of(dataset, count):
    return dataset._logical_plan.dag.datasource.get_read_tasks(count)


@pytest.mark.parametrize("count", [1, 2, 4, 30])
def test_tasks_are_balanced_and_their_sizes_are_known(corpus, count):
    folder, _ = corpus
    tasks = tasks_of(ringmain.ray.read_shards(folder), count)
    rows = [task.metadata.num_rows for task in tasks]
    assert len(tasks) == count and sum(rows) == 101 and max(rows) - min(rows) <= 1
    for task in tasks:
        tables = list(task())
        assert sum(table.num_rows for table in tables) == task.metadata.num_rows
        # Arrow adds to each row of a tensor where the next one begins, in 8 bytes.
        nbytes = sum(table.nbytes for table in tables)
        assert nbytes - 8 * task.metadata.num_rows == task.metadata.size_bytes
        assert all(table.schema == task.schema for table in tables)
        names = {Path(name).name for name in task.metadata.input_files}
        assert names <= {f"part-{at}.shard" for at in (0, 2, 3, 4)}


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """A store on this machine, and the URL of a folder in it with shards, `.npy` files and a dataset."""
    program, why_not = find_server()
    if program is None:
        pytest.skip(why_not)
    folder = tmp_path_factory.mktemp("bucket") / "bucket"
    (folder / "data").mkdir(parents=True)
    expected = values(101)
    for at, part in enumerate(np.split(expected, [7, 8, 48])):
        write_shard(folder / f"data/part-{at}.shard", part)
        np.save(folder / f"data/part-{at}.npy", part)
    ringmain.BetonWriter(folder / "data/a.beton", {"n": "int"}).from_iterable([(at,) for at in range(101)])
    with Store(program, folder) as store:
        yield store, "s3://bucket/data", expected


def remote(read, bucket, path, **options):
    """Reads from the store in workers of Ray, which get the settings of the store in their environment. The engine
    is new, because clients keep the credentials that they began with."""
    store, url, _ = bucket
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in store.environ.items():
            patch.setenv(name, value)
        workers = {"env_vars": store.environ}
        dataset = read(path.format(url), engine=ringmain.Engine(), runtime_env=workers, **options)
        return rows_of(dataset)


@pytest.mark.parametrize("path", ["{}", "{}/", "{}/part-2.shard"])
def test_every_row_of_shards_in_a_store_comes_once(bucket, path):
    found = remote(ringmain.ray.read_shards, bucket, path, override_num_blocks=5)
    expected = bucket[2][8:48] if path.endswith("shard") else bucket[2]
    np.testing.assert_array_equal(np.stack([row["data"] for row in found]), expected)


@pytest.mark.parametrize("path", ["{}", "{}/", "{}/part-2.npy"])
def test_every_row_of_arrays_in_a_store_comes_once(bucket, path):
    """A folder in a store was taken for a file."""
    found = remote(ringmain.ray.read_npy, bucket, path, override_num_blocks=5)
    expected = bucket[2][8:48] if path.endswith("npy") else bucket[2]
    np.testing.assert_array_equal(np.stack([row["data"] for row in found]), expected)


def test_every_sample_in_a_store_comes_once(bucket):
    found = remote(ringmain.ray.read_beton, bucket, "{}/a.beton", override_num_blocks=5)
    assert [row["n"] for row in found] == list(range(101))


def test_what_is_not_in_a_store_is_named(bucket):
    (bucket[0].folder / "empty").mkdir()
    (bucket[0].folder / "empty/readme.txt").write_text("no array")
    with pytest.raises(ValueError, match="s3://bucket/empty: the folder has no"):
        remote(ringmain.ray.read_npy, bucket, "s3://bucket/empty")
    with pytest.raises(FileNotFoundError, match="s3://bucket/missing"):
        remote(ringmain.ray.read_npy, bucket, "s3://bucket/missing")


def test_a_task_is_small_however_many_files_there_are(tmp_path):
    """The list of all files in each of a thousand tasks would be the larger part of the work."""
    for at in range(300):
        write_shard(tmp_path / f"part-{at:03}.shard", values(2))
    tasks = tasks_of(ringmain.ray.read_shards(tmp_path), 300)
    assert len(tasks) == 300
    assert max(len(ray.cloudpickle.dumps(task)) for task in tasks) < 8000


@pytest.mark.parametrize("shape", [(50,), (50, 3), (50, 2, 5), (50, 0)])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f2", "<f8", "|u1", "<i8", ">i2", "?"])
def test_every_row_of_npy_files_comes_once(tmp_path, shape, dtype):
    expected = (np.arange(np.prod(shape)).reshape(shape) % 100).astype(dtype)
    paths = [tmp_path / f"{at}.npy" for at in range(3)]
    for path, part in zip(paths, np.split(expected, [11, 12]), strict=True):
        np.save(path, part)
    tasks = tasks_of(ringmain.ray.read_npy(paths), 4)
    assert sum(task.metadata.num_rows for task in tasks) == 50
    tables = pa.concat_tables(table for task in tasks for table in task())
    assert tables["row_id"].to_pylist() == list(range(50))
    batch = ray.data.block.BlockAccessor.for_block(tables).to_numpy("data")
    assert batch.dtype == np.dtype(dtype).newbyteorder("=")
    np.testing.assert_array_equal(batch, expected)


def test_npy_files_are_read_in_workers(tmp_path):
    np.save(tmp_path / "b.npy", values(60)[20:])
    np.save(tmp_path / "a.npy", values(60)[:20])
    (tmp_path / "c.txt").write_text("not an array")
    for paths in (tmp_path, str(tmp_path).encode(), [tmp_path / "a.npy", str(tmp_path / "b.npy")]):
        found = rows_of(ringmain.ray.read_npy(paths, override_num_blocks=3))
        np.testing.assert_array_equal(np.stack([row["data"] for row in found]), values(60))


def test_arrays_in_fortran_order(tmp_path):
    np.save(tmp_path / "f.npy", np.asfortranarray(values(30)))
    found = rows_of(ringmain.ray.read_npy(tmp_path / "f.npy", override_num_blocks=4))
    np.testing.assert_array_equal(np.stack([row["data"] for row in found]), values(30))


def test_tensors_are_not_copied(tmp_path):
    from ringmain._ray_rows import _as_arrow

    for array in (np.zeros((5, 3), np.float32), np.zeros(5, np.uint64)):
        data = _as_arrow(array)
        buffers = data.storage.values.buffers() if array.ndim > 1 else data.buffers()
        assert buffers[-1].address == array.ctypes.data


@pytest.fixture
def datasets(tmp_path):
    paths = [tmp_path / "a.beton", tmp_path / "b.beton"]
    for path, samples in zip(paths, (37, 20), strict=True):
        writer = ringmain.BetonWriter(path, FIELDS, page_size=2 << 20)
        writer.from_iterable((make(at) for at in range(samples)), samples)
    return paths


def test_every_sample_of_datasets_comes_once(datasets):
    found = rows_of(ringmain.ray.read_beton(datasets, override_num_blocks=5))
    assert len(found) == 57
    for number, row in enumerate(found):
        expected = make(number if number < 37 else number - 37)
        assert (row["id"], row["score"]) == (expected["id"], expected["score"])
        assert row["text"] == expected["text"] and json.loads(row["meta"]) == expected["meta"]
        for name in ("mat", "tensor", "img"):
            np.testing.assert_array_equal(row[name], expected[name])


def test_the_sizes_of_samples_are_known(datasets):
    dataset = ringmain.ray.read_beton(datasets, row_id_column=None)
    tasks = tasks_of(dataset, 3)
    sizes = [task.metadata.size_bytes for task in tasks]
    assert sum(task.metadata.num_rows for task in tasks) == 57
    assert sum(sizes) == sum(int(ringmain.Beton(path).sample_bytes().sum()) for path in datasets)
    largest = max(int(ringmain.Beton(path).sample_bytes().max()) for path in datasets)
    assert max(sizes) - min(sizes) <= 2 * largest
    for task in tasks:
        tables = list(task())
        assert sum(table.num_rows for table in tables) == task.metadata.num_rows
        assert all(table.schema == task.schema for table in tables)


def test_samples_of_uneven_size_are_read_in_bounded_pieces(tmp_path, small_blocks):
    """The first samples are small. A reader that takes their size for the size of all reads too much at once."""
    lengths = [0] * 50 + [60_000] * 20 + [10] * 50 + [300_000] + [7] * 5
    path = tmp_path / "a.beton"
    samples = [(bytes(length),) for length in lengths]
    ringmain.BetonWriter(path, {"text": "bytes"}, page_size=2 << 20).from_iterable(samples)
    (task,) = tasks_of(ringmain.ray.read_beton(path, row_id_column=None), 1)
    pieces = [[len(text.as_py()) for text in table["text"]] for table in task()]
    assert [length for piece in pieces for length in piece] == lengths
    assert all(sum(piece) <= 64 << 10 or len(piece) == 1 for piece in pieces)
    assert len(pieces) <= 25
    several = tasks_of(ringmain.ray.read_beton(path), 4)
    assert 2 <= len(several) <= 4 and sum(task.metadata.num_rows for task in several) == len(lengths)


def test_images_are_resized_or_delivered_as_stored(tmp_path):
    from PIL import Image

    path, file = tmp_path / "a.beton", tmp_path / "a.jpg"
    Image.fromarray(np.full((20, 30, 3), 99, np.uint8)).save(file)
    jpeg = file.read_bytes()
    ringmain.BetonWriter(path, {"img": "image"}, page_size=2 << 20).from_indexed([(jpeg,)] * 9)
    (row, *_) = rows_of(ringmain.ray.read_beton(path, resize=(8, 4), center_crop=0.5))
    assert row["img"].shape == (8, 4, 3)
    (row, *_) = rows_of(ringmain.ray.read_beton(path, images="stored"))
    assert row["img"] == jpeg
    (row, *_) = rows_of(ringmain.ray.read_beton(path))
    assert row["img"].shape == (20, 30, 3)
    assert ringmain.Beton(path).sample_bytes([0]) == 20 * 30 * 3
    assert ringmain.Beton(path, images="stored").sample_bytes([-1, 2]).tolist() == [len(jpeg)] * 2
    assert ringmain.Beton(path, resize=(8, 4)).sample_bytes()[0] == 8 * 4 * 3


@pytest.mark.parametrize("when", ["in the first block", "between blocks"])
def test_a_task_that_dies_is_run_again(corpus, tmp_path, small_blocks, when):
    """Ray runs the read and the function in one worker. That worker kills itself, once, while it reads."""
    expected = values(3000, 64)
    folder = tmp_path / "large"
    folder.mkdir()
    for at, part in enumerate(np.split(expected, [1000, 1001])):
        write_shard(folder / f"{at}.shard", part)
    # The last of three tasks has the rows from 2000 on, in pieces of 256.
    last, mark = (0 if when == "in the first block" else 2600), str(tmp_path / "died")

    def die_once(batch):
        if batch["row_id"].max() >= last:
            try:
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return batch
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    dataset = ringmain.ray.read_shards(folder, override_num_blocks=3).map_batches(die_once, batch_size=None)
    dataset = dataset.materialize()
    assert "ReadRingmainShards->MapBatches(die_once)" in dataset.stats(), "not in one worker"
    found = rows_of(dataset)
    assert os.path.exists(mark), "no worker has died"
    np.testing.assert_array_equal(np.stack([row["data"] for row in found]), expected)


def anonymous_kib():
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("RssAnon")).split()[1])


def test_memory_is_bounded(tmp_path):
    """One task reads a file of 512 MiB. Its worker may hold a block and the pieces of the next one, and the engine's
    pool keeps what was once used for the next reads."""
    write_shard(tmp_path / "small.shard", np.zeros((64, 1024), np.float32))
    write_shard(tmp_path / "large.shard", np.zeros((1 << 17, 1024), np.float32))
    context = ray.data.DataContext.get_current()
    before = context.target_max_block_size
    context.target_max_block_size = 16 * MIB
    try:
        first_worker, (small,) = memory_of_batches(tmp_path / "small.shard", 64)
        worker, large = memory_of_batches(tmp_path / "large.shard", 1 << 17)
    finally:
        context.target_max_block_size = before
    assert len(large) == 32 and worker != first_worker
    assert max(large) - small < 160 << 10, (small, large)


def memory_of_batches(path, rows):
    """Reads a file in one task. Returns the process of its worker, and that one's memory at each piece, in KiB."""
    # A worker that has done other tasks has memory of theirs, so each call gets a new one.
    fresh = {"max_calls": 1}
    dataset = ringmain.ray.read_shards(path, override_num_blocks=1, ray_remote_args=fresh)
    probes = dataset.map_batches(
        lambda batch: {"rows": [len(batch["data"])], "kib": [anonymous_kib()], "worker": [os.getpid()]},
        batch_size=None,
        **fresh,
    ).materialize()
    assert "ReadRingmainShards->MapBatches" in probes.stats(), "not in one worker"
    found = probes.take_all()
    assert sum(row["rows"] for row in found) == rows
    (worker,) = {row["worker"] for row in found}
    return worker, [row["kib"] for row in found]


def test_an_engine_and_options_reach_the_tasks(corpus):
    folder, expected = corpus
    for engine in ("pread", ringmain.Engine("pread", memory_limit=32 * MIB)):
        dataset = ringmain.ray.read_shards(
            folder, engine=engine, row_id_column="number", concurrency=1, num_cpus=0.5
        )
        assert dataset.columns() == ["data", "number"]
        assert dataset.count() == 101
    assert ringmain.ray.read_shards(folder, row_id_column=None).columns() == ["data"]
    assert ringmain.ray.read_shards(folder).take(3)[2]["row_id"] == 2
    assert ringmain.ray.read_shards(folder).limit(60).count() == 60


def test_datasets_without_rows_have_columns(tmp_path):
    np.save(tmp_path / "none.npy", np.zeros((0, 4), np.float32))
    dataset = ringmain.ray.read_npy(tmp_path / "none.npy")
    assert dataset.count() == 0 and dataset.take_all() == []
    assert dataset.columns() == ["data", "row_id"]
    write_shard(tmp_path / "none.shard", np.zeros((0, 4)))
    with pytest.raises(ValueError, match="the shards have no rows"):
        ringmain.ray.read_shards(tmp_path / "none.shard")


def test_urls_stay_as_they_are():
    from ringmain._ray_rows import located

    assert located("s3://bucket/a b.npy") == "s3://bucket/a b.npy"
    assert located(["https://host/x", Path("y")]) == ["https://host/x", os.path.abspath("y")]


READ = {
    "shards": ringmain.ray.read_shards,
    "npy": ringmain.ray.read_npy,
    "beton": ringmain.ray.read_beton,
}


@pytest.mark.parametrize("read", READ.values(), ids=READ.keys())
def test_bad_arguments(read, tmp_path):
    with pytest.raises(FileNotFoundError, match="missing"):
        read(tmp_path / "missing")
    with pytest.raises(FileNotFoundError, match="missing"):
        read([tmp_path / "missing"])
    with pytest.raises(TypeError, match="paths must be a path or a list of paths, not int"):
        read(7)
    with pytest.raises(TypeError, match="not a list of int"):
        read([7])
    with pytest.raises(TypeError, match=r"pass sorted\(paths\)"):
        read({"a", "b"})
    with pytest.raises(ValueError, match="empty list"):
        read([])
    with pytest.raises(ValueError, match="colour"):
        read(tmp_path / "missing", engine="colour")


def test_bad_options(corpus):
    folder, _ = corpus
    with pytest.raises(TypeError, match="no argument 'batch_rows'.*override_num_blocks"):
        ringmain.ray.read_shards(folder, batch_rows=3)
    with pytest.raises(TypeError, match="row_id_column must be a str or None, not int"):
        ringmain.ray.read_shards(folder, row_id_column=3)
    with pytest.raises(ValueError, match="row_id_column cannot be 'data'.*choose another one"):
        ringmain.ray.read_shards(folder, row_id_column="data")


def test_bad_shards(corpus, tmp_path):
    folder, _ = corpus
    empty = tmp_path / "empty"
    empty.mkdir()
    for read, suffix in ((ringmain.ray.read_shards, "shard"), (ringmain.ray.read_npy, "npy")):
        with pytest.raises(ValueError, match=rf"the folder has no .*\*\.{suffix}"):
            read(empty)
    write_shard(folder / "wide.shard", values(4, 5))
    with pytest.raises(ValueError, match=r"wide\.shard.*5.*3"):
        ringmain.ray.read_shards(folder)
    np.save(tmp_path / "rows.npy", values(4))
    with pytest.raises(ValueError, match=r"rows\.npy"):
        ringmain.ray.read_shards(tmp_path / "rows.npy")


def test_bad_npy_files(tmp_path):
    np.save(tmp_path / "a.npy", values(4))
    for name, other in {
        "wide": values(4, 5),
        "double": values(4).astype("f8"),
        "flat": np.zeros(3, "f4"),
    }.items():
        np.save(tmp_path / f"{name}.npy", other)
        with pytest.raises(ValueError, match=rf"{name}\.npy has rows of .*a\.npy.*two datasets"):
            ringmain.ray.read_npy([tmp_path / "a.npy", tmp_path / f"{name}.npy"])
    np.save(tmp_path / "one.npy", np.float32(1))
    with pytest.raises(ValueError, match=r"one\.npy: an array without axes"):
        ringmain.ray.read_npy(tmp_path / "one.npy")
    for dtype in ("c8", "U3", "V2", "M8[s]", [("x", "f4")]):
        np.save(tmp_path / "odd.npy", np.zeros(3, dtype))
        with pytest.raises(ValueError, match=r"odd\.npy: Ray's tensors cannot have values of.*map_batches"):
            ringmain.ray.read_npy(tmp_path / "odd.npy")


def test_bad_datasets(datasets, tmp_path):
    other = tmp_path / "other.beton"
    ringmain.BetonWriter(other, {"id": "int"}, page_size=2 << 20).from_iterable([(1,)])
    with pytest.raises(ValueError, match=r"other\.beton has id \(int\), but .*a\.beton has .*mat \(array"):
        ringmain.ray.read_beton([*datasets, other])
    with pytest.raises(ValueError, match="'id'.*choose another one"):
        ringmain.ray.read_beton(datasets, row_id_column="id")
    with pytest.raises(ray.exceptions.RayTaskError, match='images="stored".*stored as pixels'):
        ringmain.ray.read_beton(datasets, images="stored").take_all()


def test_fields_of_other_types_are_left_out(datasets, tmp_path):
    data = bytearray(datasets[0].read_bytes())
    # The type of the third field, the text: one that FFCV does not define.
    data[24 + 2 * 1041] = 255
    path = tmp_path / "custom.beton"
    path.write_bytes(data)
    with pytest.raises(ValueError, match="text"):
        ringmain.ray.read_beton(path)
    text = np.dtype([("ptr", "<u8"), ("size", "<u8")])
    with pytest.raises(ValueError, match=r"no Arrow type.*fields=\{'text': 16\}"):
        ringmain.ray.read_beton(path, fields={"text": text})
    found = rows_of(ringmain.ray.read_beton(path, fields={"text": 16}))
    assert len(found) == 37 and "text" not in found[0] and found[3]["id"] == make(3)["id"]


def test_files_that_change_before_they_are_read(corpus, datasets, tmp_path):
    folder, _ = corpus
    np.save(tmp_path / "a.npy", values(9))
    made = {
        folder / "part-3.shard": ringmain.ray.read_shards(folder),
        tmp_path / "a.npy": ringmain.ray.read_npy(tmp_path / "a.npy"),
        datasets[1]: ringmain.ray.read_beton(datasets),
    }
    write_shard(folder / "part-3.shard", values(41))
    np.save(tmp_path / "a.npy", values(9).astype(np.int32))
    shutil.copy(datasets[0], datasets[1])
    for path, dataset in made.items():
        with pytest.raises(ray.exceptions.RayTaskError, match=rf"{path.name}: the file has changed since"):
            dataset.take_all()


def test_a_worker_reads_a_dataset_that_was_replaced(tmp_path):
    """A worker keeps a dataset open, and must not take it for one that was written later."""
    path = tmp_path / "a.beton"
    for value in (3, 4):
        ringmain.BetonWriter(path, {"x": "int"}, page_size=2 << 20).from_iterable([(value,)] * 10)
        assert {row["x"] for row in rows_of(ringmain.ray.read_beton(path))} == {value}


@pytest.mark.parametrize("rows", [0, 1, 5, 1000])
@pytest.mark.parametrize("tasks", [1, 3, 999])
def test_cuts_and_ranges_cover_everything_once(rows, tasks):
    cuts = even_cuts(rows, tasks)
    assert len(cuts) == min(rows, tasks) and all(start < stop for start, stop in cuts)
    lengths = [rows // 3, 0, rows - rows // 3]
    files = FileRows((str(at), length) for at, length in enumerate(lengths))
    parts = [part for start, stop in cuts for part in files.ranges(start, stop)]
    ids = [part.first_id + at for part in parts for at in range(part.stop - part.start)]
    assert len(files) == rows and ids == list(range(rows))
    starts = [0, lengths[0], lengths[0]]
    for part in parts:
        assert part.first_id == starts[int(part.path)] + part.start
        assert 0 <= part.start < part.stop <= part.file_rows == lengths[int(part.path)]


def test_without_ray_the_error_says_what_to_install():
    script = (
        "import sys; sys.modules['ray'] = None\n"
        "import pydoc, ringmain\n"
        "try: ringmain.ray\n"
        "except ImportError as error: assert 'ray[data]' in str(error)\n"
        "else: raise SystemExit(1)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)


def test_ray_is_imported_when_it_is_used():
    script = (
        "import sys, ringmain; assert 'ray' not in sys.modules and 'ray' in dir(ringmain)\n"
        "assert callable(ringmain.ray.read_npy)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)


def test_arguments_are_explained():
    for read in READ.values():
        text = inspect.getdoc(read)
        for name in inspect.signature(read).parameters:
            assert name in text.replace(",", " ").replace(":", " ").split(), name
