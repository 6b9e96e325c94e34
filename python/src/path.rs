//! Arguments that are paths.

use std::path::{Path, PathBuf};

use pyo3::Borrowed;
use pyo3::prelude::*;

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
