//! `BetonEpoch`: the batches of an epoch of a dataset. `Beton.epoch` makes it.

use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use ringmain::beton::{Batch, Damaged, MemoryManager, Order, SampleOptions, SampleSource};

use crate::arguments::{self, choose};
use crate::beton::PyBeton;
use crate::beton_batch::BatchArrays;
use crate::epochs::{Epochs, epoch_methods, no_full_batch, with_epoch_arguments};
use crate::error::{Failure, Result};
use crate::gil::{detached, wait_for};

/// An iterator of `(batch, ids)` over the batches of an epoch of a dataset. If damaged samples are left
/// out, it may deliver fewer batches than `len()` returns; with `global_batch`, it delivers empty ones.
///
/// A loop reads to the end of the epoch, and a new loop begins the next epoch. After a `break`, the next
/// loop reads the rest of the epoch. `reset` goes back to the start of the epoch.
#[pyclass(frozen, module = "ringmain", name = "BetonEpoch")]
pub(crate) struct PyBetonEpoch {
    epochs: Epochs<SampleSource>,
    beton: Py<PyBeton>,
    options: Options,
    damaged: Damaged,
    /// How many samples were read but left out, because their JPEG or JSON cannot be decoded.
    left_out: AtomicU64,
}

/// The arguments of `Beton.epoch`, except the number of the epoch. A pickle contains them.
#[derive(Clone, Debug, IntoPyObject)]
struct Options {
    traversal: String,
    seed: u64,
    open_pages: Option<u64>,
    batch_size: Option<usize>,
    global_batch: Option<u64>,
    drop_last: bool,
    rank: u64,
    world: u64,
    worker: u64,
    workers: u64,
    nodes: u64,
    memory_manager: String,
    cache_pages: Option<usize>,
    damaged: String,
    prefetch_bytes: Option<usize>,
    patience: Option<f64>,
}

impl Options {
    fn build(&self, epoch: u64) -> Result<SampleOptions> {
        let options = with_epoch_arguments!(SampleOptions::new().epoch(epoch), self, batch_size);
        Ok(options.memory_manager(self.memory()?).damaged(self.damaged()?))
    }

    fn order(&self) -> Result<Order> {
        let seed = self.seed;
        match (self.traversal.as_str(), self.open_pages.map(NonZeroU64::new)) {
            ("sequential", None) => Ok(Order::Sequential),
            ("random", None) => Ok(Order::Shuffled { seed }),
            ("quasi_random", Some(Some(open_pages))) => {
                Ok(Order::PageShuffled { seed, open_pages })
            }
            ("quasi_random", _) => {
                Err(Failure::value("traversal=\"quasi_random\" needs open_pages, at least 1"))
            }
            ("sequential" | "random", Some(_)) => {
                Err(Failure::value("open_pages needs traversal=\"quasi_random\""))
            }
            (other, _) => Err(Failure::value(format!(
                "traversal cannot be {other:?}: it can be \"sequential\", \"random\" or \
                 \"quasi_random\""
            ))),
        }
    }

    fn memory(&self) -> Result<MemoryManager> {
        match (self.memory_manager.as_str(), self.cache_pages.map(NonZeroUsize::new)) {
            ("direct", None) => Ok(MemoryManager::Direct),
            ("os_cache", None) => Ok(MemoryManager::OsCache),
            ("process_cache", Some(Some(pages))) => Ok(MemoryManager::ProcessCache { pages }),
            ("process_cache", _) => Err(Failure::value(
                "memory_manager=\"process_cache\" needs cache_pages, at least 1",
            )),
            ("direct" | "os_cache", Some(_)) => {
                Err(Failure::value("cache_pages needs memory_manager=\"process_cache\""))
            }
            (other, _) => Err(Failure::value(format!(
                "memory_manager cannot be {other:?}: it can be \"direct\", \"os_cache\" or \
                 \"process_cache\""
            ))),
        }
    }

    fn damaged(&self) -> Result<Damaged> {
        let choices = [("fail", Damaged::Fail), ("leave_out", Damaged::LeaveOut)];
        choose("damaged", &self.damaged, &choices)
    }
}

