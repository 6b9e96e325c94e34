//! How a dataset is opened.

use std::path::Path;

use super::{BetonReader, Error, FieldHandler, Handlers};
use crate::Engine;

const INDEX_LIMIT_BYTES_DEFAULT: u64 = 4 << 30;

/// How a [`BetonReader`] is to open its file.
///
/// ```no_run
/// use ringmain::Engine;
/// use ringmain::beton::ReaderOptions;
///
/// let options = ReaderOptions::new().index_limit_bytes(256 << 20);
/// let reader = options.open(&Engine::new()?, "train.beton")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until `open`"]
pub struct ReaderOptions {
    pub(super) handlers: Handlers,
    pub(super) index_limit_bytes: u64,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        Self { handlers: Handlers::new(), index_limit_bytes: INDEX_LIMIT_BYTES_DEFAULT }
    }
}

impl ReaderOptions {
    /// The defaults: FFCV's own types of fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Who understands the field of that name.
    pub fn handle_name(mut self, name: &str, handler: impl FieldHandler + 'static) -> Self {
        self.handlers = self.handlers.for_name(name, handler);
        self
    }

    /// Who understands all fields of that type; 255 is FFCV's for those of its users.
    pub fn handle_type(mut self, type_id: u8, handler: impl FieldHandler + 'static) -> Self {
        self.handlers = self.handlers.for_type(type_id, handler);
        self
    }

    /// What metadata and allocation table may take in memory: they are held as long as the reader
    /// is, beside the engine's memory limit, and have a row for each sample and 24 bytes for each
    /// region. 4 GiB by default.
    pub fn index_limit_bytes(mut self, bytes: u64) -> Self {
        self.index_limit_bytes = bytes;
        self
    }

    /// Opens a file.
    pub fn open(&self, engine: &Engine, path: impl AsRef<Path>) -> Result<BetonReader, Error> {
        BetonReader::open_with(engine, path.as_ref(), self)
    }
}
