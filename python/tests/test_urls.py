"""Objects of stores by their URLs, from a real S3 server of this machine (`object-store/test-server`)."""

import errno
import multiprocessing
import os
import pickle
import subprocess
import sys
from pathlib import Path

import beton_files
import numpy as np
import pytest
from test_shards import TOTAL, VALUES, corpus, ids_of, write_shard  # noqa: F401

import ringmain
import ringmain.safetensors
import ringmain.safetensors.numpy

ROOT = Path(__file__).parents[2]
KEY_ID = "AKIDRINGMAINTESTS"
SECRET_KEY = "c2VjcmV0LWtleS1vZi10ZXN0cw5ecret"
TOKEN = "t0ken-5ecret"
ARRAY = np.arange(200_000, dtype=np.float32).reshape(2000, 100)


def find_server():
    """The path of the program `test-server`, or a reason why it cannot be used."""
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    named = os.environ.get("RINGMAIN_TEST_SERVER")
    path = Path(named or os.path.join(target, "debug", "test-server"))
    if path.exists():
        return path, None
    assert named is None, f"RINGMAIN_TEST_SERVER names {path}, which does not exist"
    return None, "not tested; run `cargo build -p ringmain-test-server` first"


class Store:
    """A server whose bucket is a folder."""

    def __init__(self, program, folder):
        self.folder = folder
        self.process = subprocess.Popen(
            [program, f"bucket={folder}"], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.endpoint = self.process.stdout.readline().strip()
        self.environ = {
            "AWS_ENDPOINT": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "NO_PROXY": "127.0.0.1",
        }

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        assert self.process.wait(timeout=300) == 0

    def ask(self, line):
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def fail(self, line):
        assert self.ask(line) == "ok"

    def requests(self):
        return int(self.ask("requests"))

    def path(self, key):
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def put(self, key, value):
        """Writes an object and returns its URL."""
        if isinstance(value, np.ndarray):
            with open(self.path(key), "wb") as file:
                np.save(file, value)
        else:
            self.path(key).write_bytes(value)
        return f"s3://bucket/{key}"


@pytest.fixture
def store(tmp_path, monkeypatch):
    program, why_not = find_server()
    if program is None:
        pytest.skip(why_not)
    folder = tmp_path / "bucket"
    folder.mkdir()
    with Store(program, folder) as store:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        for name, value in store.environ.items():
            monkeypatch.setenv(name, value)
        yield store


@pytest.fixture
def engine(store):
    """An engine of this test alone: clients keep the credentials that they began with."""
    return ringmain.Engine()


def assert_secret_free(*texts):
    for text in texts:
        for secret in (SECRET_KEY, KEY_ID, TOKEN, "5ecret"):
            assert secret not in text


def assert_raises(kind, work, *words, errno=None):
    with pytest.raises(kind) as raised:
        work()
    error = raised.value
    text = f"{error} {error!r} {getattr(error, 'filename', '')}"
    for word in words:
        assert word in text, f"{word!r} is missing in {text}"
    assert_secret_free(text, repr(error.__cause__), repr(error.__context__))
    if errno is not None:
        assert error.errno == errno, text
    return error


def test_arrays(store, engine):
    url = store.put("folder/array.npy", ARRAY)
    view = ringmain.open_npy(url, engine=engine)
    assert (view.shape, view.dtype, view.path) == (ARRAY.shape, ARRAY.dtype, url)
    np.testing.assert_array_equal(np.asarray(view[7:19]), ARRAY[7:19])
    np.testing.assert_array_equal(view.read(slice(None, None, -7)), ARRAY[::-7])
    np.testing.assert_array_equal(view.read([3, 1999, 4]), ARRAY[[3, 1999, 4]])
    out = np.empty_like(ARRAY)
    assert view.read(out=out) is out
    np.testing.assert_array_equal(out, ARRAY)
    assert url in repr(view) and "object" in engine.describe(url)

    raw = store.put("raw", ARRAY.tobytes())
    rows = ringmain.open_raw(raw, np.float32, (-1, 100), engine=engine)
    np.testing.assert_array_equal(np.asarray(rows[1990:]), ARRAY[1990:])
    part = ringmain.open_raw(raw.encode(), np.float32, offset=400, engine=engine)
    np.testing.assert_array_equal(np.asarray(part[:100]), ARRAY[1])
    first = ringmain.open_raw(raw, np.float32, (100, 2000), order="F", engine=engine)
    np.testing.assert_array_equal(np.asarray(first), ARRAY.T)


def test_a_batch_has_objects_and_files(store, engine):
    url = store.put("array.npy", ARRAY)
    remote, local = (
        ringmain.open_npy(url, engine=engine),
        ringmain.open_npy(store.path("array.npy"), engine=engine),
    )
    views = [remote[3], local[3], remote[1999], local[0], remote[0]]
    expected = ARRAY[[3, 3, 1999, 0, 0]]
    np.testing.assert_array_equal(ringmain.read_many(views, stack=True), expected)


@pytest.mark.parametrize("order", "CF")
def test_dtypes_that_only_numpy_knows(store, engine, order):
    records = np.array([(1, b"a", 2.5), (2, b"bc", -1)] * 6, [("n", "<i8"), ("s", "S3"), ("x", ">f4")])
    expected = np.asarray(records.reshape(3, 4), order=order)
    view = ringmain.open_npy(store.put("records.npy", expected), engine=engine)
    assert (view.shape, view.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(np.asarray(view), expected)
    times = np.array(["2026-01-01", "2027-02-02"], "M8[D]")
    np.testing.assert_array_equal(
        np.asarray(ringmain.open_npy(store.put("t.npy", times), engine=engine)), times
    )
    objects = np.array([{}, []], object)
    assert_raises(
        ValueError, lambda: ringmain.open_npy(store.put("objects.npy", objects), engine=engine), "s3://"
    )
    assert_raises(
        ValueError, lambda: ringmain.open_npy(store.put("no.npy", b"nothing"), engine=engine), "s3://"
    )


def test_file_urls_are_files(store, tmp_path):
    path = tmp_path / "with space – ü.npy"
    np.save(path, ARRAY)
    url = path.as_uri()
    assert "%20" in url
    view = ringmain.open_npy(url)
    assert view.path == path
    np.testing.assert_array_equal(np.asarray(view), ARRAY)
    records = np.zeros(3, "S3")
    np.save(path, records)
    np.testing.assert_array_equal(np.asarray(ringmain.open_npy(url)), records)


def test_web_servers(store, engine):
    store.put("with space/ü.npy", ARRAY)
    url = f"{store.endpoint}/plain/bucket/with%20space/%C3%BC.npy"
    np.testing.assert_array_equal(np.asarray(ringmain.open_npy(url, engine=engine)), ARRAY)


@pytest.mark.parametrize("suffix", ["", "/"])
def test_shards(store, engine, corpus, suffix):  # noqa: F811
    for path in corpus.glob("*.shard"):
        store.put(f"corpus/{path.name}", path.read_bytes())
    store.put("corpus/readme.txt", b"no shard")
    folder = f"s3://bucket/corpus{suffix}"
    source = ringmain.ShardSource(folder, engine=engine, order="shuffled", seed=3, batch_rows=8)
    local = ringmain.ShardSource(corpus, order="shuffled", seed=3, batch_rows=8)
    assert source.total_rows == TOTAL
    for (rows, row_ids), (_, expected) in zip(source, local, strict=True):
        np.testing.assert_array_equal(row_ids, expected)
        np.testing.assert_array_equal(rows, VALUES[row_ids])
    copy = pickle.loads(pickle.dumps(source))
    assert len(ids_of(copy)) == TOTAL
    one = ringmain.ShardSource("s3://bucket/corpus/part-002.shard", engine=engine)
    assert one.total_rows == 40
    two = ["s3://bucket/corpus/part-002.shard", corpus / "part-003.shard"]
    assert ids_of(ringmain.ShardSource(two, engine=engine)) == list(range(47))
    # An object is a shard whatever its name is.
    store.put("odd", (corpus / "part-003.shard").read_bytes())
    assert ringmain.ShardSource("s3://bucket/odd", engine=engine).total_rows == 7
    missing = lambda: ringmain.ShardSource("s3://bucket/missing", engine=engine)
    assert_raises(FileNotFoundError, missing, "s3://bucket/missing")


def test_datasets(store, engine):
    url = store.put("mixed.beton", beton_files.VECTOR.read_bytes())
    dataset = ringmain.Beton(url, engine=engine, images="stored")
    expected = beton_files.EXPECTED["samples"]
    assert len(dataset) == len(expected)
    for at in (0, len(dataset) - 1):
        beton_files.check_sample(dataset[at], expected[at], "stored")
    epoch = dataset.epoch(batch_size=4)
    assert sum(len(ids) for _, ids in epoch) == len(expected)
    assert pickle.loads(pickle.dumps(dataset)).path == dataset.path == url


def test_weights(store, engine):
    pytest.importorskip("safetensors")
    tensors = {"w": ARRAY, "b": ARRAY[0]}
    ringmain.safetensors.numpy.save_file(tensors, store.path("model/model.safetensors"))
    for url in ["s3://bucket/model", "s3://bucket/model/model.safetensors"]:
        found = ringmain.safetensors.load_file(url, engine=engine)
        assert found.keys() == tensors.keys()
        for name, expected in tensors.items():
            np.testing.assert_array_equal(found[name], expected)
        with ringmain.safetensors.safe_open(url, "np", engine=engine) as file:
            np.testing.assert_array_equal(file.get_slice("w")[5:9], ARRAY[5:9])
    missing = lambda: ringmain.safetensors.load_file("s3://bucket/none", engine=engine)
    assert_raises(FileNotFoundError, missing, "s3://bucket/none")


def test_torch_datasets(store, corpus):  # noqa: F811
    torch = pytest.importorskip("torch")
    import ringmain.torch

    for path in corpus.glob("*.shard"):
        store.put(f"corpus/{path.name}", path.read_bytes())
    for workers in (0, 2):
        dataset = ringmain.torch.ShardDataset("s3://bucket/corpus", order="shuffled", batch_rows=8)
        loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers)
        seen = [row_id for _, row_ids in loader for row_id in row_ids.tolist()]
        assert sorted(seen) == list(range(TOTAL))


def read_rows(view, rows):
    for row in rows:
        np.testing.assert_array_equal(np.asarray(view[row]), ARRAY[row])
    np.testing.assert_array_equal(view.read(rows), ARRAY[rows])
    return os.getpid()


def unpickle_and_read(pickled, rows):
    return read_rows(pickle.loads(pickled), rows)


@pytest.mark.parametrize("has_cache", [False, True])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_have_clients_of_their_own(store, tmp_path, method, has_cache):
    cache = {"disk_cache": tmp_path / "cache", "disk_cache_limit": 1 << 30} if has_cache else {}
    engine = ringmain.Engine(**cache)
    view = ringmain.open_npy(store.put("array.npy", ARRAY), engine=engine)
    read_rows(view, [1, 2, 3])
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        # A pool waits for ever for a worker that cannot unpickle its task.
        results = [
            pool.apply_async(unpickle_and_read, (pickle.dumps(view), [at, at + 500, 1999])) for at in range(6)
        ]
        read_rows(view, [7])
        assert os.getpid() not in {result.get(timeout=300) for result in results}
    read_rows(view, [8])


def test_a_forked_child_reads_what_its_parent_has_opened(store, engine):
    view = ringmain.open_npy(store.put("array.npy", ARRAY), engine=engine)
    read_rows(view, [1])
    child = os.fork()
    if child == 0:
        status = 1
        try:
            read_rows(view, [2, 1999])
            status = 0
        finally:
            os._exit(status)
    read_rows(view, [3])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_default_engine_and_named_ones_open_urls(store):
    url = store.put("array.npy", ARRAY)
    program = (
        "import sys, numpy, ringmain; "
        "[numpy.asarray(ringmain.open_npy(sys.argv[1], backend=it)[:3]) for it in (None, 'pread', 'mmap')]; "
        "print(ringmain.open_npy(sys.argv[1]).engine.backend)"
    )
    done = subprocess.run([sys.executable, "-c", program, url], text=True, capture_output=True, timeout=300)
    assert (done.stdout, done.stderr) == ("auto\n", "")


def test_pickles_hold_urls_and_no_credentials(store, tmp_path):
    engine = ringmain.Engine(disk_cache=tmp_path / "cache", disk_cache_limit=1 << 30)
    view = ringmain.open_npy(store.put("array.npy", ARRAY), engine=engine)
    pickled = pickle.dumps(view)
    assert_secret_free(pickled.decode("latin-1"), repr(view), repr(engine), engine.describe())
    assert b"s3://bucket/array.npy" in pickled
    np.testing.assert_array_equal(np.asarray(pickle.loads(pickled)), ARRAY)


def test_the_disk_cache_serves_the_next_engine(store, tmp_path):
    url, folder = store.put("array.npy", ARRAY), tmp_path / "cache"
    first = ringmain.Engine(disk_cache=folder, disk_cache_limit=1 << 30)
    np.testing.assert_array_equal(np.asarray(ringmain.open_npy(url, engine=first)), ARRAY)
    stats = first.disk_cache_stats()
    assert stats["stored_blocks"] == 1 and stats["degraded"] is None
    before = store.requests()
    second = ringmain.Engine(disk_cache=folder, disk_cache_limit=1 << 30)
    view = ringmain.open_npy(url, engine=second)
    np.testing.assert_array_equal(np.asarray(view), ARRAY)
    assert store.requests() <= before + 2  # only which version there is
    stats = second.disk_cache_stats()
    assert (stats["misses"], stats["stored_blocks"]) == (0, 0) and stats["hit_bytes"] >= ARRAY.nbytes
    # Files are not kept, and another object under the URL is another one.
    np.testing.assert_array_equal(
        np.asarray(ringmain.open_npy(store.path("array.npy"), engine=second)), ARRAY
    )
    assert second.disk_cache_stats()["hits"] == stats["hits"]
    store.path("array.npy").unlink()
    store.put("array.npy", -ARRAY)
    np.testing.assert_array_equal(np.asarray(ringmain.open_npy(url, engine=second)), -ARRAY)
    shown = subprocess.run(
        [sys.executable, "-m", "ringmain", "cache", "stat", folder],
        text=True,
        capture_output=True,
        timeout=300,
    )
    assert shown.returncode == 0 and "blocks" in shown.stdout, shown


def test_the_options_of_the_disk_cache_are_checked(store, tmp_path):
    make = ringmain.Engine
    assert_raises(ValueError, lambda: make(disk_cache=tmp_path / "cache"), "disk_cache_limit")
    assert_raises(ValueError, lambda: make(disk_cache_limit=1 << 30), "disk_cache")
    assert_raises(ValueError, lambda: make(disk_cache=tmp_path / "cache", disk_cache_limit=1), "disk_cache_limit")
    assert_raises(ValueError, lambda: make(disk_cache="s3://bucket/x", disk_cache_limit=1 << 30), "only read")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("precious")
    assert_raises(
        (OSError, ValueError), lambda: make(disk_cache=tmp_path / "full", disk_cache_limit=1 << 30), "full"
    )
    assert (tmp_path / "full" / "mine.txt").read_text() == "precious"
    assert_raises(ValueError, lambda: make().disk_cache_stats(), "disk_cache")


def test_an_object_that_is_replaced_is_an_error(store, engine):
    url = store.put("array.npy", ARRAY)
    view = ringmain.open_npy(url, engine=engine)
    read_rows(view, [1])
    store.path("array.npy").unlink()
    store.put("array.npy", -ARRAY)
    assert_raises(OSError, lambda: np.asarray(view), url, errno=errno.ESTALE)


OPENS = {
    "open_npy": lambda url, engine: ringmain.open_npy(url, engine=engine),
    "open_raw": lambda url, engine: ringmain.open_raw(url, np.uint8, engine=engine),
    "ShardSource": lambda url, engine: ringmain.ShardSource(url, engine=engine),
    "Beton": lambda url, engine: ringmain.Beton(url, engine=engine),
    "load_file": lambda url, engine: ringmain.safetensors.load_file(url, engine=engine),
}


@pytest.mark.parametrize("opened", OPENS)
def test_errors_are_pythons_own(store, engine, opened):
    work, url = OPENS[opened], store.put("array.npy", ARRAY)
    for bad, words in [
        ("ftp://host/x", ["ftp", "s3, gs, az"]),
        ("s3:///x", ["no bucket", "s3://bucket/key"]),
        ("s3://bucket/a//b", ["two slashes"]),
        ("s3://bucket/x?X-Amz-Signature=5ecret", ["leave it out"]),
        ("https://me:5ecret@host/x", ["leave it out"]),
    ]:
        assert_raises(ValueError, lambda bad=bad: work(bad, engine), *words)
    assert_raises(ValueError, lambda: work(Path("s3://bucket/array.npy"), engine), "as a string")
    missing = "s3://bucket/missing"
    assert_raises(FileNotFoundError, lambda: work(missing, engine), missing, errno=errno.ENOENT)
    other = "s3://other/array.npy"
    assert_raises(FileNotFoundError, lambda: work(other, engine), other, "NoSuchBucket", errno=errno.ENOENT)
    for answer, kind, word in [
        ("400 ExpiredToken", PermissionError, "get new credentials"),
        ("403 RequestTimeTooSkewed", PermissionError, "clock of this machine"),
        ("403 AccessDenied", PermissionError, "AWS_ACCESS_KEY_ID"),
        ("400 InvalidRequest", OSError, "InvalidRequest"),
    ]:
        store.fail(f"status {answer}")
        assert_raises(kind, lambda: work(url, engine), url, word, answer.split()[0])
    store.fail("clear")


def test_refused_credentials_are_permission_errors(store, monkeypatch):
    url = store.put("array.npy", ARRAY)
    for name, value, word in [
        ("AWS_SECRET_ACCESS_KEY", "an0ther-5ecret", "SignatureDoesNotMatch"),
        ("AWS_ACCESS_KEY_ID", "AKID5ecret", "AWS_ACCESS_KEY_ID"),
        ("AWS_SKIP_SIGNATURE", "true", "AWS_SKIP_SIGNATURE"),
    ]:
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            changed.setenv("AWS_SESSION_TOKEN", TOKEN)
            engine = ringmain.Engine()
            work = lambda engine=engine: ringmain.open_npy(url, engine=engine)
            assert_raises(PermissionError, work, url, "403", word, errno=errno.EACCES)


def test_mounted_secrets_may_end_with_a_newline(store, monkeypatch):
    url = store.put("array.npy", ARRAY)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT"):
        monkeypatch.setenv(name, f"{store.environ[name]}\n")
    np.testing.assert_array_equal(np.asarray(ringmain.open_npy(url, engine=ringmain.Engine())), ARRAY)


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("AWS_ENDPOINT", "localhost:9000", "has no scheme"),
        ("AWS_SESSION_TOKEN", f"{TOKEN}\n{TOKEN}", "control character"),
        ("AWS_ACCESS_KEY_ID", "5ecret-é", "not ASCII"),
    ],
)
def test_settings_that_cannot_be_sent_are_named(store, monkeypatch, name, value, word):
    url = store.put("array.npy", ARRAY)
    monkeypatch.setenv(name, value)
    assert_raises(ValueError, lambda: ringmain.open_npy(url, engine=ringmain.Engine()), url, name, word)
    assert store.requests() == 0


