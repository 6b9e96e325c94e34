//! `Engine`: a backend and a memory limit, and the one that all share who ask for none.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use ringmain::{BackendKind, Engine, Residency};

use crate::error::{Failure, Result};
use crate::gil::detached;

/// Reads files through one backend, within one memory limit.
#[pyclass(frozen, module = "ringmain", name = "Engine", weakref)]
#[derive(Debug)]
pub(crate) struct PyEngine {
    pub(crate) engine: Engine,
    /// Reads what is in the page cache; with a backend that goes past it.
    pub(crate) cached: Option<Engine>,
    options: Options,
}

/// What was asked for: all that a pickle carries.
#[derive(Clone, Debug)]
struct Options {
    backend: String,
    memory_limit: Option<usize>,
    depth: Option<usize>,
    chunk_bytes: Option<usize>,
    residency: Option<String>,
    open_files: Option<usize>,
}

impl Options {
    fn build(&self, kind: BackendKind) -> Result<Engine> {
        let mut builder = Engine::builder().backend(kind);
        if let Some(bytes) = self.memory_limit {
            builder = builder.memory_limit_bytes(bytes);
        }
        if let Some(depth) = self.depth {
            builder = builder.depth_max(depth);
        }
        if let Some(bytes) = self.chunk_bytes {
            builder = builder.chunk_bytes(bytes);
        }
        if let Some(count) = self.open_files {
            builder = builder.open_files_max(count);
        }
        builder = match self.residency.as_deref() {
            None => builder,
            Some("keep") => builder.residency(Residency::Keep),
            Some("release") => builder.residency(Residency::Release),
            Some(other) => {
                let message =
                    format!("residency cannot be {other:?}: it is \"keep\" or \"release\"");
                return Err(Failure::value(message));
            }
        };
        Ok(builder.build()?)
    }
}

#[pymethods]
impl PyEngine {
    #[new]
    #[pyo3(signature = (backend="auto", *, memory_limit=None, depth=None, chunk_bytes=None,
                        residency=None, open_files=None))]
    fn new(
        py: Python<'_>,
        backend: &str,
        memory_limit: Option<usize>,
        depth: Option<usize>,
        chunk_bytes: Option<usize>,
        residency: Option<String>,
        open_files: Option<usize>,
    ) -> Result<Self> {
        let backend = backend.to_owned();
        let options = Options { backend, memory_limit, depth, chunk_bytes, residency, open_files };
        detached(py, || Self::open(options))
    }

    /// Which backend reads, what it can do, and what it had to do without: a line for people.
    fn describe(&self) -> String {
        self.engine.describe().to_string()
    }

    /// The name of the backend.
    #[getter]
    fn backend(&self) -> &'static str {
        self.engine.backend().kind().name()
    }

    /// The limit on the memory of all buffers, in bytes.
    #[getter]
    fn memory_limit(&self) -> usize {
        self.engine.describe().memory_limit_bytes
    }

    /// The bytes of the pool that arrays hold, that wait to be used again, and that there can be.
    fn pool_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.engine.pool().stats();
        let dict = PyDict::new(py);
        dict.set_item("in_use_bytes", stats.in_use_bytes)?;
        dict.set_item("idle_bytes", stats.idle_bytes)?;
        dict.set_item("limit_bytes", stats.limit_bytes)?;
        dict.set_item("fresh", stats.fresh)?;
        dict.set_item("recycled", stats.recycled)?;
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        format!("Engine({})", self.describe())
    }
}

impl PyEngine {
    fn open(options: Options) -> Result<Self> {
        let kind: BackendKind = options.backend.parse()?;
        let engine = options.build(kind)?;
        let cached =
            if kind == BackendKind::Auto && engine.describe().capabilities.bypasses_page_cache {
                // Only its backend is used: buffers come from the pool of the other.
                let options = Options { memory_limit: Some(8192), ..options.clone() };
                Some(options.build(BackendKind::Pread)?)
            } else {
                None
            };
        Ok(Self { engine, cached, options })
    }

    /// The engine given, or the one that is shared by all who give none.
    pub(crate) fn or_default(py: Python<'_>, given: Option<Bound<'_, Self>>) -> Result<Py<Self>> {
        static DEFAULT: PyOnceLock<Py<PyEngine>> = PyOnceLock::new();
        if let Some(engine) = given {
            return Ok(engine.unbind());
        }
        let make = || -> Result<_> {
            Ok(Py::new(py, Self::new(py, "auto", None, None, None, None, None)?)?)
        };
        Ok(DEFAULT.get_or_try_init(py, make)?.clone_ref(py))
    }
}

/// What this kernel, the filesystem of `path` and each backend on it can do, found by trying.
/// Without a path, that of this package.
#[pyfunction]
#[pyo3(signature = (path=None))]
pub(crate) fn probe(py: Python<'_>, path: Option<PathBuf>) -> Result<Bound<'_, PyAny>> {
    let path = match path {
        Some(path) => path,
        None => py.import("ringmain")?.getattr("__file__")?.extract()?,
    };
    let found = detached(py, || ringmain::backends::probe::probe(&path))?;
    let text = serde_json::to_string(&found).map_err(|error| Failure::value(error.to_string()))?;
    Ok(py.import("json")?.call_method1("loads", (text,))?)
}
