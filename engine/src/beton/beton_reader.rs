//! Reads samples of a dataset by id.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use ringmain_backends::Buffer;

use super::dataset::{Dataset, no_memory};
use super::fill::{Damaged, FillMemory};
use super::{Batch, Error, Field, FieldKind, Header, MappedSamples, Member, ReaderOptions, Sample};
use crate::Engine;

/// This many batches can be read at once without allocating.
const MEMORIES_MAX: usize = 16;

/// Reads the samples of a dataset through any backend. A reader is cheap to clone, and any number
/// of threads can use it.
///
/// Opening reads and checks the header, the fields, the metadata and the allocation table, and
/// keeps them in memory ([`ReaderOptions::index_limit_bytes`]). It fails if the file as a whole is
/// damaged. If one sample is damaged, reading that sample fails; the other samples stay readable.
///
/// ```no_run
/// use ringmain::Engine;
/// use ringmain::beton::{BetonReader, Value};
///
/// let reader = BetonReader::open(&Engine::new()?, "train.beton")?;
/// let sample = reader.read_sample(7)?;
/// if let Value::Int(label) = sample.get("label")? {
///     println!("sample {} has the label {label}", sample.id());
/// }
/// // All regions of all samples as one batch of reads.
/// let batch = reader.read_batch(&[3, 141, 59])?;
/// println!("{:?}", batch.ints(reader.field_index("label")?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct BetonReader {
    dataset: Arc<Dataset>,
    /// Only `try_lock` is used: another thread could hold the lock while the process forks.
    memories: Arc<Mutex<Vec<FillMemory>>>,
}

impl BetonReader {
    /// Opens a dataset whose fields all have FFCV's own types; for others see [`ReaderOptions`].
    pub fn open(engine: &Engine, path: impl AsRef<Path>) -> Result<Self, Error> {
        ReaderOptions::new().open(engine, path)
    }

