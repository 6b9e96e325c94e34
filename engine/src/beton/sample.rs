//! A single sample.

use std::ops::Range;

use ringmain_backends::{MappedRange, Unchanging};

use super::{Batch, Error, Field, Value};

/// A sample, in memory of the engine's pool.
#[derive(Debug)]
pub struct Sample {
    pub(super) batch: Batch,
}

impl Sample {
    /// Returns the id of the sample.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.batch.ids()[0]
    }

    /// Returns the fields, in the order of the file.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        self.batch.fields()
    }

    /// Returns the value of a field by its number. JSON that is not UTF-8 is an error.
    ///
    /// # Panics
    /// If there is no such field.
    pub fn value(&self, field: usize) -> Result<Value<'_>, Error> {
        self.batch.value(0, field)
    }

    /// Returns the value of a field by its name.
    pub fn get(&self, name: &str) -> Result<Value<'_>, Error> {
        self.value(self.batch.field_index(name)?)
    }

    /// Returns the sample as a batch of one.
    #[must_use]
    pub fn as_batch(&self) -> &Batch {
        &self.batch
    }
}

/// The regions of samples in the backend's mapping of the file, without a copy. Fields that only
/// have metadata have no region; see [`BetonReader::member`](super::BetonReader::member).
#[derive(Debug)]
pub struct MappedSamples {
    pub(super) ids: Vec<u64>,
    pub(super) fields: usize,
    /// All pages of the file.
    pub(super) pages: MappedRange,
    /// The range of `pages` that holds the region of each field of each sample; empty if there is
    /// none.
    pub(super) regions: Vec<Range<usize>>,
}

impl MappedSamples {
    /// Returns the ids of the samples, in the order of the request.
    #[must_use]
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// Returns the bytes of a field of the `at`-th sample; `None` if there is no such sample, field
    /// or region. The caller promises with [`Unchanging`] that no process writes to the file. See there
    /// for what happens if the device fails.
    #[must_use]
    pub fn region(&self, at: usize, field: usize, unchanging: Unchanging) -> Option<&[u8]> {
        if at >= self.ids.len() || field >= self.fields {
            return None;
        }
        let region = self.regions.get(at * self.fields + field)?;
        self.pages.as_slice(unchanging).get(region.clone()).filter(|bytes| !bytes.is_empty())
    }
}
