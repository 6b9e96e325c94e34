//! `Engine`, a backend with a memory limit, and `probe`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};
use ringmain::{Access, Engine, Recording, Residency, Warmth};

use crate::arguments::{self, choose};
use crate::error::{Failure, Result};
use crate::gil::detached;
use crate::path::{FilePath, absolute, writable};
use crate::shared_engines;
use crate::stores::{EngineCache, with_stores};

/// Reads files through one backend, within one memory limit.
///
/// backend: "auto", "pread", "mmap", "direct", "uring", "uncached" or "tokio-uring". "auto", the default,
///     chooses for every read: it copies data that is in the page cache, and reads the rest from the
///     device.
/// memory_limit: the limit on all buffers, in bytes. The default is 512 MiB, or a quarter of the memory of
///     the machine or container if that is less, and at least 64 MiB. Memory is only allocated when it
///     is used. About half of the limit is for arrays and batches, the rest for the backend's own buffers.
/// depth: the largest number of requests to the device that a batch keeps in flight; 128 by default.
/// chunk_bytes: the size of the largest request to the device; 1 MiB by default.
/// residency: whether "mmap" keeps the pages that it has read in memory: "keep", the default, or "release".
/// open_files: the largest number of files that stay open. The default is an eighth of the limit of the
///     process (`ulimit -n`), but at least 16 and at most 512.
/// warmth: whether data that "auto" reads stays in the page cache, so that the next read copies it from
///     memory. "auto", the default, keeps the data of epochs if it fits in the available memory. "keep"
///     keeps all data. "leave" reads cold data past the page cache.
/// access: the order in which files are read, which decides how far the kernel reads ahead. With "random"
///     the kernel reads nothing ahead; with "sequential" it reads further ahead than usual. "as-it-comes",
///     the default, leaves the choice to the kernel.
/// threads: the largest number of threads that copy one large batch from the page cache, the calling one
///     included; 8 by default.
/// profile: the path of a profile of `ringmain recommend --save`, which "auto" follows. "off" ignores the
///     profile that the user has saved, which is the default.
/// record: the path of a new file to which every read is recorded, for `ringmain bench --trace`. The file is
///     complete after `finish_recording()`, or when the program ends. Other processes do not record: neither
///     forked ones nor those that unpickle the engine.
/// disk_cache: a folder on a fast local disk that keeps what is read of objects in stores, for the next read and
///     the next program. It needs disk_cache_limit. Local files are not kept.
/// disk_cache_limit: the bytes that the cache may have on the disk. Processes that share the folder use the same.
///
/// Paths can be URLs of object stores everywhere: s3://bucket/key, gs://, az://, abfss://, https://. Credentials,
/// region and endpoint come from the environment: AWS_ACCESS_KEY_ID, AWS_ENDPOINT and the like.
#[pyclass(frozen, module = "ringmain", name = "Engine", weakref)]
#[derive(Debug)]
pub(crate) struct PyEngine {
    pub(crate) engine: Engine,
    options: Options,
    disk_cache: Option<EngineCache>,
    /// Identifies the engine across processes.
    token: String,
}

/// The options as the caller gave them. A pickle contains these and the token.
#[derive(Clone, Debug, Default, FromPyObject, IntoPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    backend: String,
    memory_limit: Option<usize>,
    pub(crate) depth: Option<usize>,
    pub(crate) chunk_bytes: Option<usize>,
    residency: Option<String>,
    open_files: Option<usize>,
    warmth: Option<String>,
    access: Option<String>,
    threads: Option<usize>,
    profile: Option<PathBuf>,
    disk_cache: Option<PathBuf>,
    disk_cache_limit: Option<u64>,
}

/// The memory limit of engines whose caller sets none. About half of it is for batches, including those
/// that are read ahead, so it holds several batches of 256 images of 100 KB. Memory is only allocated
/// when it is used.
const MEMORY_LIMIT_BYTES: usize = 512 << 20;
const MEMORY_LIMIT_BYTES_MIN: usize = 64 << 20;

/// Returns `MEMORY_LIMIT_BYTES`, or a quarter of the memory of the machine or container if that is less, but
/// at least `MEMORY_LIMIT_BYTES_MIN`.
fn default_memory_limit_bytes() -> usize {
    let quarter = total_memory_bytes().map_or(MEMORY_LIMIT_BYTES, |bytes| bytes / 4);
    quarter.clamp(MEMORY_LIMIT_BYTES_MIN, MEMORY_LIMIT_BYTES)
}

