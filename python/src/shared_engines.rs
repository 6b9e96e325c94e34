//! The engines that callers share: the default one, those that are named by their backends, and those of pickles.

use pyo3::Borrowed;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use crate::arguments::type_name;
use crate::engine::{Options, PyEngine};
use crate::error::{Failure, Result};

impl PyEngine {
    /// Returns the engine that a pickle contains, or `None` for the default engine: each process has its own.
    pub(crate) fn for_pickle(py: Python<'_>, engine: &Py<Self>) -> Option<Py<Self>> {
        let is_default = DEFAULT.get(py).is_some_and(|default| default.is(engine));
        (!is_default).then(|| engine.clone_ref(py))
    }

    /// Returns the engine that the caller gave or named, or else the engine that is shared by default.
    pub(crate) fn or_default(
        py: Python<'_>,
        engine: Option<EngineArgument<'_>>,
    ) -> Result<Py<Self>> {
        match engine {
            Some(EngineArgument::Engine(engine)) => Ok(engine.unbind()),
            Some(EngineArgument::Backend(name)) if name != "auto" => Self::named(py, &name),
            _ => {
                let make = || Self::plain(py, "auto");
                Ok(DEFAULT.get_or_try_init(py, make)?.clone_ref(py))
            }
        }
    }

    /// Like [`or_default`](Self::or_default), but the argument `backend` can name the backend too.
    pub(crate) fn of(
        py: Python<'_>,
        engine: Option<EngineArgument<'_>>,
        backend: Option<String>,
    ) -> Result<Py<Self>> {
        match (engine, backend) {
            (Some(_), Some(_)) => {
                Err(Failure::value("give engine or backend, not both: an engine has a backend"))
            }
            (engine, backend) => {
                Self::or_default(py, engine.or(backend.map(EngineArgument::Backend)))
            }
        }
    }

    /// Returns the engine that is shared by all callers who name this backend.
    fn named(py: Python<'_>, backend: &str) -> Result<Py<Self>> {
        static NAMED: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
        let named = NAMED.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
        if let Some(engine) = named.get_item(backend)? {
            return Ok(engine.cast_into::<Self>()?.unbind());
        }
        let engine = Self::plain(py, backend)?;
        named.set_item(backend, &engine)?;
        Ok(engine)
    }
}

/// The argument `engine`: an `Engine`, or the name of a backend.
pub(crate) enum EngineArgument<'py> {
    Engine(Bound<'py, PyEngine>),
    Backend(String),
}

impl<'py> FromPyObject<'_, 'py> for EngineArgument<'py> {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(engine) = value.cast::<PyEngine>() {
            return Ok(Self::Engine(engine.to_owned()));
        }
        value.extract().map(Self::Backend).map_err(|_| {
            let kind = type_name(&value);
            Failure::type_(format!(
                "engine must be a ringmain.Engine or the name of a backend, such as \"uring\", \
                 not {kind}"
            ))
            .into()
        })
    }
}

/// The engine that is shared by all callers who give none.
static DEFAULT: PyOnceLock<Py<PyEngine>> = PyOnceLock::new();

/// Returns the living engines that were pickled or unpickled, by token.
fn known(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static KNOWN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let new_dict = || py.import("weakref")?.call_method0("WeakValueDictionary").map(Bound::unbind);
    Ok(KNOWN.get_or_try_init(py, new_dict)?.bind(py))
}

/// Lets a process that still has the engine find it when it unpickles it.
pub(crate) fn remember(token: &str, engine: &Bound<'_, PyEngine>) -> PyResult<()> {
    known(engine.py())?.set_item(token, engine)
}

/// How many unpickled engines stay alive after their last use. Without this, a worker that unpickles a view
/// for each task would make an engine for each task.
const KEPT_ENGINES: usize = 4;

/// Keeps an engine alive until this function has been called for `KEPT_ENGINES` other engines.
fn keep(engine: &Bound<'_, PyEngine>) -> PyResult<()> {
    static KEPT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = engine.py();
    let new_deque = || {
        let kept = PyTuple::empty(py);
        py.import("collections")?.call_method1("deque", (kept, KEPT_ENGINES)).map(Bound::unbind)
    };
    KEPT.get_or_try_init(py, new_deque)?.bind(py).call_method1("append", (engine,))?;
    Ok(())
}

/// Returns the engine of a pickle: the original engine if it is still alive, else a new one with the
/// same options.
#[pyfunction]
pub(crate) fn _engine(py: Python<'_>, token: String, options: Options) -> Result<Bound<'_, PyAny>> {
    let found = known(py)?.call_method1("get", (&token,))?;
    if !found.is_none() {
        return Ok(found);
    }
    let engine = Bound::new(py, PyEngine::open(py, options, Some(token.clone()), None)?)?;
    remember(&token, &engine)?;
    keep(&engine)?;
    Ok(engine.into_any())
}
