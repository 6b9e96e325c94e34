//! Arguments that are paths.

use std::path::{Path, PathBuf};

use pyo3::Borrowed;
use pyo3::prelude::*;

use crate::error::{Failure, Result};

/// An argument that is a path: a str, bytes or an os.PathLike, as for Python's own `open`. PyO3's own
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

/// Returns the absolute path: a worker that unpickles it may have another working directory.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(Failure::value("embedded null byte"));
    }
    Ok(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))
}