/// Returns the memory of the machine, or the limit of the container if that is less. Returns `None`
/// if the memory of the machine is unknown.
fn total_memory_bytes() -> Option<usize> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let machine = kib.saturating_mul(1024);
    // The file contains "max" if there is no limit.
    let container = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let container = container.and_then(|text| text.trim().parse().ok());
    Some(container.map_or(machine, |limit: usize| limit.min(machine)))
}

impl Options {
    fn build(&self, record: Option<PathBuf>) -> Result<(Engine, Option<EngineCache>)> {
        let mut builder = Engine::builder().backend(self.backend.parse()?);
        let memory_limit = self.memory_limit.unwrap_or_else(default_memory_limit_bytes);
        builder = builder.memory_limit_bytes(memory_limit);
        if let Some(depth) = self.depth {
            builder = builder.depth_max(depth);
        }
        if let Some(bytes) = self.chunk_bytes {
            builder = builder.chunk_bytes(bytes);
        }
        if let Some(count) = self.open_files {
            builder = builder.open_files_max(count);
        }
        if let Some(name) = &self.residency {
            builder = builder.residency(choose("residency", name, &RESIDENCIES)?);
        }
        if let Some(name) = &self.warmth {
            builder = builder.warmth(choose("warmth", name, &WARMTHS)?);
        }
        if let Some(name) = &self.access {
            builder = builder.access(choose("access", name, &ACCESSES)?);
        }
        if let Some(threads) = self.threads {
            builder = builder.threads_max(threads);
        }
        match &self.profile {
            None => {}
            Some(path) if is_off(path) => builder = builder.ignore_profile(),
            Some(path) => builder = builder.profile(path),
        }
        if let Some(path) = record {
            builder = builder.record(path);
        }
        let (builder, cache) = with_stores(builder, memory_limit, self)?;
        Ok((builder.build()?, cache))
    }

    /// The folder of the disk cache and its limit in bytes.
    pub(crate) fn disk_cache(&self) -> Result<Option<(&Path, u64)>> {
        match (&self.disk_cache, self.disk_cache_limit) {
            (Some(folder), Some(limit_bytes)) => Ok(Some((folder, limit_bytes))),
            (None, None) => Ok(None),
            _ => {
                let message = "give disk_cache and disk_cache_limit together: a folder, and the most bytes that it may hold";
                Err(Failure::value(message))
            }
        }
    }
}

/// Returns whether the argument `profile` is the word for no profile.
fn is_off(profile: &Path) -> bool {
    profile.as_os_str() == "off"
}

/// Returns an error if there is no profile at this path. The engine itself would ignore that, because the
/// user's own profile need not exist.
fn check_profile(path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let message = "there is no profile here; `ringmain recommend --save` writes one";
            Err(Failure::missing(path, message))
        }
        _ => Ok(()),
    }
}

const RESIDENCIES: [(&str, Residency); 2] =
    [("keep", Residency::Keep), ("release", Residency::Release)];

const WARMTHS: [(&str, Warmth); 3] =
    [("auto", Warmth::Auto), ("keep", Warmth::Keep), ("leave", Warmth::Leave)];

const ACCESSES: [(&str, Access); 3] = [
    ("as-it-comes", Access::AsItComes),
    ("random", Access::Random),
    ("sequential", Access::Sequential),
];

