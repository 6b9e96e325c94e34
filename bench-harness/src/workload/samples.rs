//! A training pass over a dataset: batches of samples in random order.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};

use ringmain::BackendKind;
use ringmain::beton::{
    Batch, BetonReader, MemoryManager, Order, PAGE_BYTES_DEFAULT, RegionAlignment, SampleOptions,
    SampleSource,
};

use super::{
    Done, Job, JobSpec, NewData, Parameter, Variant, Workload, in_variants, regular_files,
};
use crate::failure::Failure;
use crate::generate::{BetonField, BetonSpec, write_beton};
use crate::plan::{Plan, Source};
use crate::result::Setting;

/// The workloads `samples`, `samples-sectors` and `samples-aligned`, which differ in where the samples begin in the file.
#[derive(Debug)]
pub(super) struct Samples {
    name: &'static str,
    alignment: RegionAlignment,
}

impl Samples {
    pub(super) const PACKED: Self = Self { name: "samples", alignment: RegionAlignment::Packed };
    pub(super) const SECTORS: Self =
        Self { name: "samples-sectors", alignment: RegionAlignment::Sector };
    pub(super) const ALIGNED: Self =
        Self { name: "samples-aligned", alignment: RegionAlignment::Block };
}

/// An image of 128 × 128 in RGB.
const SAMPLE_BYTES: u64 = 48 << 10;
const BATCH_SIZE: u32 = 256;

/// Its variants.
const SEQUENTIAL: &str = "sequential";
const RANDOM: &str = "random";
const RANDOM_OS_CACHE: &str = "random-os-cache";
const QUASI_RANDOM: &str = "quasi-random";
const QUASI_RANDOM_PAGES: &str = "quasi-random-pages";
const VARIANTS: [Variant; 5] = [
    Variant::usual(SEQUENTIAL, "samples by number"),
    Variant::usual(RANDOM, "samples in random order"),
    Variant::special(RANDOM_OS_CACHE, "the same through a mapping, read ahead; only mmap"),
    Variant::special(QUASI_RANDOM, "samples of eight pages at a time in random order"),
    Variant::special(QUASI_RANDOM_PAGES, "the same, from whole pages that the process keeps"),
];
const OPEN_PAGES: NonZeroU64 = NonZeroU64::new(8).unwrap();
/// Twice the open pages, so that every page is read once.
const CACHED_PAGES: NonZeroUsize = NonZeroUsize::new(16).unwrap();

