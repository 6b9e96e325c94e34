//! Iteration over epochs: everything that `ShardSource` and `BetonEpoch` share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ringmain::backends::PerProcess;
use ringmain::epochs::{EpochState, JobPlace};

use crate::arguments::type_name;
use crate::error::{Failure, Result};
use crate::gil::detached;

/// A source of the engine that Python iterates over. It has one position, so only one thread at a time
/// may use it.
pub(crate) struct Epochs<S> {
    /// Only `try_lock` is used: in a forked child the mutex may stay locked forever.
    source: Mutex<S>,
    /// False only in a forked child, until one of its threads has locked the source.
    is_locked_here: PerProcess<AtomicBool>,
    /// True if an iteration has reached the end of the epoch and the source has not been moved since.
    is_finished: AtomicBool,
    /// The name of the source in error messages.
    name: &'static str,
}

impl<S: Send> Epochs<S> {
    pub(crate) fn new(name: &'static str, source: S) -> Self {
        let is_locked_here =
            PerProcess::new(|inherited: Option<&AtomicBool>| AtomicBool::new(inherited.is_none()));
        let (source, is_finished) = (Mutex::new(source), AtomicBool::new(false));
        Self { source, is_locked_here, is_finished, name }
    }

    /// Returns the source, or an error if another thread is using it.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, S>> {
        let name = self.name;
        let is_locked_here = self.is_locked_here.get();
        let message = match self.source.try_lock() {
            Ok(source) => {
                is_locked_here.store(true, Ordering::Relaxed);
                return Ok(source);
            }
            Err(TryLockError::Poisoned(_)) => format!(
                "an earlier call of this {name} panicked, so its position is not known: make another \
                 one"
            ),
            Err(TryLockError::WouldBlock) if is_locked_here.load(Ordering::Relaxed) => format!(
                "this {name} is in use by another thread: give each thread its own, with rank and \
                 world"
            ),
            Err(TryLockError::WouldBlock) => format!(
                "this process was forked while a thread of its parent used this {name}, so its \
                 position is not known here: make another one"
            ),
        };
        Err(PyRuntimeError::new_err(message).into())
    }

    /// Moves the source to another position, which ends the reads in progress. The interpreter lock is
    /// released meanwhile.
    pub(crate) fn move_source(&self, py: Python<'_>, go: impl FnOnce(&mut S) + Send) -> Result<()> {
        self.try_move_source(py, |source| -> Result<()> {
            go(source);
            Ok(())
        })
    }

    /// Like [`move_source`](Self::move_source), with a move that may fail.
    pub(crate) fn try_move_source<E: Into<Failure> + Send>(
        &self,
        py: Python<'_>,
        go: impl FnOnce(&mut S) -> std::result::Result<(), E> + Send,
    ) -> Result<()> {
        let mut source = self.lock()?;
        let source = &mut *source;
        detached(py, || go(source))?;
        self.is_finished.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Remembers that an iteration has reached the end of the epoch.
    pub(crate) fn finish(&self) {
        self.is_finished.store(true, Ordering::Relaxed);
    }

    /// Returns whether the next iteration begins the next epoch. It does so only after an iteration has
    /// reached the end of the epoch. If a skip or a loaded state moved the source to the end, the next
    /// iteration is empty.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished.load(Ordering::Relaxed)
    }
}

/// Defines the Python methods that all iterators over epochs have, for a class with a field `epochs` of
/// type [`Epochs`] and a method `next_arrays`. The arguments are the class, its name in Python, the name of an
/// item, the tuple that `__next__` returns, and the data and options that a state must agree with.
macro_rules! epoch_methods {
    ($class:ident, $name:literal, $item:literal, $batch:literal, $same:literal) => {
        #[pymethods]
        impl $class {
            /// The number of the current epoch.
            #[getter]
            fn epoch(&self) -> Result<u64> {
                Ok(self.epochs.lock()?.epoch())
            }

            /// Returns the number of batches in an epoch.
            fn __len__(&self) -> Result<usize> {
                Ok(usize::try_from(self.epochs.lock()?.epoch_batches()).unwrap_or(usize::MAX))
            }

            /// Returns an iterator over the remaining batches of this epoch, or over the next epoch if a
            /// loop has reached the end of this one.
            fn __iter__<'py>(this: PyRef<'py, Self>, py: Python<'py>) -> Result<PyRef<'py, Self>> {
                if this.epochs.is_finished() {
                    this.epochs.move_source(py, |source| {
                        source.set_epoch(source.epoch().wrapping_add(1));
                    })?;
                }
                Ok(this)
            }

            #[doc = concat!("Returns the next ", $batch, ". After an error, the next call tries the same")]
            #[doc = "batch again."]
            fn __next__<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyTuple>>> {
                let mut source = self.epochs.lock()?;
                let arrays = self.next_arrays(py, &mut source)?;
                if arrays.is_none() {
                    self.epochs.finish();
                }
                Ok(arrays)
            }

            #[doc = concat!("Goes back to the first ", $item, " of the epoch.")]
            fn reset(&self, py: Python<'_>) -> Result<()> {
                self.epochs.move_source(py, |source| source.reset())
            }

            /// Begins the epoch with the number `epoch`. Each epoch has its own order, unless the order is
            /// sequential. If load_state_dict was called just before with a state of this epoch, the epoch
            /// continues from that state.
            fn set_epoch(
                &self,
                py: Python<'_>,
                #[pyo3(from_py_with = $crate::arguments::epoch)] epoch: u64,
            ) -> Result<()> {
                self.epochs.move_source(py, |source| source.set_epoch(epoch))
            }

            /// Skips this number of batches without reading them, or the rest of the epoch if fewer are
            /// left.
            fn skip_batches(
                &self,
                py: Python<'_>,
                #[pyo3(from_py_with = $crate::arguments::batches)] batches: u64,
            ) -> Result<()> {
                self.epochs.move_source(py, |source| source.skip_batches(batches))
            }

            /// Returns the position in the epoch as a plain dict. With `global_batch`, it is the position of the
            /// whole job.
            fn state_dict<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
                $crate::epochs::state_to_dict(py, &self.epochs.lock()?.state())
            }

            #[doc = "Continues from a state, in the epoch of the state. The state must come from"]
            #[doc = $same]
            fn load_state_dict(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> Result<()> {
                let state = $crate::epochs::state_from_dict($name, state)?;
                self.epochs.try_move_source(py, |source| source.resume(&state))
            }
        }
    };
}
pub(crate) use epoch_methods;

