//! The options for opening a dataset.

use std::path::Path;

use super::{BetonReader, Error, FieldHandler, Handlers};
use crate::Engine;

const INDEX_LIMIT_BYTES_DEFAULT: u64 = 4 << 30;

/// The options for opening a file with a [`BetonReader`].
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
    /// Returns the defaults, which handle FFCV's own field types only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a handler for the field with this name.
    pub fn handle_name(mut self, name: &str, handler: impl FieldHandler + 'static) -> Self {
        self.handlers = self.handlers.for_name(name, handler);
        self
    }

    /// Adds a handler for all fields of this type; FFCV gives its users' types the id 255.
    pub fn handle_type(mut self, type_id: u8, handler: impl FieldHandler + 'static) -> Self {
        self.handlers = self.handlers.for_type(type_id, handler);
        self
    }

    /// Limits the memory for metadata and allocation table, in bytes; 4 GiB by default. The reader
    /// holds them as long as it lives, in addition to the engine's memory limit. They take a row
    /// for each sample and 24 bytes for each region.
    pub fn index_limit_bytes(mut self, bytes: u64) -> Self {
        self.index_limit_bytes = bytes;
        self
    }

    /// Opens a file.
    pub fn open(&self, engine: &Engine, path: impl AsRef<Path>) -> Result<BetonReader, Error> {
        BetonReader::open_with(engine, path.as_ref(), self)
    }
}
