//! Arguments that are paths.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use pyo3::Borrowed;
use pyo3::prelude::*;
use ringmain::Engine;

use crate::engine::{EngineArgument, PyEngine};
use crate::error::{Failure, Result};
use crate::stores::local_path;

/// An argument that is a path or a URL: a str, bytes or an os.PathLike, as for Python's own `open`. PyO3's own
/// conversion refuses bytes.
#[derive(Clone, Debug)]
pub(crate) struct FilePath(pub(crate) PathBuf);

impl<'py> FromPyObject<'_, 'py> for FilePath {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(path) = value.extract() {
            return Ok(Self(path));
        }
        let decoded = value.py().import("os")?.call_method1("fsdecode", (value,))?;
        decoded.extract().map(Self)
    }
}

/// A URL becomes a str, because types for local paths would change it; the path of a file becomes a `pathlib.Path`.
impl<'py> IntoPyObject<'py> for FilePath {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        Ok(match local_path(&self.0) {
            Ok(None) => self.0.as_os_str().into_pyobject(py)?.into_any(),
            _ => self.0.into_pyobject(py)?.into_any(),
        })
    }
}

/// Returns the absolute path, because a worker that unpickles it may have another working directory. The URL of an
/// object stays as it is. A URL that has a password or a signature in it is refused here, before any message shows it.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    match local(path)? {
        Some(local) => Ok(std::path::absolute(&local).unwrap_or(local)),
        None => Ok(path.to_owned()),
    }
}

/// Returns the path of a file that is going to be written. The URL of an object is refused.
pub(crate) fn writable(path: &Path) -> Result<PathBuf> {
    local_path(path)?.ok_or_else(|| {
        let way_out = "write a file, and upload it with the tools of the store";
        Failure::value(format!("{}: objects of stores are only read; {way_out}", path.display()))
    })
}

/// Returns the path of a local file, or `None` for the URL of an object.
pub(crate) fn local(path: &Path) -> Result<Option<PathBuf>> {
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(Failure::value("embedded null byte"));
    }
    Ok(local_path(path)?)
}

/// Returns whether there is a folder at this path or URL.
pub(crate) fn is_folder(engine: &Engine, path: &Path, extension: &str) -> Result<bool> {
    match local(path)? {
        Some(local) => Ok(local.is_dir()),
        // The name says it, so that nothing need be asked of the store.
        None if path.extension().is_some_and(|found| found == extension) => Ok(false),
        None => Ok(engine.backend().list(path)?.is_some()),
    }
}

/// Returns the files of a folder with this extension, in the byte order of their names, or `None` if there is no
/// folder at this path or URL.
#[pyfunction]
pub(crate) fn _files_of_folder(
    py: Python<'_>,
    path: FilePath,
    extension: &str,
    engine: Option<EngineArgument<'_>>,
) -> Result<Option<Vec<OsString>>> {
    let engine = PyEngine::of(py, engine, None)?;
    let engine = &engine.get().engine;
    py.detach(|| {
        if !is_folder(engine, &path.0, extension)? {
            return Ok(None);
        }
        let mut paths = engine.backend().list(&path.0)?.unwrap_or_default();
        paths.retain(|path| path.extension().is_some_and(|found| found == extension));
        paths.sort_by_cached_key(|path| {
            path.file_name().map(|name| name.as_encoded_bytes().to_vec())
        });
        Ok(Some(paths.into_iter().map(PathBuf::into_os_string).collect()))
    })
}
