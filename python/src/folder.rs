//! The files of folders, on disk or in stores.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use ringmain::Engine;

use crate::engine::PyEngine;
use crate::error::Result;
use crate::path::{FilePath, local};
use crate::shared_engines::EngineArgument;

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
