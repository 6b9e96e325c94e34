//! Safetensors: what `ringmain.safetensors` is made of.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use numpy::PyArrayDescr;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ringmain::Engine;
use ringmain::backends::probe::cached_pages_in;
use ringmain::weights::{LoadOptions, Tensor, TensorInfo, Weights};

use crate::array;
use crate::dtype;
use crate::engine::PyEngine;
use crate::error::{Failure, Result};
use crate::gil::detached;
use crate::position;
use crate::source::Source;
use crate::view::View;

/// The tensors of a safetensors file, or of a model of several.
#[pyclass(frozen, module = "ringmain._ringmain", name = "_Weights")]
pub(crate) struct PyWeights {
    device: Weights,
    /// The way through the page cache, for files that are there.
    cached: Option<Weights>,
    engine: Py<PyEngine>,
    page_bytes: u64,
}

#[pymethods]
impl PyWeights {
    #[new]
    #[pyo3(signature = (path, engine=None))]
    fn new(py: Python<'_>, path: PathBuf, engine: Option<Bound<'_, PyEngine>>) -> Result<Self> {
        let engine = PyEngine::or_default(py, engine)?;
        let page_bytes = py.import("mmap")?.getattr("PAGESIZE")?.extract()?;
        let PyEngine { engine: device, cached, .. } = engine.get();
        let open = |engine: &Engine| Weights::open(engine, &path);
        let (device, cached) = detached(py, || {
            Ok::<_, Failure>((open(device)?, cached.as_ref().map(open).transpose()?))
        })?;
        Ok(Self { device, cached, engine, page_bytes })
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
    fn metadata(&self) -> Option<BTreeMap<String, String>> {
        let all: BTreeMap<_, _> =
            self.device.files().iter().rev().flat_map(|file| file.metadata().clone()).collect();
        (!all.is_empty()).then_some(all)
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
        let weights = self.weights_for(&[info]);
        let tensor = detached(py, || weights.read(name))?;
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
        let weights = self.weights_for(&infos);
        let mut options = LoadOptions::new();
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
    fn weights_for(&self, infos: &[&TensorInfo]) -> &Weights {
        let Some(cached) = &self.cached else { return &self.device };
        let mut infos = infos.to_vec();
        infos.sort_by_key(|info| (info.file(), info.offset()));
        let is_cached = |same: &[&TensorInfo]| {
            let file = File::open(self.device.files()[same[0].file()].path());
            file.is_ok_and(|file| same.iter().all(|info| self.is_cached(&file, info)))
        };
        let all_cached = infos.chunk_by(|a, b| a.file() == b.file()).all(is_cached);
        if all_cached { cached } else { &self.device }
    }

    fn is_cached(&self, file: &File, info: &TensorInfo) -> bool {
        if info.nbytes() == 0 {
            return true;
        }
        let (start, end) = (info.offset(), info.offset() + info.nbytes() as u64);
        let pages = end.div_ceil(self.page_bytes) - start / self.page_bytes;
        cached_pages_in(file, start..end).is_ok_and(|cached| cached >= pages)
    }
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
