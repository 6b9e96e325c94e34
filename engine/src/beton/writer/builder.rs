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
use super::crew::Crew;
use super::dataset::Dataset;
use super::feed::{Feed, Indexed, Iterated};
use super::order::Order;
use super::sample::{SampleBuilder, SampleError};
use crate::Item;

/// Threads are cheap, their pages are not.
const WORKERS_MAX: usize = 1024;

/// Writes datasets, with any number of threads.
///
/// Every worker fills a page of its own, which is written when the next sample does not fit. A
/// sample is never divided between pages. Until the file is whole and on the device it has a
/// temporary name in the same directory; a file that has the name already is replaced then. Nothing
/// is left of what could not be finished. A process that is killed cannot clean up: a file
/// `NAME.PID-NUMBER.tmp` stays (two on Windows), which can be removed.
///
/// Memory: a page for each worker, or two and one more if it is
/// [`deterministic`](Self::deterministic), as far as they are filled. It does not grow with the
/// number of samples.
///
/// ```
/// use ringmain::beton::{BetonWriter, Field, FieldKind};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("train.beton");
///
/// let fields = [Field::new("text", FieldKind::Bytes)?, Field::new("label", FieldKind::Int)?];
/// let writer = BetonWriter::new(fields).workers(2);
/// // From data that has an index: workers ask for the samples in any order.
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

/// Where regions begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RegionAlignment {
    /// One after the other, as in FFCV's own files.
    #[default]
    Packed,
    /// At multiples of 512 bytes: enough for direct reads from most devices.
    Sector,
    /// At multiples of 4096 bytes: enough for direct reads from all, and a region touches no more
    /// pages of memory than it must.
    Block,
}

impl RegionAlignment {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Packed, Self::Sector, Self::Block];

    /// What the places of regions are multiples of.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::Packed => 1,
            Self::Sector => 512,
            Self::Block => 4096,
        }
    }
}

/// How far a writer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteProgress {
    /// Samples made.
    pub samples: u64,
    /// The bytes of their regions.
    pub bytes: u64,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteReport {
    /// All samples.
    pub samples: u64,
    /// The pages that they fill.
    pub pages: u64,
    /// The length of the file. What its pages do not use takes no room where files can have holes.
    pub file_bytes: u64,
}

impl BetonWriter {
    /// A writer of samples with these fields, in this order, as it is without options: pages of
    /// 8 MiB, packed, by as many workers as there are processors.
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

    /// Who knows the custom fields.
    #[must_use]
    pub fn handlers(mut self, handlers: Handlers) -> Self {
        self.handlers = handlers;
        self
    }

    /// The bytes of a page: a power of two, 2 MiB or more. A sample must fit in one; large pages
    /// lose less at their ends.
    #[must_use]
    pub fn page_bytes(mut self, page_bytes: u32) -> Self {
        self.page_bytes = page_bytes;
        self
    }

    /// Where regions begin.
    #[must_use]
    pub fn alignment(mut self, alignment: RegionAlignment) -> Self {
        self.alignment = alignment;
        self
    }

    /// How many threads make samples.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(NonZeroUsize::new(workers).unwrap_or(NonZeroUsize::MIN));
        self
    }

    /// The file is the same, byte by byte, for any number of workers: samples are made by all, and
    /// get their places in order. Costs a copy of every region.
    #[must_use]
    pub fn deterministic(mut self, is_deterministic: bool) -> Self {
        self.is_deterministic = is_deterministic;
        self
    }

    /// Pages go to the device past the page cache (`O_DIRECT`, Linux), which then has room for other
    /// things. [`Error::Unsupported`] where the filesystem refuses it.
    #[must_use]
    pub fn direct(mut self, is_direct: bool) -> Self {
        self.is_direct = is_direct;
        self
    }

    /// Calls `progress` now and then, from the threads of the workers, one call at a time and with
    /// numbers that grow.
    #[must_use]
    pub fn progress(mut self, progress: impl Fn(WriteProgress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(progress));
        self
    }

    /// Writes `samples` samples. `make` is called once for each of `0..samples`, in any order and
    /// from all workers.
    ///
    /// An error or a panic of `make` stops all workers and is returned
    /// ([`Error::Maker`], [`Error::Panicked`]); no file is left.
    pub fn write_indexed(
        &self,
        path: impl AsRef<Path>,
        samples: u64,
        make: impl Fn(u64, &mut SampleBuilder<'_>) -> Result<(), SampleError> + Sync,
    ) -> Result<WriteReport, Error> {
        self.write(path.as_ref(), samples, &Indexed::new(samples, make))
    }

    /// Writes the samples that `make` makes from what an iterator yields, in that order. The
    /// iterator is asked by one worker at a time, and `make` called from all. `samples` is how many
    /// it yields; more or fewer are [`Error::InvalidItem`], and no file is left.
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
        let dataset = Dataset::create(path, &self.fields, &self.handlers, header, create)?;
        let workers = self.workers_for(samples);
        let pool = self.pool(workers).map_err(|error| Error::backend(path, error))?;
        let order = self.is_deterministic.then(|| Order::new(pool.clone()));
        let align = self.alignment.bytes();
        Crew::new(&dataset, order.as_ref(), &pool, align, self.progress.as_deref())
            .run(workers, feed)?;
        dataset.finish()
    }

    fn header(&self, path: &Path, samples: u64) -> Result<Header, Error> {
        if !is_page_size(self.page_bytes) {
            let reason = "a page has a power of two of bytes, 2 MiB or more";
            return Err(Error::invalid_option("page_bytes", self.page_bytes, reason));
        }
        let fields = match u16::try_from(self.fields.len()) {
            Ok(fields @ 1..) => fields,
            _ => {
                let reason = "a dataset has from 1 to 65535 fields";
                return Err(Error::invalid_option("fields", self.fields.len(), reason));
            }
        };
        let mut names = BTreeSet::new();
        if let Some(twice) = self.fields.iter().find(|field| !names.insert(field.name())) {
            let reason = "two fields have that name, and FFCV knows them by their names";
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
        // In order: samples that wait, the page that is filled, and pages that are written.
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
