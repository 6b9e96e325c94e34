//! A training pass over a dataset: batches of samples in random order.

use std::path::{Path, PathBuf};

use ringmain::beton::{
    Batch, BetonReader, PAGE_BYTES_DEFAULT, RegionAlignment, SampleOptions, SampleSource,
};

use super::{Done, Job, JobSpec, NewData, Parameter, Workload, in_variants, regular_files};
use crate::cli::BetonField;
use crate::failure::Failure;
use crate::generate::{BetonSpec, write_beton};
use crate::plan::Plan;
use crate::result::Setting;

/// The workload `samples`.
#[derive(Debug)]
pub(super) struct Samples;

/// An image of 128 × 128 in RGB.
const SAMPLE_BYTES: u64 = 48 << 10;
const BATCH_SIZE: u32 = 256;

/// Its variants.
const SEQUENTIAL: &str = "sequential";
const RANDOM: &str = "random";

impl Workload for Samples {
    fn name(&self) -> &'static str {
        "samples"
    }

    fn about(&self) -> &'static str {
        "delivers the samples of a .beton dataset, 256 of 48 KiB at a time, in order and at random"
    }

    fn takes(&self, parameter: Parameter) -> bool {
        parameter == Parameter::Batch
    }

    /// The size of samples is fixed, so the block sizes of a plan have no effect.
    fn settings(&self, plan: &Plan) -> Vec<Setting> {
        in_variants(plan, BATCH_SIZE, [SEQUENTIAL, RANDOM])
    }

    /// Only with data of the user, so that a default run takes two minutes.
    fn is_default(&self, plan: &Plan) -> bool {
        plan.data.trace.is_none() && plan.data.is_own()
    }

    fn data_name(&self) -> &'static str {
        "beton"
    }

    fn make_data(&self, data: &NewData<'_>) -> Result<Vec<PathBuf>, Failure> {
        // The copies for the cache states must be the same.
        let spec = BetonSpec {
            samples: (data.bytes / SAMPLE_BYTES).max(1),
            sample_bytes: SAMPLE_BYTES,
            // JSON of any length, so that arrays start anywhere, as in files of FFCV.
            fields: vec![BetonField::Int, BetonField::Json, BetonField::Ndarray],
            is_varied: false,
            page_bytes: PAGE_BYTES_DEFAULT,
            alignment: RegionAlignment::Packed,
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
        beton_files(path)
    }

    fn open(&self, job: &JobSpec<'_>) -> Result<Box<dyn Job>, Failure> {
        let options = SampleOptions::new()
            .batch_size(job.batch(BATCH_SIZE))
            .order(job.order(RANDOM))
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

    fn restart(&mut self) -> Result<(), Failure> {
        (self.at, self.last) = (0, None);
        self.sources.iter_mut().for_each(SampleSource::reset);
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