/// Builds the options of a source, a `ShardOptions` or a `SampleOptions`, from the arguments that both have in
/// Python. The arguments of the macro are the options so far, the struct of arguments, and the argument that holds
/// the size of a batch.
macro_rules! with_epoch_arguments {
    ($options:expr, $arguments:expr, $batch_size:ident) => {{
        let mut options = $options
            .order($arguments.order()?)
            .drop_last($arguments.drop_last)
            .partition($arguments.rank, $arguments.world)
            .worker($arguments.worker, $arguments.workers)
            .nodes($arguments.nodes);
        if let Some(items) = $arguments.$batch_size {
            options = options.batch_size(items);
        }
        if let Some(items) = $arguments.global_batch {
            options = options.global_batch(items);
        }
        if let Some(bytes) = $arguments.prefetch_bytes {
            options = options.prefetch_window_bytes(bytes);
        }
        if let Some(seconds) = $arguments.patience {
            options = options.memory_patience($crate::arguments::waiting_time(seconds)?);
        }
        options
    }};
}
pub(crate) use with_epoch_arguments;

/// Returns a state as a plain dict.
pub(crate) fn state_to_dict<'py>(py: Python<'py>, state: &EpochState) -> Result<Bound<'py, PyAny>> {
    let json = serde_json::to_string(state).map_err(|error| Failure::value(error.to_string()))?;
    Ok(py.import("json")?.call_method1("loads", (json,))?)
}

/// Parses a dict that [`state_to_dict`] returned. `class` is the Python class that has the state.
pub(crate) fn state_from_dict(class: &str, state: &Bound<'_, PyAny>) -> Result<EpochState> {
    // The parser's own errors are about lines and columns of a text that the caller never sees.
    let invalid = || {
        Failure::value(format!(
            "this is not a valid state of a {class}: pass a dict that its state_dict() returned"
        ))
    };
    let state: &Bound<'_, PyDict> = state.cast().map_err(|_| {
        let kind = type_name(state);
        Failure::type_(format!("state must be a dict that state_dict() returned, not {kind}"))
    })?;
    let json = state.py().import("json")?;
    let text = json.call_method1("dumps", (state,)).map_err(|_| invalid())?;
    serde_json::from_str(&text.extract::<String>()?).map_err(|_| invalid())
}

/// Returns the state of a job from the states of all workers of a rank.
#[pyfunction]
pub(crate) fn _state_of_workers<'py>(
    py: Python<'py>,
    states: Vec<Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyAny>> {
    let states: Vec<EpochState> = states
        .iter()
        .map(|state| state_from_dict("dataset with a global_batch", state))
        .collect::<Result<_>>()?;
    state_to_dict(py, &EpochState::of_workers(&states)?)
}

/// A rank, the number of ranks, the node, and the number of nodes, which is `None` if the ranks would not agree about it.
type Place = (u64, u64, u64, Option<u64>);

/// Returns the place that a launcher has set in the environment, or `None`.
#[pyfunction]
pub(crate) fn _place_of_environment() -> Result<Option<Place>> {
    let place = JobPlace::from_env()?;
    Ok(place.map(|place| (place.rank(), place.world(), place.node(), place.nodes().ok())))
}

/// Returns the number of nodes that a launcher has set in the environment, or an error if the ranks would not agree
/// about it.
#[pyfunction]
pub(crate) fn _nodes_of_environment() -> Result<u64> {
    Ok(JobPlace::from_env()?.map_or(Ok(1), |place| place.nodes())?)
}

/// Returns the number of nodes, or an error if the ranks would not agree about it.
#[pyfunction]
pub(crate) fn _nodes_of(
    rank: u64,
    world: u64,
    node: u64,
    local_rank: u64,
    local_world: u64,
) -> Result<u64> {
    Ok(JobPlace::new(rank, world)?.on_node(node, local_rank, local_world).nodes()?)
}

/// Returns the error for an epoch that `drop_last` would leave without any batch, for every rank.
pub(crate) fn no_full_batch(argument: &str, batch_items: u64, items: &str) -> Failure {
    Failure::value(format!(
        "drop_last leaves out batches of fewer than {argument}={batch_items} {items}, and no batch has \
         that many: the epoch would be empty; pass a smaller {argument}"
    ))
}
