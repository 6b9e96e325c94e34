//! A server that loads a model: tensors are delivered while the next ones are read.
//!
//! A cell ends only with a whole pass over the model, since a cell that ended earlier would count a
//! fraction of what the device has read. It is invalid if the device read more than twice what was
//! delivered.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use ringmain::backends::PoolOptions;
use ringmain::weights::{Dtype, Load, LoadOptions, Tensor, Weights};
use ringmain::{Buffer, BufferPool, Engine};

use super::{Done, Job, JobSpec, NewData, Parameter, Variant, Workload, in_variants};
use crate::failure::Failure;
use crate::generate::{Extent, Model, ModelSizes};
use crate::plan::{Plan, Source};
use crate::result::Setting;

/// The workload `weights`.
#[derive(Debug)]
pub(super) struct ModelWeights;

const TENSORS: u64 = 200;
/// The default window, which is that of the engine.
const WINDOW_BYTES: u64 = 128 << 20;

/// The source of the tensors' memory: the operating system, or a pool of pages that were used before.
const FRESH: &str = "fresh";
const RECYCLED: &str = "recycled";
const VARIANTS: [Variant; 2] = [
    Variant::usual(FRESH, "into new memory"),
    Variant::usual(RECYCLED, "into memory that was used before"),
];

impl Workload for ModelWeights {
    fn name(&self) -> &'static str {
        "weights"
    }

    fn about(&self) -> &'static str {
        "loads the 200 tensors of a safetensors model, into fresh memory and into recycled"
    }

    fn takes(&self, parameter: Parameter) -> bool {
        parameter == Parameter::Window
    }

    fn variants(&self) -> &'static [Variant] {
        &VARIANTS
    }

    /// The size of tensors is fixed, so the block sizes and batches of a plan have no effect.
    fn settings(&self, plan: &Plan) -> Vec<Setting> {
        let plan = Plan { batches: Vec::new(), ..plan.clone() };
        let windows: Vec<u64> = match plan.window_bytes.as_slice() {
            [] => vec![WINDOW_BYTES],
            windows => windows.iter().map(|bytes| bytes.0).collect(),
        };
        let mut settings = Vec::new();
        for setting in in_variants(&plan, 1, &VARIANTS) {
            settings.extend(windows.iter().map(|window| Setting {
                batch: None,
                window_bytes: Some(*window),
                ..setting.clone()
            }));
        }
        settings
    }

    /// Only with data of the user, so that a default run takes two minutes.
    fn is_default(&self, plan: &Plan) -> bool {
        matches!(plan.data.source(), Source::Own(_))
    }

    fn data_name(&self) -> &'static str {
        "weights"
    }

    fn make_data(&self, data: &NewData<'_>) -> Result<Vec<PathBuf>, Failure> {
        let path = data.dir.join("model.safetensors");
        let extent = Extent::Total(data.bytes);
        let sizes = ModelSizes { tensors: TENSORS, extent, dtypes: vec![Dtype::BF16] };
        Model::new(&sizes, data.seed)?.write_file(&path, data.progress)?;
        Ok(vec![path])
    }

    /// Returns the index, if the model has one, and the files of tensors.
    fn own_files(&self, path: &Path) -> Result<Vec<PathBuf>, Failure> {
        if !holds_weights(path)? {
            return Ok(Vec::new());
        }
        let weights = Weights::open(&Engine::new()?, path)?;
        let index = Some(weights.path().to_owned()).filter(|path| is_index(path));
        let files = weights.files().iter().map(|file| file.path().to_owned());
        Ok(index.into_iter().chain(files).collect())
    }

    fn cached_files(&self, files: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
        Ok(files.iter().filter(|path| !is_index(path)).cloned().collect())
    }

    fn reads_ahead(&self) -> bool {
        true
    }

    fn open(&self, job: &JobSpec<'_>) -> Result<Box<dyn Job>, Failure> {
        Ok(Box::new(Loader::open(job)?))
    }
}

