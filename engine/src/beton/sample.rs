//! One sample.

use std::ops::Range;

use ringmain_backends::{MappedRange, Unchanging};

use super::{Batch, Error, Field, Value};

/// One sample, in memory of the engine's pool.
#[derive(Debug)]
pub struct Sample {
    pub(super) batch: Batch,
}

impl Sample {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.batch.ids()[0]
    }

    /// The fields, in the order of the file.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        self.batch.fields()
    }

    /// The value of a field by its number. JSON that is no text is an error.
    ///
    /// # Panics
    /// If there is no such field.
    pub fn value(&self, field: usize) -> Result<Value<'_>, Error> {
        self.batch.value(0, field)
    }

    /// The value of a field by its name.
    pub fn get(&self, name: &str) -> Result<Value<'_>, Error> {
        self.value(self.batch.field_index(name)?)
    }

    /// The sample as a batch of one.
    #[must_use]
    pub fn as_batch(&self) -> &Batch {
        &self.batch
    }
}

/// The regions of some samples where the backend has the file in memory, without a copy. What is in
/// the metadata alone has none: [`BetonReader::member`](super::BetonReader::member) tells it.
#[derive(Debug)]
pub struct MappedSamples {
    pub(super) ids: Vec<u64>,
    pub(super) fields: usize,
    /// All pages of the file.
    pub(super) pages: MappedRange,
    /// For each sample, where in the pages the region of each field is; empty where there is none.
    pub(super) regions: Vec<Range<usize>>,
}

impl MappedSamples {
    /// The samples, in the order asked for.
    #[must_use]
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// The bytes of a field of the `at`-th sample, for those who promise that nobody writes to the
    /// file ([`Unchanging`], which also says what a failing device does); `None` if there is no such
    /// sample, field, or region.
    #[must_use]
    pub fn region(&self, at: usize, field: usize, unchanging: Unchanging) -> Option<&[u8]> {
        if at >= self.ids.len() || field >= self.fields {
            return None;
        }
        let region = self.regions.get(at * self.fields + field)?;
        self.pages.as_slice(unchanging).get(region.clone()).filter(|bytes| !bytes.is_empty())
    }
}
