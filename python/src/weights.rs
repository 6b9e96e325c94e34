//! Safetensors: the native part of `ringmain.safetensors`.

use std::collections::BTreeMap;
use std::thread;

use numpy::PyArrayDescr;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ringmain::Error;
use ringmain::weights::{LoadOptions, Tensor, TensorInfo, WeightFile, Weights};

use crate::array;
use crate::dtype;
use crate::engine::PyEngine;
use crate::error::Result;
use crate::gil::{detached, wait_for};
use crate::path::{FilePath, local};
use crate::shared_engines::EngineArgument;
use crate::view::View;

/// The tensors of a safetensors file, or of a model of several files.
#[pyclass(frozen, module = "ringmain._ringmain", name = "_Weights")]
pub(crate) struct PyWeights {
    weights: Weights,
    engine: Py<PyEngine>,
}

/// How many bytes are read ahead. A program that loads a model keeps all of it, so a large window
/// costs no extra memory. A small window would let the device idle between windows.
const WINDOW_BYTES: usize = 1 << 30;

#[pymethods]
impl PyWeights {
    #[new]
    #[pyo3(signature = (path, engine=None))]
    fn new(py: Python<'_>, path: FilePath, engine: Option<EngineArgument<'_>>) -> Result<Self> {
        let engine = PyEngine::or_default(py, engine)?;
        let path = local(&path.0)?.unwrap_or(path.0);
        let weights = detached(py, || Weights::open(&engine.get().engine, &path))?;
        Ok(Self { weights, engine })
    }

    /// Returns the names of all tensors, in the order of the files.
    fn names(&self) -> Vec<&str> {
        self.weights.tensors().map(TensorInfo::name).collect()
    }

    /// Returns the element type of a tensor, by its name in the format, and the shape.
    fn info(&self, name: &str) -> Result<(String, Vec<usize>)> {
        let info = self.weights.info(name)?;
        Ok((info.dtype().to_string(), info.shape().to_vec()))
    }

    /// Returns the metadata of the header, or of the headers of all files together.
    fn metadata(&self) -> Option<BTreeMap<&str, &str>> {
        let said: Vec<_> = self.weights.files().iter().filter_map(WeightFile::metadata).collect();
        // If two files have the same key, the value of the first file wins.
        let all = said.iter().rev().copied().flatten();
        (!said.is_empty()).then(|| all.map(|(key, value)| (&**key, &**value)).collect())
    }

    /// Reads a tensor as elements of the NumPy type `element`, or as bytes if `element` is None.
    #[pyo3(signature = (name, element))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        element: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyAny>> {
        let pool = self.engine.get().engine.pool();
        let tensor = detached(py, || match self.weights.read_from(name, pool) {
            // The pool is exhausted. The tensor gets memory outside of the pool, because the engine does
            // not limit how much a program keeps.
            Err(Error::MemorySpent { .. }) => self.weights.read(name),
            tensor => tensor,
        })?;
        to_array(py, tensor, element)
    }

    /// Reads all tensors, or those with the given names, in the order of the files. Returns a dict by
    /// name. `elements` maps the element types of the format to NumPy types; tensors of other types are
    /// read as bytes. `arrived` is called with 1 after each tensor.
    #[pyo3(signature = (elements, names=None, arrived=None))]
    fn load<'py>(
        &self,
        py: Python<'py>,
        elements: &Bound<'py, PyDict>,
        names: Option<Vec<String>>,
        arrived: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyDict>> {
        let mut options = LoadOptions::new().window_bytes(WINDOW_BYTES);
        if let Some(names) = names {
            options = options.only(names);
        }
        let mut load = self.weights.load(options)?;
        let found = PyDict::new(py);
        let mut next = || -> Result<bool> {
            let tensor = wait_for(py, |timeout| load.next_within(timeout).map(Option::transpose))?;
            let Some(tensor) = tensor else { return Ok(false) };
            let element = elements.get_item(tensor.dtype().to_string())?;
            let name = tensor.name().to_owned();
            found.set_item(name, to_array(py, tensor, element.as_ref())?)?;
            if let Some(arrived) = arrived {
                arrived.call1((1,))?;
            }
            Ok(true)
        };
        loop {
            match next() {
                Ok(true) => (),
                Ok(false) => return Ok(found),
                Err(failure) => {
                    // Dropping `load` waits for its reader, which may be in the middle of a large tensor.
                    // Another thread drops it, so that Ctrl-C takes effect at once.
                    let dropping = thread::Builder::new().spawn(move || drop(load));
                    drop(dropping); // if no thread could start, `spawn` has dropped `load`
                    return Err(failure);
                }
            }
        }
    }

    /// Returns a view of a tensor, as elements of a NumPy type of the same size.
    fn view<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        element: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, View>> {
        let array = detached(py, || self.weights.view(name))?;
        let (engine, descr) = (self.engine.clone_ref(py), dtype::parse(element)?.unbind());
        View { engine, array, descr, is_grouped: false }.into_object(py)
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.weights)
    }
}

/// Returns a tensor as an array that owns its memory.
fn to_array<'py>(
    py: Python<'py>,
    tensor: Tensor,
    element: Option<&Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyAny>> {
    let array = match element {
        Some(element) => {
            let (descr, shape) = (dtype::parse(element)?, tensor.shape().to_vec());
            array::from_buffer(tensor.into_buffer(), &descr, &shape)?
        }
        None => {
            let (descr, len) = (PyArrayDescr::new(py, "u1")?, tensor.bytes().len());
            array::from_buffer(tensor.into_buffer(), &descr, &[len])?
        }
    };
    Ok(array.into_any())
}
