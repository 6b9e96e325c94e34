//! What an iterator of Python's reads from: one position, which one thread at a time may move.

use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{Failure, Result};
use crate::gil::detached;

/// How often Ctrl-C is looked for.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// Waits without the interpreter lock, in parts between which Ctrl-C raises `KeyboardInterrupt`.
pub(crate) fn in_parts<T: Send, E: Into<Failure> + Send>(
    py: Python<'_>,
    mut wait: impl FnMut(Duration) -> Poll<std::result::Result<T, E>> + Send,
) -> Result<T> {
    loop {
        if let Poll::Ready(outcome) = py.detach(|| wait(SIGNALS_EVERY)) {
            return outcome.map_err(Into::into);
        }
        py.check_signals()?;
    }
}

/// A source of batches.
pub(crate) struct Position<S> {
    /// Only ever tried: a fork may have left it locked for ever.
    source: Mutex<S>,
    /// The process of the last one who had it.
    process_id: AtomicU32,
    /// An iteration has reached the end of the epoch, and the source was not moved since.
    is_finished: AtomicBool,
    /// What it is called in errors.
    name: &'static str,
}

impl<S: Send> Position<S> {
    pub(crate) fn new(name: &'static str, source: S) -> Self {
        let (source, process_id) = (Mutex::new(source), AtomicU32::new(process::id()));
        Self { source, process_id, is_finished: AtomicBool::new(false), name }
    }

    /// The source, unless another thread is waiting for a batch of it.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, S>> {
        let name = self.name;
        if let Ok(source) = self.source.try_lock() {
            self.process_id.store(process::id(), Ordering::Relaxed);
            return Ok(source);
        }
        let message = if self.process_id.load(Ordering::Relaxed) == process::id() {
            format!(
                "this {name} is in use by another thread: give each thread its own, with rank and \
                 world"
            )
        } else {
            format!(
                "this process was forked while a thread of its parent waited for a batch of this \
                 {name}, so where it stands is not known here: make another one"
            )
        };
        Err(PyRuntimeError::new_err(message).into())
    }

    /// Does something with the source that takes its time.
    pub(crate) fn with<T: Send, E: Into<Failure> + Send>(
        &self,
        py: Python<'_>,
        go: impl FnOnce(&mut S) -> std::result::Result<T, E> + Send,
    ) -> Result<T> {
        let mut source = self.lock()?;
        let source = &mut *source;
        let outcome = detached(py, || go(source))?;
        self.is_finished.store(false, Ordering::Relaxed);
        Ok(outcome)
    }

    /// Remembers that an iteration has reached the end of the epoch.
    pub(crate) fn finish(&self) {
        self.is_finished.store(true, Ordering::Relaxed);
    }

    /// Whether the next iteration begins the next epoch. A source that was moved to the end of an
    /// epoch, by a skip or a state, has no batches left, and its iteration is empty.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished.load(Ordering::Relaxed)
    }

    /// Moves the source, which ends what is being read.
    pub(crate) fn go(&self, py: Python<'_>, go: impl FnOnce(&mut S) + Send) -> Result<()> {
        self.with(py, |source| -> Result<()> {
            go(source);
            Ok(())
        })
    }
}

/// A state, which was written as JSON, as a plain dict.
pub(crate) fn state_dict(
    py: Python<'_>,
    json: serde_json::Result<String>,
) -> Result<Bound<'_, PyAny>> {
    let json = json.map_err(|error| Failure::value(error.to_string()))?;
    Ok(py.import("json")?.call_method1("loads", (json,))?)
}

/// Such a dict as JSON.
pub(crate) fn state_json(state: &Bound<'_, PyDict>) -> Result<String> {
    let json = state.py().import("json")?;
    let text = json.call_method1("dumps", (state,)).map_err(|error| no_state(&error))?;
    Ok(text.extract()?)
}

/// The error that a dict is no state.
pub(crate) fn no_state(error: &dyn std::fmt::Display) -> Failure {
    Failure::value(format!("this is no state: {error}"))
}