def test_credentials_that_expire_while_reading(store, engine):
    url = store.put("array.npy", ARRAY)
    view = ringmain.open_npy(url, engine=engine)
    store.fail("status 400 ExpiredToken")
    assert_raises(PermissionError, lambda: np.asarray(view), url, "get new credentials", "bytes")
    store.fail("clear")
    np.testing.assert_array_equal(np.asarray(view), ARRAY)


def test_a_server_that_is_not_there(store, engine):
    url = store.put("array.npy", ARRAY)
    store.fail("stop")
    error = assert_raises(
        ConnectionError, lambda: ringmain.open_npy(url, engine=engine), url, "cannot be reached"
    )
    assert error.filename == url
    store.fail("start")
    np.testing.assert_array_equal(np.asarray(ringmain.open_npy(url, engine=engine)), ARRAY)


def test_a_server_that_ignores_ranges_or_names_no_version(store, engine):
    url = store.put("array.npy", ARRAY)
    view = ringmain.open_npy(url, engine=engine)
    store.fail("ignore-range")
    assert_raises(OSError, lambda: np.asarray(view[3:5]), url, "ignores ranges", errno=errno.EOPNOTSUPP)
    store.fail("no-version")
    plain = f"{store.endpoint}/plain/bucket/array.npy"
    work = lambda: ringmain.open_npy(plain, engine=engine)
    assert_raises(OSError, work, "ETag", errno=errno.EOPNOTSUPP)


