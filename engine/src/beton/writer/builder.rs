//! The writer and its options.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use ringmain_backends::{BufferPool, OutputFile, PoolOptions};

use super::super::header::is_page_size;
use super::super::{Error, Field, Handlers, Header, PAGE_BYTES_DEFAULT};
use super::dataset_file::DatasetFile;
use super::feed::{Feed, Indexed, Iterated};
use super::ordered_page::OrderedPage;
use super::sample::{SampleBuilder, SampleError};
use super::sample_writers::SampleWriters;
use crate::Item;

/// Threads are cheap, but each needs a page of memory.
const WORKERS_MAX: usize = 1024;

/// Writes datasets with any number of threads.
///
/// Every worker fills a page of its own, and writes it when the next sample does not fit. A sample
/// is never split between pages. The file has a temporary name in the same directory until it is
/// complete and on the device; then it replaces any file with the final name. A failed write leaves
/// no file. A process that is killed cannot clean up: it leaves a file `NAME.PID-NUMBER.tmp` (two
/// on Windows), which can be deleted.
///
/// Unordered writing needs one page of memory per worker; [`deterministic`](Self::deterministic)
/// writing needs two per worker plus one. Memory does not grow with the number of samples.
///
/// ```
/// use ringmain::beton::{BetonWriter, Field, FieldKind};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("train.beton");
///
/// let fields = [Field::new("text", FieldKind::Bytes)?, Field::new("label", FieldKind::Int)?];
/// let writer = BetonWriter::new(fields).workers(2);
/// // From data that has an index: workers make the samples in any order.
/// let report = writer.write_indexed(&path, 1000, |id, sample| {
///     sample.bytes(id.to_string().as_bytes())?.int(id as i64 % 10)?;
///     Ok(())
/// })?;
/// assert_eq!(report.samples, 1000);
///
/// // From an iterator: the number of samples stands before them in the file, so it must be known.
/// let words = ["zero", "one", "two"];
/// writer.write_iter(&path, 3, words.iter().enumerate(), |(at, word), sample| {
///     sample.bytes(word.as_bytes())?.int(at as i64)?;
///     Ok(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct BetonWriter {
    fields: Vec<Field>,
    handlers: Handlers,
    page_bytes: u32,
    alignment: RegionAlignment,
    workers: Option<NonZeroUsize>,
    is_deterministic: bool,
    is_direct: bool,
    progress: Option<Arc<ProgressFn>>,
}

pub(super) type ProgressFn = dyn Fn(WriteProgress) + Send + Sync;

/// The alignment of regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RegionAlignment {
    /// Regions follow one another without gaps, as in FFCV's own files.
    #[default]
    Packed,
    /// Regions begin at multiples of 512 bytes, as direct reads from most devices need.
    Sector,
    /// Regions begin at multiples of 4096 bytes, as direct reads from all devices need. A region
    /// also touches as few memory pages as possible.
    Block,
}

impl RegionAlignment {
    /// All alignments.
    pub const ALL: [Self; 3] = [Self::Packed, Self::Sector, Self::Block];

    /// Returns the alignment in bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::Packed => 1,
            Self::Sector => 512,
            Self::Block => 4096,
        }
    }
}

/// The progress of a writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteProgress {
    /// The number of samples made.
    pub samples: u64,
    /// The size of their regions in bytes.
    pub bytes: u64,
}

/// The size of a written dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteReport {
    /// The number of samples.
    pub samples: u64,
    /// The number of pages.
    pub pages: u64,
    /// The length of the file. The unused ends of pages take no space on filesystems with holes.
    pub file_bytes: u64,
}

impl BetonWriter {
    /// Returns a writer of samples with these fields, in this order. By default it writes packed
    /// pages of 8 MiB, with as many workers as there are processors.
    pub fn new(fields: impl IntoIterator<Item = Field>) -> Self {
        Self {
            fields: fields.into_iter().collect(),
            handlers: Handlers::new(),
            page_bytes: PAGE_BYTES_DEFAULT,
            alignment: RegionAlignment::default(),
            workers: None,
            is_deterministic: false,
            is_direct: false,
            progress: None,
        }
    }

    /// Sets the handlers of the custom fields.
    #[must_use]
    pub fn handlers(mut self, handlers: Handlers) -> Self {
        self.handlers = handlers;
        self
    }

    /// Sets the page size in bytes: a power of two, 2 MiB or more. A sample must fit in one page;
    /// large pages waste less at their ends.
    #[must_use]
    pub fn page_bytes(mut self, page_bytes: u32) -> Self {
        self.page_bytes = page_bytes;
        self
    }

    /// Sets the alignment of regions.
    #[must_use]
    pub fn alignment(mut self, alignment: RegionAlignment) -> Self {
        self.alignment = alignment;
        self
    }