#[pymethods]
impl PyBeton {
    /// Returns an iterator of `(batch, ids)` over all samples. A thread reads ahead.
    ///
    /// traversal: "sequential", "random" or "quasi_random".
    /// seed: the seed of the order.
    /// epoch: the number of the first epoch.
    /// open_pages: how many pages "quasi_random" draws samples from at a time.
    /// batch_size: the number of samples in a batch; 256 by default.
    /// drop_last: leaves out the last batch if it is smaller than the others. If that leaves no batch, it
    ///     is an error.
    /// rank, world: splits every epoch into `world` parts and delivers part number `rank`.
    /// worker, workers: delivers only the part of one of the `workers` workers of this rank.
    /// global_batch: the number of samples in a batch of all ranks. Each batch has the same samples for any number of
    ///     ranks and workers, and this source delivers its share. Any number of ranks can continue from a state. The
    ///     last batch repeats a few samples, so that all ranks have equally many, unless drop_last leaves it out.
    /// nodes: with global_batch, gives the nodes of a job the samples that they had in earlier epochs.
    /// memory_manager: "direct" reads samples straight into the batch; "os_cache" reads through the page
    ///     cache and needs the backend "mmap"; "process_cache" keeps whole pages of the file in memory.
    /// cache_pages: how many pages "process_cache" keeps at a time.
    /// damaged: "fail" raises an error at a damaged sample; "leave_out" leaves the sample out. A sample is
    ///     also damaged if its JPEG or its JSON cannot be decoded.
    /// prefetch_bytes: how many bytes the thread reads ahead, as far as the memory limit allows; two
    ///     batches by default.
    /// patience: how many seconds a batch waits for memory that other batches hold, before it raises a
    ///     MemoryError; 5 by default.
    ///
    /// The thread that calls `next` decodes the JPEGs, with `decode_threads` - 1 others and the interpreter lock
    /// released.
    #[pyo3(signature = (traversal="sequential", *, seed=0, epoch=0, open_pages=None,
                        batch_size=None, global_batch=None, drop_last=false, rank=0, world=1,
                        worker=0, workers=1, nodes=1, memory_manager="direct", cache_pages=None,
                        damaged="fail", prefetch_bytes=None, patience=None))]
    #[allow(clippy::too_many_arguments)] // in Python the arguments have names
    fn epoch(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = arguments::traversal)] traversal: &str,
        #[pyo3(from_py_with = arguments::seed)] seed: u64,
        #[pyo3(from_py_with = arguments::epoch)] epoch: u64,
        #[pyo3(from_py_with = arguments::open_pages)] open_pages: Option<u64>,
        #[pyo3(from_py_with = arguments::batch_size)] batch_size: Option<usize>,
        #[pyo3(from_py_with = arguments::global_batch)] global_batch: Option<u64>,
        #[pyo3(from_py_with = arguments::drop_last)] drop_last: bool,
        #[pyo3(from_py_with = arguments::rank)] rank: u64,
        #[pyo3(from_py_with = arguments::world)] world: u64,
        #[pyo3(from_py_with = arguments::worker)] worker: u64,
        #[pyo3(from_py_with = arguments::workers_of_rank)] workers: u64,
        #[pyo3(from_py_with = arguments::nodes)] nodes: u64,
        #[pyo3(from_py_with = arguments::memory_manager)] memory_manager: &str,
        #[pyo3(from_py_with = arguments::cache_pages)] cache_pages: Option<usize>,
        #[pyo3(from_py_with = arguments::damaged)] damaged: &str,
        #[pyo3(from_py_with = arguments::prefetch_bytes)] prefetch_bytes: Option<usize>,
        #[pyo3(from_py_with = arguments::patience)] patience: Option<f64>,
    ) -> Result<PyBetonEpoch> {
        let options = Options {
            traversal: traversal.to_owned(),
            seed,
            open_pages,
            batch_size,
            global_batch,
            drop_last,
            rank,
            world,
            worker,
            workers,
            nodes,
            memory_manager: memory_manager.to_owned(),
            cache_pages,
            damaged: damaged.to_owned(),
            prefetch_bytes,
            patience,
        };
        let (samples, damaged) = (options.build(epoch)?, options.damaged()?);
        let reader = &slf.get().reader;
        let source = detached(slf.py(), || samples.open(reader))?;
        if drop_last && source.epoch_batches() == 0 {
            match global_batch {
                None => {
                    return Err(no_full_batch("batch_size", source.batch_size() as u64, "samples"));
                }
                // Otherwise this worker has no turn, but another one has.
                Some(items) if reader.len() < items => {
                    return Err(no_full_batch("global_batch", items, "samples"));
                }
                Some(_) => {}
            }
        }
        let (epochs, beton) = (Epochs::new("epoch", source), slf.clone().unbind());
        Ok(PyBetonEpoch { epochs, beton, options, damaged, left_out: AtomicU64::new(0) })
    }
}

#[pymethods]
impl PyBetonEpoch {
    /// The number of samples in a batch; the last batch may have fewer.
    #[getter]
    fn batch_size(&self) -> Result<usize> {
        Ok(self.epochs.lock()?.batch_size())
    }