#[pymethods]
impl PyEngine {
    #[new]
    #[pyo3(signature = (backend="auto", *, memory_limit=None, depth=None, chunk_bytes=None,
                        residency=None, open_files=None, warmth=None, access=None, threads=None,
                        profile=None, record=None, disk_cache=None, disk_cache_limit=None))]
    #[allow(clippy::too_many_arguments)] // in Python the arguments have names
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::backend)] backend: &str,
        #[pyo3(from_py_with = arguments::memory_limit)] memory_limit: Option<usize>,
        #[pyo3(from_py_with = arguments::depth)] depth: Option<usize>,
        #[pyo3(from_py_with = arguments::chunk_bytes)] chunk_bytes: Option<usize>,
        #[pyo3(from_py_with = arguments::residency)] residency: Option<String>,
        #[pyo3(from_py_with = arguments::open_files)] open_files: Option<usize>,
        #[pyo3(from_py_with = arguments::warmth)] warmth: Option<String>,
        #[pyo3(from_py_with = arguments::access)] access: Option<String>,
        #[pyo3(from_py_with = arguments::threads)] threads: Option<usize>,
        profile: Option<FilePath>,
        record: Option<FilePath>,
        disk_cache: Option<FilePath>,
        #[pyo3(from_py_with = arguments::disk_cache_limit)] disk_cache_limit: Option<u64>,
    ) -> Result<Self> {
        let profile = profile.map(|path| path.0);
        if let Some(path) = profile.as_deref().filter(|path| !is_off(path)) {
            check_profile(path)?;
        }
        let options = Options {
            backend: backend.to_owned(),
            memory_limit,
            depth,
            chunk_bytes,
            residency,
            open_files,
            warmth,
            access,
            threads,
            profile,
            // A worker that unpickles the engine may have another working directory.
            disk_cache: disk_cache.map(|path| absolute(&writable(&path.0)?)).transpose()?,
            disk_cache_limit,
        };
        let opened = Self::open(py, options, None, record.map(|path| path.0))?;
        if let Some(recording) = opened.engine.recording() {
            let end = RecordingEnd(recording.clone());
            py.import("atexit")?.call_method1("register", (Bound::new(py, end)?,))?;
        }
        Ok(opened)
    }

    /// Ends the recording that the argument `record` began, and returns a dict: its path, and the numbers of
    /// batches, reads and bytes in it. "stopped" says why it ended before, for example because the disk was
    /// full; otherwise it is None.
    fn finish_recording<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let recording = self.engine.recording().ok_or_else(|| {
            Failure::value("this engine does not record; give Engine the argument `record`")
        })?;
        let status = detached(py, || Ok::<_, Failure>(recording.finish()))?;
        let dict = PyDict::new(py);
        dict.set_item("path", status.path)?;
        dict.set_item("batches", status.batches)?;
        dict.set_item("reads", status.reads)?;
        dict.set_item("bytes", status.bytes)?;
        dict.set_item("stopped", status.stopped)?;
        Ok(dict)
    }

    /// Returns a dict of what the disk cache did for this process: the parts of reads that came from it ("hits",
    /// "hit_bytes") and that did not ("misses", "miss_bytes"), the blocks that were stored and evicted, and those that
    /// were found to be damaged. "not_admitted" counts parts of reads whose blocks were not stored because the cache is
    /// full of blocks in use. "degraded" says why blocks are not stored or not read now; otherwise it is None.
    fn disk_cache_stats<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let cache = self.disk_cache.as_ref().ok_or_else(|| {
            Failure::value(
                "this engine has no disk cache; give Engine the arguments disk_cache and disk_cache_limit",
            )
        })?;
        let (counters, degraded) = cache.counters();
        let dict = counters.into_py_dict(py)?;
        dict.set_item("degraded", degraded)?;
        Ok(dict)
    }

    /// Returns a description for people: the backend, what it can do, and which features are missing
    /// here. For "auto" it names the backends that "auto" chooses from.
    ///
    /// path: a file. The description then says how the engine would read that file, and why.
    #[pyo3(signature = (path=None))]
    fn describe(&self, py: Python<'_>, path: Option<FilePath>) -> Result<String> {
        match path {
            None => Ok(self.engine.describe().to_string()),
            Some(FilePath(path)) => detached(py, || self.engine.describe_file(path)),
        }
    }

    /// Returns a dict of counters since the engine was made: batches, reads and bytes in total; reads and
    /// bytes from the page cache, from the device and through aligned buffers; how often "auto" asked the
    /// kernel what is in the page cache, and how often it wrongly took a read for cached; retries and open
    /// files. "batch_seconds" has quantiles of the time per batch. Only batches of eight reads or more and
    /// one in sixteen of the smaller ones are timed; the quantiles are None before the first of them.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.engine.stats();
        let (ways, handles) = (&stats.ways, &stats.ways.handles);
        let dict = [
            ("batches", stats.batches),
            ("reads", stats.total.reads),
            ("bytes", stats.total.bytes),
            ("cache_reads", ways.cache.reads),
            ("cache_bytes", ways.cache.bytes),
            ("device_reads", ways.device.reads),
            ("device_bytes", ways.device.bytes),
            ("bounced_requests", ways.bounced.reads),
            ("bounced_bytes", ways.bounced.bytes),
            ("questions", ways.questions),
            ("wrong_estimates", ways.wrong_estimates),
            ("retries", ways.retries),
            ("fallbacks", ways.fallbacks),
            ("handle_hits", handles.hits),
            ("handle_misses", handles.misses),
            ("handle_evictions", handles.evictions),
            ("open_files", handles.open as u64),
        ]
        .into_py_dict(py)?;
        let latency = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)]
            .map(|(name, part)| (name, stats.latency.quantile(part).map(|it| it.as_secs_f64())));
        dict.set_item("batch_seconds", latency.into_py_dict(py)?)?;
        Ok(dict)
    }

    /// The name of the backend that the engine was made with. "auto" stays "auto", because it chooses for
    /// every read; `describe()` names the backends that it chooses from.
    #[getter]
    fn backend(&self) -> &'static str {
        self.engine.backend().kind().name()
    }

    /// The limit on all buffers, in bytes.
    #[getter]
    fn memory_limit(&self) -> usize {
        self.engine.describe().memory_limit_bytes
    }

    /// Returns a dict about the pool of buffers for arrays and batches, which may use about half of the
    /// memory limit. "in_use_bytes" are held by arrays and batches, "idle_bytes" wait for their next use, and
    /// "limit_bytes" is the limit of the pool. "fresh" and "recycled" count the buffers that were newly
    /// allocated and those that were used again.
    fn pool_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.engine.pool().stats();
        [
            ("in_use_bytes", stats.in_use_bytes as u64),
            ("idle_bytes", stats.idle_bytes as u64),
            ("limit_bytes", stats.limit_bytes as u64),
            ("fresh", stats.fresh),
            ("recycled", stats.recycled),
        ]
        .into_py_dict(py)
    }

    /// Returns the token and the options. A process that unpickles several views of one engine makes
    /// only one engine. In a process where the original engine still exists, unpickling returns it.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Result<(Bound<'py, PyAny>, (String, Options))> {
        let py = slf.py();
        let Self { token, options, .. } = slf.get();
        shared_engines::remember(token, slf)?;
        let make = py.import("ringmain._ringmain")?.getattr("_engine")?;
        Ok((make, (token.clone(), options.clone())))
    }

    fn __repr__(&self) -> String {
        format!("Engine({})", self.engine.describe())
    }
}

