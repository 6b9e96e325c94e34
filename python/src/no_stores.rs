//! A package that was built without the feature `object-stores` refuses URLs and the disk cache.

use std::path::{Path, PathBuf};

use ringmain::EngineBuilder;

use crate::engine::Options;
use crate::error::{Failure, Result};

/// There is none.
#[derive(Debug)]
pub(crate) enum EngineCache {}

const WAY_OUT: &str =
    "this package was built without object stores: build it with the feature `object-stores`";

/// The schemes that the feature knows. `tests/test_open.py` compares them with those of the crate for object stores.
const SCHEMES: [&str; 12] =
    ["s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "adl", "http", "https", "file"];

/// Returns the path of a local file. A URL is refused.
pub(crate) fn local_path(path: &Path) -> Result<Option<PathBuf>, Failure> {
    let text = path.to_string_lossy();
    match text.split_once("://") {
        Some((scheme, _)) if SCHEMES.contains(&scheme) => Err(Failure::value(WAY_OUT)),
        _ => Ok(Some(path.to_owned())),
    }
}

pub(crate) fn with_stores(
    builder: EngineBuilder,
    _memory_limit_bytes: usize,
    options: &Options,
) -> Result<(EngineBuilder, Option<EngineCache>)> {
    match options.disk_cache()? {
        Some(_) => Err(Failure::value(format!("disk_cache cannot be set: {WAY_OUT}"))),
        None => Ok((builder, None)),
    }
}

impl EngineCache {
    pub(crate) fn counters(&self) -> (Vec<(&'static str, u64)>, Option<String>) {
        match *self {}
    }
}