def test_a_body_that_ends_early_is_completed(store, engine):
    view = ringmain.open_npy(store.put("array.npy", ARRAY), engine=engine)
    store.fail("cut 100000")
    np.testing.assert_array_equal(np.asarray(view), ARRAY)
    assert engine.stats()["retries"] > 0


def test_an_object_of_no_bytes(store, engine):
    url = store.put("empty", b"")
    view = ringmain.open_raw(url, np.float32, engine=engine)
    assert view.shape == (0,) and np.asarray(view).shape == (0,)
    assert_raises(ValueError, lambda: ringmain.open_npy(url, engine=engine), url)
    assert_raises(ValueError, lambda: ringmain.ShardSource(url, engine=engine), url)
    assert_raises(ValueError, lambda: ringmain.Beton(url, engine=engine), url)
    assert_raises((OSError, ValueError), lambda: ringmain.safetensors.load_file(url, engine=engine), url)
    too_much = lambda: ringmain.open_raw(url, np.float32, (3,), engine=engine)
    assert_raises((OSError, ValueError), too_much, url)


@pytest.mark.parametrize(
    "key", ["with space.npy", "ünïcode – 文/x.npy", "100%.npy", "a%20b.npy", "a+b&=#'\"[]{}^`|~!*().npy"]
)
def test_odd_keys(store, engine, key):
    url = store.put(key, ARRAY)
    view = ringmain.open_npy(url, engine=engine)
    np.testing.assert_array_equal(np.asarray(view[5]), ARRAY[5])
    np.testing.assert_array_equal(np.asarray(pickle.loads(pickle.dumps(view))[6]), ARRAY[6])


def test_objects_are_not_written(store, tmp_path):
    url = "s3://bucket/new"
    assert_raises(ValueError, lambda: ringmain.ShardWriter(url, 3), url, "only read")
    assert_raises(ValueError, lambda: ringmain.BetonWriter(url, {"n": "int"}), url, "only read")
    file = (tmp_path / "new one.shard").as_uri()
    with ringmain.ShardWriter(file, 2) as writer:
        writer.write(np.ones((3, 2), np.float32))
    assert ringmain.ShardSource(file).total_rows == 3