    /// The number of damaged samples that were left out so far.
    #[getter]
    fn left_out(&self) -> Result<u64> {
        Ok(self.epochs.lock()?.left_out() + self.left_out.load(Ordering::Relaxed))
    }

    /// Returns the dataset, the options and the number of the epoch. An unpickled copy begins at the
    /// first sample.
    fn __reduce__<'py>(&self, py: Python<'py>) -> Result<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let kwargs = self.options.clone().into_pyobject(py)?;
        kwargs.set_item("epoch", self.epoch()?)?;
        let begin = self.beton.bind(py).getattr("epoch")?;
        let begin = py.import("functools")?.getattr("partial")?.call((begin,), Some(&kwargs))?;
        Ok((begin, PyTuple::empty(py)))
    }

    fn __repr__(&self) -> Result<String> {
        let (path, traversal) = (self.beton.get().reader.path().display(), &self.options.traversal);
        let source = self.epochs.lock()?;
        Ok(format!(
            "BetonEpoch({path}, traversal={traversal}, epoch={}, batch_size={}, {} samples to come)",
            source.epoch(),
            source.batch_size(),
            source.remaining_items()
        ))
    }
}

epoch_methods!(
    PyBetonEpoch,
    "BetonEpoch",
    "sample",
    "`(batch, ids)`",
    "an epoch of the same dataset with the same traversal, rank and world. With `global_batch`, rank and world may differ."
);

impl PyBetonEpoch {
    fn next_arrays<'py>(
        &self,
        py: Python<'py>,
        source: &mut SampleSource,
    ) -> Result<Option<Bound<'py, PyTuple>>> {
        loop {
            let (before, epoch) = (source.state(), source.epoch());
            let batch = wait_for(py, |timeout| source.next_batch_within(timeout))?;
            let Some(batch) = batch else { return Ok(None) };
            let arrays = self.arrays(py, batch, epoch).and_then(|(arrays, left_out)| {
                // Not before damaged samples are left out: an error of the transform is not damage.
                arrays.as_ref().map_or(Ok(()), |arrays| self.beton.get().transform(arrays))?;
                // A batch that is not delivered comes again.
                self.left_out.fetch_add(left_out, Ordering::Relaxed);
                Ok(arrays)
            });
            match arrays {
                Ok(Some(BatchArrays { fields, ids })) => {
                    return Ok(Some(PyTuple::new(py, [fields.into_any(), ids.into_any()])?));
                }
                Ok(None) => {}
                Err(failure) => {
                    detached(py, || {
                        source.resume(&before)?;
                        // Right after a resume, `set_epoch` keeps the position. After this call, it
                        // begins the epoch.
                        source.skip_items(0);
                        Ok::<(), ringmain::Error>(())
                    })?;
                    return Err(failure);
                }
            }
        }
    }

    /// Returns a batch as arrays, without the samples that are left out, and their number. Returns `None` if all
    /// samples are left out, unless there is a global batch, of which every rank must deliver its share.
    fn arrays<'py>(
        &self,
        py: Python<'py>,
        batch: Batch,
        epoch: u64,
    ) -> Result<(Option<BatchArrays<'py>>, u64)> {
        let ids = (self.damaged == Damaged::LeaveOut).then(|| batch.ids().to_vec());
        match (self.beton.get().batch_arrays(py, batch, epoch), ids) {
            (Err(failure), Some(ids)) if failure.is_value(py) => {
                self.undamaged_arrays(py, &ids, epoch)
            }
            (arrays, _) => arrays.map(|arrays| (Some(arrays), 0)),
        }
    }

    /// Returns a batch of only those samples whose JPEG and JSON can be decoded, and the number of the others. It
    /// reads the samples again, which is acceptable because damaged samples are rare.
    fn undamaged_arrays<'py>(
        &self,
        py: Python<'py>,
        ids: &[u64],
        epoch: u64,
    ) -> Result<(Option<BatchArrays<'py>>, u64)> {
        let beton = self.beton.get();
        let mut undamaged = Vec::new();
        for id in ids {
            py.check_signals()?;
            match beton.sample(py, *id, epoch) {
                Ok(_) => undamaged.push(*id),
                Err(failure) if failure.is_value(py) => {}
                Err(failure) => return Err(failure),
            }
        }
        let arrays = match undamaged.len() {
            0 if self.options.global_batch.is_none() => None,
            _ => Some(beton.batch_arrays(py, beton.read(py, &undamaged)?, epoch)?),
        };
        Ok((arrays, (ids.len() - undamaged.len()) as u64))
    }
}