    /// Sets the number of threads that make samples.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(NonZeroUsize::new(workers).unwrap_or(NonZeroUsize::MIN));
        self
    }

    /// Makes the file the same, byte by byte, for any number of workers: all workers make samples, but
    /// the samples are placed in order. This copies every region once more.
    #[must_use]
    pub fn deterministic(mut self, is_deterministic: bool) -> Self {
        self.is_deterministic = is_deterministic;
        self
    }

    /// Writes pages to the device past the page cache (`O_DIRECT`, Linux), which leaves the cache
    /// to other files. Writing fails with [`Error::Unsupported`] if the filesystem refuses it.
    #[must_use]
    pub fn direct(mut self, is_direct: bool) -> Self {
        self.is_direct = is_direct;
        self
    }

    /// Calls `progress` from time to time, from the workers' threads. Calls never overlap, and
    /// their numbers never decrease.
    #[must_use]
    pub fn progress(mut self, progress: impl Fn(WriteProgress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(progress));
        self
    }

    /// Writes `samples` samples. `make` is called once for each of `0..samples`, in any order and
    /// from all workers.
    ///
    /// An error or a panic of `make` stops all workers and is returned ([`Error::Maker`],
    /// [`Error::Panicked`]); then no file is written.
    pub fn write_indexed(
        &self,
        path: impl AsRef<Path>,
        samples: u64,
        make: impl Fn(u64, &mut SampleBuilder<'_>) -> Result<(), SampleError> + Sync,
    ) -> Result<WriteReport, Error> {
        self.write(path.as_ref(), samples, &Indexed::new(samples, make))
    }

    /// Writes the samples that `make` makes from the items of an iterator, in their order. One
    /// worker at a time advances the iterator, and all workers call `make`. If the iterator does
    /// not yield exactly `samples` items, the error is [`Error::InvalidItem`], and no file is
    /// written.
    pub fn write_iter<I>(
        &self,
        path: impl AsRef<Path>,
        samples: u64,
        items: I,
        make: impl Fn(I::Item, &mut SampleBuilder<'_>) -> Result<(), SampleError> + Sync,
    ) -> Result<WriteReport, Error>
    where
        I: IntoIterator,
        I::IntoIter: Send,
    {
        let path = path.as_ref();
        self.write(path, samples, &Iterated::new(path, samples, items.into_iter(), make))
    }

    fn write(&self, path: &Path, samples: u64, feed: &impl Feed) -> Result<WriteReport, Error> {
        let header = self.header(path, samples)?;
        let create = |path: &Path| self.create(path);
        let dataset = DatasetFile::create(path, &self.fields, &self.handlers, header, create)?;
        let workers = self.workers_for(samples);
        let pool = self.pool(workers).map_err(|error| Error::backend(path, error))?;
        let order = self.is_deterministic.then(|| OrderedPage::new(pool.clone()));
        let align = self.alignment.bytes();
        SampleWriters::new(&dataset, order.as_ref(), &pool, align, self.progress.as_deref())
            .run(workers, feed)?;
        dataset.finish()
    }

    fn header(&self, path: &Path, samples: u64) -> Result<Header, Error> {
        if !is_page_size(self.page_bytes) {
            let reason = "the page size must be a power of two, 2 MiB or more";
            return Err(Error::invalid_option("page_bytes", self.page_bytes, reason));
        }
        let fields = match u16::try_from(self.fields.len()) {
            Ok(fields @ 1..) => fields,
            _ => {
                let reason = "a dataset must have 1 to 65535 fields";
                return Err(Error::invalid_option("fields", self.fields.len(), reason));
            }
        };
        let mut names = BTreeSet::new();
        if let Some(twice) = self.fields.iter().find(|field| !names.insert(field.name())) {
            let reason = "two fields have this name, and FFCV finds fields by name";
            return Err(Error::invalid_option("fields", twice.name(), reason));
        }
        for field in &self.fields {
            if field.kind().array().is_some_and(|spec| spec.shape().is_empty()) {
                let reason = "FFCV cannot read arrays without axes; use the shape [1]".to_owned();
                let (path, item) = (path.to_owned(), Some(Item::Field(field.name().into())));
                return Err(Error::InvalidItem { path, item, reason });
            }
        }
        Ok(Header { fields, page_bytes: self.page_bytes, samples, alloc_table_ptr: 0 })
    }

    fn create(&self, path: &Path) -> Result<OutputFile, Error> {
        let created =
            if self.is_direct { OutputFile::create_direct(path) } else { OutputFile::create(path) };
        created.map_err(|error| match error.kind() {
            io::ErrorKind::Unsupported => Error::Unsupported {
                path: path.to_owned(),
                reason:
                    "the filesystem of its folder refuses O_DIRECT; write it without `direct`, \
                         or elsewhere"
                        .to_owned(),
            },
            _ => Error::io(path, "creating the dataset's temporary file", error),
        })
    }

    fn workers_for(&self, samples: u64) -> usize {
        let processors = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let workers = self.workers.map_or_else(processors, NonZeroUsize::get).min(WORKERS_MAX);
        workers.min(usize::try_from(samples).unwrap_or(usize::MAX)).max(1)
    }

    fn pool(&self, workers: usize) -> Result<BufferPool, ringmain_backends::Error> {
        // Ordered writing holds a page of waiting samples and a page to write per worker, and the
        // page that is filled.
        let pages = if self.is_deterministic { 2 * workers + 1 } else { workers };
        let limit_bytes = pages.saturating_mul(self.page_bytes as usize);
        BufferPool::new(PoolOptions { limit_bytes, ..PoolOptions::default() })
    }
}

impl fmt::Debug for BetonWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BetonWriter")
            .field("fields", &self.fields.iter().map(Field::name).collect::<Vec<_>>())
            .field("page_bytes", &self.page_bytes)
            .field("alignment", &self.alignment)
            .field("workers", &self.workers)
            .field("is_deterministic", &self.is_deterministic)
            .field("is_direct", &self.is_direct)
            .finish_non_exhaustive()
    }
}
