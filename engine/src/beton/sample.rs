//! One sample.

use ringmain_backends::MappedRange;

use super::{Batch, BetonError, Field, Value};

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
    pub fn value(&self, field: usize) -> Result<Value<'_>, BetonError> {
        self.batch.value(0, field)
    }

    /// The value of a field by its name.
    pub fn get(&self, name: &str) -> Result<Value<'_>, BetonError> {
        self.value(self.batch.field_index(name)?)
    }

    /// The sample as a batch of one.
    #[must_use]
    pub fn as_batch(&self) -> &Batch {
        &self.batch
    }
}

/// The regions of one sample where the backend has the file in memory, without a copy. What is in the
/// metadata alone has none: [`BetonReader::member`](super::BetonReader::member) tells it.
#[derive(Debug)]
pub struct MappedSample {
    pub(super) id: u64,
    pub(super) regions: Vec<Option<MappedRange>>,
}

impl MappedSample {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The region of a field by its number; `None` if it has none. Its
    /// [`as_slice`](MappedRange::as_slice) is unsafe, as others may write to the file.
    #[must_use]
    pub fn region(&self, field: usize) -> Option<&MappedRange> {
        self.regions.get(field)?.as_ref()
    }
}