/// Returns whether the file, or a file of the folder, has the name of safetensors or of their index.
pub(crate) fn holds_weights(path: &Path) -> Result<bool, Failure> {
    let failed = |source| Failure::ReadFile { path: path.to_owned(), source };
    if !std::fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(is_weights_name(path));
    }
    for entry in std::fs::read_dir(path).map_err(failed)? {
        if is_weights_name(&entry.map_err(failed)?.path()) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_weights_name(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")
}

fn is_index(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
}

/// Loads tensors. Threads take them in turn.
#[derive(Debug)]
struct Loader {
    weights: Weights,
    /// The tensors of this thread.
    names: Vec<String>,
    window_bytes: usize,
    pool: Option<BufferPool>,
    /// Started with the first operation, because it starts to read at once.
    load: Option<Load>,
    last: Option<Tensor>,
}

impl Loader {
    fn open(spec: &JobSpec<'_>) -> Result<Self, Failure> {
        let weights = Weights::open(spec.engine, model_path(spec.files))?;
        let own =
            weights.tensors().skip(spec.thread as usize).step_by(spec.threads.max(1) as usize);
        let names = own.map(|info| info.name().to_owned()).collect();
        let window_bytes = spec.setting.window_bytes.unwrap_or(WINDOW_BYTES);
        let window_bytes = usize::try_from(window_bytes).unwrap_or(usize::MAX);
        let is_recycled = spec.is_variant(RECYCLED);
        let pool = is_recycled.then(|| used_pool(&weights, window_bytes)).transpose()?;
        Ok(Self { weights, names, window_bytes, pool, load: None, last: None })
    }

    fn begin(&self) -> Result<Load, Failure> {
        let options = LoadOptions::new().only(self.names.clone()).window_bytes(self.window_bytes);
        let options = match &self.pool {
            Some(pool) => options.pool(pool),
            None => options,
        };
        Ok(self.weights.load(options)?)
    }
}

/// Returns the path to open: an index, a file, or the folder of files without an index.
fn model_path(files: &[PathBuf]) -> &Path {
    match files {
        [first, ..] if files.len() == 1 || is_index(first) => first,
        [first, ..] => first.parent().unwrap_or(first),
        [] => Path::new(""),
    }
}

/// Returns a pool whose pages were written before, as if a model of the same shape had been loaded.
fn used_pool(weights: &Weights, window_bytes: usize) -> Result<BufferPool, Failure> {
    // Twice the need, because the sizes below are rounded to pages.
    let limit_bytes = weights.pool_bytes().saturating_mul(2);
    let pool = BufferPool::new(PoolOptions { limit_bytes, ..PoolOptions::default() })?;
    let (mut held, mut held_bytes) = (VecDeque::<Buffer>::new(), 0usize);
    for tensor in weights.tensors() {
        // The blocks around the tensor are read too.
        let mut buffer = pool.take(tensor.nbytes() + 2 * PAGE_BYTES)?;
        buffer.fill(1);
        held_bytes += buffer.capacity();
        held.push_back(buffer);
        while held_bytes > window_bytes && held.len() > 2 {
            held_bytes -= held.pop_front().map_or(0, |buffer| buffer.capacity());
        }
    }
    drop(held);
    Ok(pool)
}

const PAGE_BYTES: usize = 4096;

impl Job for Loader {
    fn next(&mut self) -> Result<Option<Done>, Failure> {
        // Release its memory first, so that the next tensor can use it.
        self.last = None;
        if self.load.is_none() {
            self.load = Some(self.begin()?);
        }
        self.last = self.load.as_mut().and_then(Iterator::next).transpose()?;
        let done = |tensor: &Tensor| Done { bytes: tensor.bytes().len() as u64, reads: 1 };
        Ok(self.last.as_ref().map(done))
    }

    fn last(&self) -> &[u8] {
        self.last.as_ref().map_or(&[], Tensor::bytes)
    }

    fn begin_epoch(&mut self, _: u64) -> Result<(), Failure> {
        (self.last, self.load) = (None, None);
        Ok(())
    }
}