impl Workload for Samples {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        match self.alignment {
            RegionAlignment::Packed => {
                "delivers samples of a .beton dataset, 256 of 48 KiB at a time, in order and at random"
            }
            RegionAlignment::Sector => {
                "the same, with samples that begin at multiples of 512 bytes in the file"
            }
            _ => "the same, with samples that begin at multiples of 4 KiB in the file",
        }
    }

    fn takes(&self, parameter: Parameter) -> bool {
        matches!(parameter, Parameter::Batch | Parameter::SampleSize)
    }

    /// The block sizes of a plan have no effect. A size of samples that it names is the size of the reads.
    fn settings(&self, plan: &Plan) -> Vec<Setting> {
        let block_bytes = plan.data.sample_bytes.map(|bytes| bytes.0);
        let settings = in_variants(plan, BATCH_SIZE, &VARIANTS);
        settings.into_iter().map(|setting| Setting { block_bytes, ..setting }).collect()
    }

    fn variants(&self) -> &'static [Variant] {
        &VARIANTS
    }

    fn backend(&self, setting: &Setting) -> Option<BackendKind> {
        let is_mapped = setting.variant.as_deref() == Some(RANDOM_OS_CACHE);
        is_mapped.then_some(BackendKind::Mmap)
    }

    /// Only with data of the user, so that a default run takes two minutes.
    fn is_default(&self, plan: &Plan) -> bool {
        matches!(plan.data.source(), Source::Own(_)) && self.alignment == RegionAlignment::Packed
    }

    /// An engine lends half of its memory, here to the pages and to some batches.
    fn buffer_bytes_min(&self, setting: &Setting) -> u64 {
        match setting.variant.as_deref() {
            Some(QUASI_RANDOM_PAGES) => {
                2 * (CACHED_PAGES.get() as u64 + 8) * u64::from(PAGE_BYTES_DEFAULT)
            }
            _ => 0,
        }
    }

    fn data_name(&self) -> &'static str {
        match self.alignment {
            RegionAlignment::Packed => "beton",
            RegionAlignment::Sector => "beton in sectors",
            _ => "aligned beton",
        }
    }

    /// With the gaps between the samples, which only small samples notice.
    fn made_bytes(&self, plan: &Plan) -> u64 {
        let sample_bytes = plan.data.sample_bytes.map_or(SAMPLE_BYTES, |bytes| bytes.0).max(1);
        let place_bytes = sample_bytes.next_multiple_of(self.alignment.bytes() as u64);
        (plan.data.bytes.0 / sample_bytes).max(1).saturating_mul(place_bytes)
    }

    fn make_data(&self, data: &NewData<'_>) -> Result<Vec<PathBuf>, Failure> {
        let sample_bytes = data.sample_bytes.unwrap_or(SAMPLE_BYTES).max(1);
        let mut fields = vec![BetonField::Int, BetonField::Bytes];
        if data.sample_bytes.is_none() {
            // JSON of any length, so that arrays start anywhere, as in files of FFCV.
            fields = vec![BetonField::Int, BetonField::Json, BetonField::Ndarray];
        }
        // The copies for the cache states must be the same.
        let spec = BetonSpec {
            samples: (data.bytes / sample_bytes).max(1),
            sample_bytes,
            fields,
            is_varied: false,
            page_bytes: PAGE_BYTES_DEFAULT,
            alignment: self.alignment,
            workers: None,
            is_deterministic: true,
            is_direct: false,
            seed: data.seed,
        };
        let path = data.dir.join("samples.beton");
        write_beton(&path, &spec, data.progress)?;
        Ok(vec![path])
    }

    fn own_files(&self, path: &Path) -> Result<Vec<PathBuf>, Failure> {
        // A file of the user is what it is.
        match self.alignment {
            RegionAlignment::Packed => beton_files(path),
            _ => Ok(Vec::new()),
        }
    }

    fn open(&self, job: &JobSpec<'_>) -> Result<Box<dyn Job>, Failure> {
        let seed = job.seed;
        let order = match job.variant() {
            RANDOM | RANDOM_OS_CACHE => Order::Shuffled { seed },
            QUASI_RANDOM | QUASI_RANDOM_PAGES => {
                Order::PageShuffled { seed, open_pages: OPEN_PAGES }
            }
            _ => Order::Sequential,
        };
        let memory = match job.variant() {
            RANDOM_OS_CACHE => MemoryManager::OsCache,
            QUASI_RANDOM_PAGES => MemoryManager::ProcessCache { pages: CACHED_PAGES },
            _ => MemoryManager::Direct,
        };
        let options = SampleOptions::new()
            .batch_size(job.batch(BATCH_SIZE))
            .order(order)
            .memory_manager(memory)
            .partition(job.thread, job.threads);
        let mut sources = Vec::new();
        for file in job.files {
            sources.push(options.clone().open(&BetonReader::open(job.engine, file)?)?);
        }
        Ok(Box::new(Pass { sources, at: 0, last: None }))
    }
}

/// Returns the datasets of a folder by name, or the file itself; none if it is not a dataset.
fn beton_files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut files = regular_files(path)?;
    files.retain(|file| is_beton_name(file));
    Ok(files)
}

pub(crate) fn is_beton_name(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "beton")
}

/// One dataset after the other.
#[derive(Debug)]
struct Pass {
    sources: Vec<SampleSource>,
    at: usize,
    last: Option<Batch>,
}

impl Job for Pass {
    fn next(&mut self) -> Result<Option<Done>, Failure> {
        // Release its memory first, so that the next batch can use it.
        self.last = None;
        while let Some(source) = self.sources.get_mut(self.at) {
            if let Some(batch) = source.next_batch()? {
                let done = size_of_batch(&batch);
                self.last = Some(batch);
                return Ok(Some(done));
            }
            self.at += 1;
        }
        Ok(None)
    }

    fn last(&self) -> &[u8] {
        self.last.as_ref().map_or(&[], largest_column)
    }

    fn begin_epoch(&mut self, epoch: u64) -> Result<(), Failure> {
        (self.at, self.last) = (0, None);
        self.sources.iter_mut().for_each(|source| source.set_epoch(epoch));
        Ok(())
    }
}

/// Returns the bytes of the columns that come from pages, and their number of regions.
fn size_of_batch(batch: &Batch) -> Done {
    let columns = (0..batch.fields().len()).filter_map(|field| column(batch, field));
    let sizes = columns.map(|bytes| (bytes.len() as u64, batch.len() as u64));
    let sum = sizes.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1));
    Done { bytes: sum.0, reads: sum.1 }
}

/// Returns the column with the most bytes: that of the images or arrays.
fn largest_column(batch: &Batch) -> &[u8] {
    let columns = (0..batch.fields().len()).filter_map(|field| column(batch, field));
    columns.max_by_key(|bytes| bytes.len()).unwrap_or_default()
}

fn column(batch: &Batch, field: usize) -> Option<&[u8]> {
    let arrays = batch.arrays(field).map(|arrays| arrays.bytes);
    arrays.or_else(|| batch.blobs(field).map(|blobs| blobs.bytes))
}