impl PyEngine {
    pub(crate) fn open(
        py: Python<'_>,
        options: Options,
        token: Option<String>,
        record: Option<PathBuf>,
    ) -> Result<Self> {
        let token = match token {
            Some(token) => token,
            None => py.import("uuid")?.call_method0("uuid4")?.str()?.to_string(),
        };
        let (engine, disk_cache) = detached(py, || options.build(record))?;
        Ok(Self { engine, options, disk_cache, token })
    }

    /// Returns a new engine with the default options.
    pub(crate) fn plain(py: Python<'_>, backend: &str) -> Result<Py<Self>> {
        let options = Options { backend: backend.to_owned(), ..Options::default() };
        Ok(Py::new(py, Self::open(py, options, None, None)?)?)
    }
}

/// Ends a recording when the interpreter ends. The interpreter does not drop every object then, and the last lines
/// of the recording would be missing.
#[pyclass(frozen)]
struct RecordingEnd(Recording);

#[pymethods]
impl RecordingEnd {
    fn __call__(&self) {
        self.0.finish();
    }
}

/// Tests what this kernel, a filesystem and each backend on that filesystem can do, and returns the
/// results as a dict.
///
/// path: a file or folder on the filesystem; by default the folder of this package.
#[pyfunction]
#[pyo3(signature = (path=None))]
pub(crate) fn probe(py: Python<'_>, path: Option<FilePath>) -> Result<Bound<'_, PyAny>> {
    let path = match path {
        Some(FilePath(path)) => path,
        None => py.import("ringmain")?.getattr("__file__")?.extract()?,
    };
    let found = detached(py, || ringmain::probe(&path))?;
    let text = serde_json::to_string(&found).map_err(|error| Failure::value(error.to_string()))?;
    Ok(py.import("json")?.call_method1("loads", (text,))?)
}