    /// Returns the header and the fields of a file. Unlike `open`, it accepts fields without a
    /// handler.
    ///
    /// ```no_run
    /// use ringmain::Engine;
    /// use ringmain::beton::BetonReader;
    ///
    /// let (header, fields) = BetonReader::describe(&Engine::new()?, "train.beton")?;
    /// println!("{} samples of {fields:?}", header.samples);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn describe(
        engine: &Engine,
        path: impl AsRef<Path>,
    ) -> Result<(Header, Vec<Field>), Error> {
        Dataset::describe(engine, path.as_ref())
    }

    pub(super) fn open_with(
        engine: &Engine,
        path: &Path,
        options: &ReaderOptions,
    ) -> Result<Self, Error> {
        let dataset = Arc::new(Dataset::open(engine, path, options)?);
        Ok(Self { dataset, memories: Arc::default() })
    }

    pub(super) fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// Returns the number of samples.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.dataset.header.samples
    }

    /// Returns `true` if the dataset has no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the fields, in the order of the file.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.dataset.fields
    }

    /// Returns the number of the field with this name; the first, if several have it.
    pub fn field_index(&self, name: &str) -> Result<usize, Error> {
        self.dataset.field_index(name)
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dataset.path
    }

    /// Returns the size of a page in bytes.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.dataset.pages.page_bytes
    }

    /// Returns the number of pages.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.dataset.pages.count()
    }

    /// Returns the number of regions in the allocation table.
    #[must_use]
    pub fn regions(&self) -> usize {
        self.dataset.table.len()
    }

    /// Returns the size of all regions in bytes.
    #[must_use]
    pub fn region_bytes(&self) -> u64 {
        self.dataset.table.bytes
    }

    /// Returns the largest power of two that divides the offset of every region: 512 or 4096 in a
    /// file that was aligned for direct reads. Returns 0 if there are no regions.
    #[must_use]
    pub fn region_alignment(&self) -> u64 {
        self.dataset.table.alignment
    }

    /// Returns the metadata of a sample's field, without reading from the file.
    ///
    /// # Panics
    /// If there is no such field.
    pub fn member(&self, sample: u64, field: usize) -> Result<Member<'_>, Error> {
        self.dataset.check_id(sample)?;
        Ok(self.dataset.layout.member(self.dataset.row(sample), field))
    }

    /// Returns the size in bytes of a field's value in the file, without reading from the file. For a JPEG
    /// it is the size of the compressed image.
    ///
    /// ```
    /// use ringmain::Engine;
    /// use ringmain::beton::{BetonReader, BetonWriter, Field, FieldKind};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a.beton");
    /// let fields = [Field::new("id", FieldKind::Int)?, Field::new("text", FieldKind::Bytes)?];
    /// BetonWriter::new(fields).write_indexed(&path, 3, |id, sample| {
    ///     sample.int(id as i64)?;
    ///     sample.bytes(&vec![7; 100 * id as usize])?;
    ///     Ok(())
    /// })?;
    /// let reader = BetonReader::open(&Engine::new()?, &path)?;
    /// assert_eq!((reader.value_bytes(2, 0)?, reader.value_bytes(2, 1)?), (8, 200));
    /// assert_eq!(reader.value_bytes(0, 1)?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If there is no such field.
    pub fn value_bytes(&self, sample: u64, field: usize) -> Result<u64, Error> {
        self.dataset.check_id(sample)?;
        let region = self.dataset.region(sample, field)?.map(|region| region.size as u64);
        Ok(region.unwrap_or_else(|| match self.fields()[field].kind() {
            FieldKind::Float | FieldKind::Int => self.dataset.layout.member_bytes(field) as u64,
            _ => 0,
        }))
    }

    /// Returns an error if the metadata or the allocation table show that the sample is damaged. It
    /// does not read from the file.
    pub fn check_sample(&self, sample: u64) -> Result<(), Error> {
        self.dataset.check_id(sample)?;
        let mut fields = self.dataset.paged.iter();
        fields.try_for_each(|field| self.dataset.region(sample, *field).map(drop))
    }

    /// Reads one sample.
    pub fn read_sample(&self, sample: u64) -> Result<Sample, Error> {
        Ok(Sample { batch: self.read_batch(&[sample])? })
    }

    /// Reads samples in the order of `ids`, which may repeat, with all regions as one batch of
    /// reads. If a sample is damaged, this fails and reads nothing.
    ///
    /// The batch takes memory of the engine's pool. If other batches hold all of it, this call
    /// waits some seconds and then fails. Use [`read_batch_in`](Self::read_batch_in) to keep many
    /// batches.
    pub fn read_batch(&self, ids: &[u64]) -> Result<Batch, Error> {
        self.read_batch_in(ids, |bytes| self.dataset.engine.pool().take(bytes))
    }

    /// Reads samples as [`read_batch`](Self::read_batch) does, into a buffer that `take` returns
    /// for a given number of bytes.
    ///
    /// ```
    /// use ringmain::{Buffer, Engine};
    /// use ringmain::beton::{BetonReader, BetonWriter, Field, FieldKind};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a.beton");
    /// let fields = [Field::new("text", FieldKind::Bytes)?];
    /// BetonWriter::new(fields).write_indexed(&path, 9, |id, sample| {
    ///     sample.bytes(&[id as u8; 100])?;
    ///     Ok(())
    /// })?;
    /// let reader = BetonReader::open(&Engine::new()?, &path)?;
    /// // Does not count against the engine's limit.
    /// let kept = reader.read_batch_in(&[3, 1], Buffer::unpooled)?;
    /// assert_eq!(kept.blobs(0).and_then(|texts| texts.get(1)), Some(&[1; 100][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_batch_in(
        &self,
        ids: &[u64],
        take: impl FnOnce(usize) -> Result<Buffer, ringmain_backends::Error>,
    ) -> Result<Batch, Error> {
        let mut memory = self.take_memory();
        let batch = self.read_with(&mut memory, ids, take);
        self.keep_memory(memory);
        batch
    }

    fn read_with(
        &self,
        memory: &mut FillMemory,
        ids: &[u64],
        take: impl FnOnce(usize) -> Result<Buffer, ringmain_backends::Error>,
    ) -> Result<Batch, Error> {
        let dataset = &self.dataset;
        let bytes = memory.locate(dataset, ids, Damaged::Fail)?;
        let buffer =
            take(bytes).map_err(|error| Error::reading(&dataset.path, None, "a batch", error))?;
        if buffer.len() < bytes {
            let given = buffer.len();
            let reason =
                format!("it returned a buffer of {given} bytes, but the batch needs {bytes}");
            return Err(Error::invalid_option("take", "this function", reason));
        }
        let mut batch = memory.stage(dataset, buffer.into());
        memory.read(&mut batch)?;
        Ok(batch)
    }

    /// Returns the regions of samples without copying them, if the backend maps files (`mmap`);
    /// `None` for other backends.
    ///
    /// ```no_run
    /// use ringmain::{Engine, Unchanging, beton::BetonReader};
    ///
    /// let engine = Engine::builder().backend("mmap".parse()?).build()?;
    /// let reader = BetonReader::open(&engine, "train.beton")?;
    /// let image = reader.field_index("image")?;
    /// // SAFETY: the datasets of this program are written once, and only ever replaced by renaming.
    /// let unchanging = unsafe { Unchanging::promise() };
    /// if let Some(samples) = reader.map_samples(&[3, 141, 59])? {
    ///     println!("{:?}", samples.region(0, image, unchanging).map(<[u8]>::len));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn map_samples(&self, ids: &[u64]) -> Result<Option<MappedSamples>, Error> {
        let (dataset, backend) = (&self.dataset, self.dataset.engine.backend());
        if !backend.capabilities().zero_copy {
            return Ok(None);
        }
        let (pages, fields) = (&dataset.pages.range, dataset.fields.len());
        let mut regions = Vec::new();
        let count = ids.len().saturating_mul(fields);
        let no_memory = |_| no_memory(&dataset.path, count.saturating_mul(2 * size_of::<usize>()));
        regions.try_reserve_exact(count).map_err(no_memory)?;
        for id in ids {
            dataset.check_id(*id)?;
            for field in 0..fields {
                let region = dataset.region(*id, field)?.filter(|region| region.size > 0);
                // A valid region lies in the pages, and the pages fit in the address space.
                let start = region.map_or(0, |region| (region.ptr - pages.start) as usize);
                regions.push(start..start + region.map_or(0, |region| region.size));
            }
        }
        let mapped = backend.map(&dataset.file, pages.clone());
        let mapped = mapped.map_err(|error| Error::backend(&dataset.path, error))?;
        dataset.checked(Ok(()), |_| None)?;
        let ids = ids.to_vec();
        Ok(mapped.map(|pages| MappedSamples { ids, fields, pages, regions }))
    }

    fn take_memory(&self) -> FillMemory {
        let kept = self.memories.try_lock().ok().and_then(|mut memories| memories.pop());
        kept.unwrap_or_default()
    }

    fn keep_memory(&self, memory: FillMemory) {
        if let Ok(mut memories) = self.memories.try_lock() {
            if memories.len() < MEMORIES_MAX {
                memories.push(memory);
            }
        }
    }
}

impl fmt::Debug for BetonReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BetonReader")
            .field("path", &self.dataset.path)
            .field("samples", &self.len())
            .field("fields", &self.dataset.fields.len())
            .field("pages", &self.pages())
            .finish_non_exhaustive()
    }
}
