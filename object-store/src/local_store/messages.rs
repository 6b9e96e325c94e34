//! The messages of the local store.

use std::path::PathBuf;

use ringmain_backends::{BackendKind, Error as BackendError};

use super::error::{ReadError, of_backend};

pub(crate) fn messages() -> Vec<String> {
    let path = || PathBuf::from("/data/part.parquet");
    let past_end = BackendError::PastEnd {
        backend: BackendKind::Pread,
        path: path(),
        offset: 90,
        len: 20,
        index: 0,
        file_len: 100,
    };
    let not_found = BackendError::Open {
        backend: BackendKind::Pread,
        path: path(),
        source: std::io::ErrorKind::NotFound.into(),
    };
    let errors = [
        ReadError::Inverted { path: path(), start: 9, end: 3 }.into(),
        ReadError::ReplacedAgain { path: path(), attempts: 8 }.into(),
        ReadError::NotOpened { path: path() }.into(),
        of_backend(past_end, &path()),
        of_backend(not_found, &path()),
    ];
    errors.iter().map(|error: &object_store::Error| format!("local store\n    {error}")).collect()
}
