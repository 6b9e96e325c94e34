//! Weights as arrays over the mapping of a file: the native part of `MappedWeights` and `WeightCache`.

use std::path::PathBuf;
use std::sync::Arc;

use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};
use ringmain::Unchanging;
use ringmain::backends::PerProcess;
use ringmain::weights::{MappedWeights, MmapOptions, WeightCache};

use crate::array;
use crate::dtype;
use crate::error::{Failure, Result};
use crate::gil::detached;
use crate::path::{FilePath, absolute};

/// The options of a mapping as the caller gave them. A pickle contains these.
#[derive(Clone, Copy, Debug, FromPyObject, IntoPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct MapOptions {
    huge_pages: bool,
    read_ahead_pages: usize,
    populate: bool,
    lock: bool,
}

impl MapOptions {
    fn to_engine(self) -> MmapOptions {
        let mut options = MmapOptions::new();
        if self.huge_pages {
            options = options.huge_pages();
        }
        if self.read_ahead_pages > 0 {
            options = options.read_ahead_pages(self.read_ahead_pages);
        }
        if self.populate {
            options = options.populate();
        }
        if self.lock {
            options = options.lock();
        }
        options
    }
}

/// Returns the promise that the files do not change, which the Python caller made with `unchanging=True`; a
/// `ValueError` without it.
fn promised(unchanging: bool) -> Result<Unchanging> {
    if !unchanging {
        return Err(Failure::value(
            "unchanging must be True: a mapping shows the file itself, so it needs the promise that no program \
             writes to the file or truncates it while an array over it exists. Replacing the file by renaming \
             another one over it is fine. To read files that may change, use ringmain.safetensors",
        ));
    }
    // SAFETY: the Python program promised it. The documentation of both classes explains what it promises.
    Ok(unsafe { Unchanging::promise() })
}

/// A mapped file of weights. Arrays over it keep it mapped.
#[pyclass(frozen, module = "ringmain._ringmain", name = "_MappedFile")]
pub(crate) struct PyMappedFile {
    weights: Arc<MappedWeights>,
}

#[pymethods]
impl PyMappedFile {
    #[new]
    fn new(py: Python<'_>, path: FilePath, unchanging: bool, options: MapOptions) -> Result<Self> {
        let (path, unchanging) = (absolute(&path.0)?, promised(unchanging)?);
        let options = options.to_engine();
        let open = || MappedWeights::open_with_options(path, &options, unchanging);
        Ok(Self { weights: Arc::new(detached(py, open)?) })
    }

    /// Returns the names of the tensors, in the order of the file.
    fn names(&self, py: Python<'_>) -> Result<Vec<&str>> {
        let tensors = detached(py, || self.weights.tensors())?;
        Ok(tensors.iter().map(|info| info.name()).collect())
    }

    /// Returns the element type of a tensor, by its name in the format, and the shape.
    fn info(&self, py: Python<'_>, name: &str) -> Result<(String, Vec<usize>)> {
        let info = detached(py, || self.weights.tensor_info(name))?;
        Ok((info.dtype().to_string(), info.shape().to_vec()))
    }

    /// Returns an array over the bytes of a tensor. With `element` it has that type and the shape of the tensor;
    /// without, it has one axis of bytes.
    ///
    /// NumPy refuses to write to it, unless `is_writable` says that torch gets it, which has no tensors that
    /// refuse writing. The memory cannot be written to in either case.
    fn array<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        element: Option<&Bound<'py, PyAny>>,
        is_writable: bool,
    ) -> Result<Bound<'py, PyAny>> {
        let (bytes, shape) = detached(py, || -> ringmain::Result<_> {
            let info = self.weights.tensor_info(name)?;
            Ok((self.weights.tensor(name)?, info.shape().to_vec()))
        })?;
        let (descr, shape) = match element {
            Some(element) => (dtype::parse(element)?, shape),
            None => (PyArrayDescr::new(py, "u1")?, vec![bytes.len()]),
        };
        let len = shape.iter().try_fold(descr.itemsize(), |bytes, len| bytes.checked_mul(*len));
        if len != Some(bytes.len()) {
            let (len, shape) = (bytes.len(), array::tuple_text(&shape));
            return Err(Failure::value(format!(
                "tensor {name} has {len} bytes, which do not make an array of shape {shape} and dtype {descr}"
            )));
        }
        let owner = array::owner(py, Arc::clone(&self.weights))?;
        // SAFETY: `owner` keeps the file mapped, and the lengths were compared. The memory is only read: its
        // pages are mapped without the right to write.
        let array = unsafe { array::over(owner, bytes.as_ptr().cast_mut(), &descr, &shape)? };
        if !is_writable {
            array.call_method1("setflags", (false,))?;
        }
        Ok(array.into_any())
    }

    /// Reads the whole file and makes all of it resident.
    fn populate(&self, py: Python<'_>) -> Result<()> {
        detached(py, || self.weights.populate())
    }

    /// Reads the whole file and keeps it in memory until `unlock`.
    fn lock(&self, py: Python<'_>) -> Result<()> {
        detached(py, || self.weights.lock_in_memory())
    }

    fn unlock(&self, py: Python<'_>) -> Result<()> {
        detached(py, || self.weights.unlock())
    }

    #[getter]
    fn is_locked(&self) -> bool {
        self.weights.is_locked()
    }

    /// Tells whether the file still has the length and the time of writing with which it was mapped.
    fn is_intact(&self, py: Python<'_>) -> bool {
        py.detach(|| self.weights.is_intact())
    }

    #[getter]
    fn path(&self) -> PathBuf {
        self.weights.path().to_owned()
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.weights.nbytes()
    }

    /// Returns the options that the system did not apply, each with the reason.
    #[getter]
    fn unmet(&self) -> Vec<(&'static str, String)> {
        self.weights.unmet().iter().map(|unmet| (unmet.what, unmet.reason.clone())).collect()
    }
}

/// The mappings that were used last, within a limit.
#[pyclass(frozen, module = "ringmain._ringmain", name = "_MappingCache")]
pub(crate) struct PyMappingCache {
    limit_bytes: u64,
    /// A forked child gets an empty cache: at the fork, another thread of the parent may have been changing the
    /// inherited one.
    cache: PerProcess<WeightCache>,
}

#[pymethods]
impl PyMappingCache {
    #[new]
    fn new(limit_bytes: u64, unchanging: bool, options: MapOptions) -> Result<Self> {
        let unchanging = promised(unchanging)?;
        let cache = PerProcess::new(move |_inherited| {
            WeightCache::with_options(limit_bytes, options.to_engine(), unchanging)
        });
        Ok(Self { limit_bytes, cache })
    }

    fn get_or_open(&self, py: Python<'_>, path: FilePath) -> Result<PyMappedFile> {
        let (path, cache) = (absolute(&path.0)?, self.cache.get());
        Ok(PyMappedFile { weights: detached(py, || cache.get_or_open(path))? })
    }

    fn evict_lru(&self, py: Python<'_>, bytes: u64) -> u64 {
        let cache = self.cache.get();
        py.detach(|| cache.evict_lru(bytes))
    }

    fn clear(&self, py: Python<'_>) -> u64 {
        let cache = self.cache.get();
        py.detach(|| cache.clear())
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let cache = self.cache.get();
        let stats = py.detach(|| cache.stats());
        [
            ("entries", stats.entries as u64),
            ("total_bytes", stats.total_size),
            ("limit_bytes", self.limit_bytes),
            ("hits", stats.hits),
            ("misses", stats.misses),
            ("evictions", stats.evictions),
        ]
        .into_py_dict(py)
    }
}
