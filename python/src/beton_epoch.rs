//! `BetonEpoch`: the batches of an epoch of a dataset.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use ringmain::beton::{Batch, Damaged, SampleSource};

use crate::beton::{PyBeton, read};
use crate::beton_batch::{self, Shown};
use crate::error::Result;
use crate::gil::detached;
use crate::given;
use crate::position::{self, Position};

/// The batches of an epoch of a dataset: an iterator of `(batch, ids)`.
#[pyclass(frozen, module = "ringmain", name = "BetonEpoch")]
pub(crate) struct PyBetonEpoch {
    source: Position<SampleSource>,
    beton: Py<PyBeton>,
    /// What `Beton.epoch` was called with, apart from the epoch.
    options: Py<PyDict>,
    damaged: Damaged,
    /// The samples that were read, but whose images or texts are none.
    left_out: AtomicU64,
}

#[pymethods]
impl PyBetonEpoch {
    /// The batches of the epoch, as long as no damaged samples are left out.
    fn __len__(&self) -> Result<usize> {
        Ok(usize::try_from(self.source.lock()?.epoch_batches()).unwrap_or(usize::MAX))
    }

    /// The samples of a batch; the last may have fewer.
    #[getter]
    fn batch_size(&self) -> Result<usize> {
        Ok(self.source.lock()?.batch_size())
    }

    /// How many damaged samples were left out so far.
    #[getter]
    fn left_out(&self) -> Result<u64> {
        Ok(self.source.lock()?.left_out() + self.left_out.load(Ordering::Relaxed))
    }

    /// The batches that are left in this epoch; after a loop to its end, those of the next epoch.
    fn __iter__<'py>(this: PyRef<'py, Self>, py: Python<'py>) -> Result<PyRef<'py, Self>> {
        if this.source.is_finished() {
            this.source.go(py, |source| source.set_epoch(source.epoch().wrapping_add(1)))?;
        }
        Ok(this)
    }

    /// The number of the epoch.
    #[getter]
    fn epoch(&self) -> Result<u64> {
        Ok(self.source.lock()?.epoch())
    }

    /// The next `(batch, ids)`. After an error it tries the same batch again.
    fn __next__<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyTuple>>> {
        let mut source = self.source.lock()?;
        let source = &mut *source;
        loop {
            let before = source.state();
            let next = position::in_parts(py, |timeout| source.next_batch_within(timeout))?;
            let Some(batch) = next else {
                self.source.finish();
                return Ok(None);
            };
            match self.show(py, batch) {
                Ok(Some(Shown { fields, ids })) => {
                    return Ok(Some(PyTuple::new(py, [fields.into_any(), ids.into_any()])?));
                }
                Ok(None) => {}
                Err(failure) => {
                    detached(py, || {
                        source.resume(&before)?;
                        // Not a resume that `set_epoch` would go on from.
                        source.skip_items(0);
                        Ok::<(), ringmain::Error>(())
                    })?;
                    return Err(failure);
                }
            }
        }
    }

    /// Back to the first sample.
    fn reset(&self, py: Python<'_>) -> Result<()> {
        self.source.go(py, SampleSource::reset)
    }

    /// Begins another epoch: another order, or the same if it is sequential. Right after load_state_dict,
    /// the epoch of the state goes on where it was.
    fn set_epoch(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = given::epoch)] epoch: u64,
    ) -> Result<()> {
        self.source.go(py, |source| source.set_epoch(epoch))
    }

    /// Passes over this number of batches, or all that are left, without reading them.
    fn skip_batches(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = given::batches)] batches: u64,
    ) -> Result<()> {
        self.source.go(py, |source| source.skip_batches(batches))
    }

    /// Where the epoch stands: a plain dict of numbers.
    fn state_dict<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        position::state_dict(py, serde_json::to_string(&self.source.lock()?.state()))
    }

    /// Goes on from a state of an epoch of the same dataset with the same traversal, rank and world.
    fn load_state_dict(&self, py: Python<'_>, state: &Bound<'_, PyDict>) -> Result<()> {
        let state = serde_json::from_str(&position::state_json(state)?);
        let state = state.map_err(|error| position::no_state(&error))?;
        self.source.with(py, |source| source.resume(&state))
    }

    /// The dataset, the options and the number of the epoch: a copy begins with its first sample.
    fn __reduce__<'py>(&self, py: Python<'py>) -> Result<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let options = self.options.bind(py).copy()?;
        options.set_item("epoch", self.epoch()?)?;
        let begin = self.beton.bind(py).getattr("epoch")?;
        let begin = py.import("functools")?.getattr("partial")?.call((begin,), Some(&options))?;
        Ok((begin, PyTuple::empty(py)))
    }

    fn __repr__(&self, py: Python<'_>) -> Result<String> {
        let path = self.beton.get().reader.path().display();
        let traversal = self.options.bind(py).get_item("traversal")?;
        let traversal = traversal.map_or_else(String::new, |name| name.to_string());
        let source = self.source.lock()?;
        Ok(format!(
            "BetonEpoch({path}, traversal={traversal}, epoch={}, batch_size={}, {} samples to come)",
            source.epoch(),
            source.batch_size(),
            source.remaining_items()
        ))
    }
}

impl PyBetonEpoch {
    pub(crate) fn new(
        source: SampleSource,
        beton: Py<PyBeton>,
        options: Py<PyDict>,
        damaged: Damaged,
    ) -> Self {
        let source = Position::new("epoch", source);
        Self { source, beton, options, damaged, left_out: AtomicU64::new(0) }
    }

    /// A batch as arrays, without samples that are to be left out; `None` if these are all.
    fn show<'py>(&self, py: Python<'py>, batch: Batch) -> Result<Option<Shown<'py>>> {
        let ids = (self.damaged == Damaged::LeaveOut).then(|| batch.ids().to_vec());
        let PyBeton { engine, delivery, .. } = self.beton.get();
        match (beton_batch::batch(py, batch, delivery, &engine.get().engine), ids) {
            (Err(failure), Some(ids)) if failure.is_value(py) => self.show_well(py, &ids),
            (shown, _) => shown.map(Some),
        }
    }

    /// Those of the samples whose images can be decoded and whose texts can be parsed, which is
    /// rarely asked: they are read once more.
    fn show_well<'py>(&self, py: Python<'py>, ids: &[u64]) -> Result<Option<Shown<'py>>> {
        let PyBeton { reader, engine, delivery, .. } = self.beton.get();
        let engine = &engine.get().engine;
        let mut well = Vec::new();
        for id in ids {
            py.check_signals()?;
            let sample = detached(py, || read(reader, engine, &[*id]))?;
            match beton_batch::sample(py, sample, delivery, engine) {
                Ok(_) => well.push(*id),
                Err(failure) if failure.is_value(py) => {}
                Err(failure) => return Err(failure),
            }
        }
        let shown = if well.is_empty() {
            None
        } else {
            let batch = detached(py, || read(reader, engine, &well))?;
            Some(beton_batch::batch(py, batch, delivery, engine)?)
        };
        self.left_out.fetch_add((ids.len() - well.len()) as u64, Ordering::Relaxed);
        Ok(shown)
    }
}
