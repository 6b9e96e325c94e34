//! Safetensors: what `ringmain.safetensors` is made of.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::thread;

use numpy::PyArrayDescr;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ringmain::weights::{LoadOptions, Tensor, TensorInfo, WeightFile, Weights, WeightsError};

use crate::array;
use crate::dtype;
use crate::engine::PyEngine;
use crate::error::Result;
use crate::gil::detached;
use crate::position;
use crate::source::{Source, is_cached};
use crate::view::View;

/// The tensors of a safetensors file, or of a model of several.
#[pyclass(frozen, module = "ringmain._ringmain", name = "_Weights")]
pub(crate) struct PyWeights {
    device: Weights,
    /// The way through the page cache, opened when tensors are found there.
    cached: OnceLock<Weights>,
    path: PathBuf,
    engine: Py<PyEngine>,
}

/// Read ahead of what is handed out. Whoever loads a model keeps it, so the window costs no memory, and
/// between two windows the device waits.
const WINDOW_BYTES: usize = 1 << 30;

#[pymethods]
impl PyWeights {
    #[new]
    #[pyo3(signature = (path, engine=None))]
    fn new(py: Python<'_>, path: PathBuf, engine: Option<Bound<'_, PyEngine>>) -> Result<Self> {
        let engine = PyEngine::or_default(py, engine)?;
        let device = detached(py, || Weights::open(&engine.get().engine, &path))?;
        // The page cache is asked when tensors are read. Whether it answers is known now.
        if let (Some(_), Some(first)) = (&engine.get().cached, device.files().first()) {
            engine.get().residence.file(py, first.path())?;
        }
        Ok(Self { device, cached: OnceLock::new(), path, engine })
    }

    /// The names of all tensors, in the order of the files.
    fn names(&self) -> Vec<&str> {
        self.device.tensors().map(TensorInfo::name).collect()
    }

    /// The type, by the format's name, and the shape of a tensor.
    fn info(&self, name: &str) -> Result<(String, Vec<usize>)> {
        let info = self.device.info(name)?;
        Ok((info.dtype().to_string(), info.shape().to_vec()))
    }

    /// What the headers say beside tensors; of several files, all of them together.
    fn metadata(&self) -> Option<BTreeMap<&str, &str>> {
        let said: Vec<_> = self.device.files().iter().filter_map(WeightFile::metadata).collect();
        // What the first says holds.
        let all = said.iter().rev().copied().flatten();
        (!said.is_empty()).then(|| all.map(|(key, value)| (&**key, &**value)).collect())
    }

    /// Reads a tensor; `element` is the NumPy type to show it as, or none for its bytes.
    #[pyo3(signature = (name, element))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        element: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyAny>> {
        let info = self.device.info(name)?;
        let pool = self.engine.get().engine.pool();
        let tensor = detached(py, || -> Result<_> {
            let weights = self.weights_for(&[info])?;
            match weights.read_from(name, pool) {
                // The caller keeps what it has read, which is not the pool's to limit.
                Err(WeightsError::PoolSpent { .. }) => Ok(weights.read(name)?),
                tensor => Ok(tensor?),
            }
        })?;
        to_array(py, tensor, element)
    }

    /// Reads all tensors, or those of these names, in the order of the files: a dict by name.
    /// `elements` has the NumPy type of each of the format's; others are bytes.
    #[pyo3(signature = (elements, names=None))]
    fn load<'py>(
        &self,
        py: Python<'py>,
        elements: &Bound<'py, PyDict>,
        names: Option<Vec<String>>,
    ) -> Result<Bound<'py, PyDict>> {
        let infos: Vec<&TensorInfo> = match &names {
            None => self.device.tensors().collect(),
            Some(names) => {
                names.iter().map(|name| self.device.info(name)).collect::<Result<_, _>>()?
            }
        };
        let weights = detached(py, || self.weights_for(&infos))?;
        let mut options = LoadOptions::new().window_bytes(WINDOW_BYTES);
        if let Some(names) = names {
            options = options.only(names);
        }
        let mut load = weights.load(options)?;
        let found = PyDict::new(py);
        loop {
            let next =
                position::in_parts(py, |timeout| load.next_within(timeout).map(Option::transpose));
            let tensor = match next {
                Ok(Some(tensor)) => tensor,
                Ok(None) => break,
                Err(failure) => {
                    // Its thread may be in the middle of a large tensor: Ctrl-C need not wait for it.
                    let dropping = thread::Builder::new().spawn(move || drop(load));
                    drop(dropping); // without a thread it was dropped here
                    return Err(failure);
                }
            };
            let element = elements.get_item(tensor.dtype().to_string())?;
            let name = tensor.name().to_owned();
            found.set_item(name, to_array(py, tensor, element.as_ref())?)?;
        }
        Ok(found)
    }

    /// A view of a tensor, shown as elements of a NumPy type of the same size.
    fn view<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        element: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, View>> {
        let array = detached(py, || self.device.view(name))?;
        let path = array.path().to_owned();
        let source = Arc::new(Source::open(py, self.engine.clone_ref(py), &path)?);
        let descr = dtype::parse(element)?;
        View { source, array, descr: descr.unbind(), is_grouped: false }.into_object(py)
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.device)
    }
}

impl PyWeights {
    /// Who reads these tensors best: the page cache, if it has all of them.
    fn weights_for(&self, infos: &[&TensorInfo]) -> Result<&Weights> {
        let Some(engine) = &self.engine.get().cached else { return Ok(&self.device) };
        let mut infos = infos.to_vec();
        infos.sort_by_key(|info| (info.file(), info.offset()));
        if !infos.chunk_by(|a, b| a.file() == b.file()).all(|same| self.is_cached(same)) {
            return Ok(&self.device);
        }
        if let Some(cached) = self.cached.get() {
            return Ok(cached);
        }
        let cached = Weights::open(engine, &self.path)?;
        Ok(self.cached.get_or_init(|| cached))
    }

    /// Whether the page cache has all of these tensors of one file, which are in its order.
    fn is_cached(&self, infos: &[&TensorInfo]) -> bool {
        let file = File::open(self.device.files()[infos[0].file()].path());
        // One question for tensors that follow each other.
        let mut runs = infos.chunk_by(|a, b| end(a) == b.offset());
        let page_bytes = self.engine.get().residence.page_bytes;
        file.is_ok_and(|file| {
            runs.all(|run| {
                let range = run[0].offset()..end(run[run.len() - 1]);
                range.is_empty() || is_cached(&file, range, page_bytes) == Some(true)
            })
        })
    }
}

/// Where in its file a tensor ends.
fn end(info: &TensorInfo) -> u64 {
    info.offset() + info.nbytes() as u64
}

/// A tensor as an array that owns its memory.
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
