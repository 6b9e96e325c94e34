//! Makes a small model and reads its weights in several ways: one tensor, some rows, all of them
//! with a progress bar, and in place through a cache of mappings.
//!
//! ```text
//! cargo run --release -p ringmain --features direct,uring,safetensors --example weights -- \
//!     [BACKEND] [MODEL]
//! ```
//!
//! MODEL is a safetensors file, an index, or a folder; by default a model of 64 MB is made.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use ringmain::weights::{LoadOptions, LoadProgress, Prefer, WeightCache, WeightSource, Weights};
use ringmain::{Engine, Unchanging};
use safetensors::tensor::{Dtype, TensorView};

const LAYERS: usize = 8;
const WIDTH: usize = 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let backend = env::args().nth(1).unwrap_or("auto".into()).parse()?;
    let dir = tempfile::tempdir_in(".")?;
    let path = match env::args().nth(2) {
        Some(path) => PathBuf::from(path),
        None => make_model(dir.path())?,
    };
    let engine = Engine::builder().backend(backend).build()?;
    println!("{}", engine.describe());

    let weights = Weights::open(&engine, &path)?;
    println!("{weights:?}, {:.1} MB", weights.nbytes() as f64 / 1e6);
    read_parts(&weights)?;
    load_all(&weights)?;
    map_in_place(&weights)
}

/// Reads one tensor, and its first rows.
fn read_parts(weights: &Weights) -> Result<(), Box<dyn Error>> {
    let Some(info) = weights.tensors().max_by_key(|info| info.nbytes()) else { return Ok(()) };
    let start = Instant::now();
    let tensor = weights.read(info.name())?;
    println!("{tensor:?}: {} bytes in {:?}", tensor.bytes().len(), start.elapsed());
    if let Some(rows) = info.shape().first() {
        let start = Instant::now();
        let part = weights.read_rows(info.name(), 0..rows.div_ceil(100))?;
        println!("its first rows, {:?}: in {:?}", part.shape(), start.elapsed());
    }
    Ok(())
}

/// Loads all tensors in the order of the files, while the next ones are read.
fn load_all(weights: &Weights) -> Result<(), Box<dyn Error>> {
    let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes}, {eta} left")?;
    let bar = ProgressBar::new(weights.nbytes()).with_style(style);
    let progress = {
        let bar = bar.clone();
        move |progress: LoadProgress| bar.set_position(progress.bytes_done)
    };
    let (start, mut tensors) = (Instant::now(), BTreeMap::new());
    for tensor in weights.load(LoadOptions::new().progress(progress))? {
        let tensor = tensor?;
        tensors.insert(tensor.name().to_owned(), tensor);
    }
    bar.finish_and_clear();
    let rate = weights.nbytes() as f64 / start.elapsed().as_secs_f64() / 1e9;
    println!("{} tensors loaded, {rate:.2} GB/s", tensors.len());
    Ok(())
}

/// Maps the files as slices, through a cache with a limit in bytes.
fn map_in_place(weights: &Weights) -> Result<(), Box<dyn Error>> {
    // SAFETY: the file was made above, or is a model that no process writes to.
    let unchanging = unsafe { Unchanging::promise() };
    let cache = WeightCache::new(4 << 30, unchanging);
    for file in weights.files() {
        let source = WeightSource::from_mapped(cache.get_or_open(file.path())?);
        println!("{source}, {} bytes", source.file_len());
    }
    let Some(info) = weights.tensors().next() else { return Ok(()) };
    let path = weights.files()[info.file()].path();
    let source = WeightSource::open(path, Prefer::Gds(unchanging))?;
    println!("{source}"); // also says why not by GPUDirect Storage
    let (offset, len) = (usize::try_from(info.offset())?, info.nbytes());
    source.prepare_tensor(offset, len)?;
    let sum: u64 = source.get_tensor_bytes(offset, len)?.iter().map(|byte| u64::from(*byte)).sum();
    println!("{}: the bytes add up to {sum}; {:?}", info.name(), cache.stats());
    Ok(())
}

fn make_model(dir: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let bytes: Vec<u8> =
        (0..WIDTH * WIDTH).flat_map(|at| ((at % 251) as f32 / 251.0 - 0.5).to_le_bytes()).collect();
    let shapes = [vec![WIDTH, WIDTH], vec![WIDTH * WIDTH]];
    let view = |layer: usize, part: usize| {
        let name = format!("layers.{layer}.{}", ["weight", "bias"][part]);
        TensorView::new(Dtype::F32, shapes[part].clone(), &bytes).map(|view| (name, view))
    };
    let views = (0..LAYERS).flat_map(|layer| [view(layer, 0), view(layer, 1)]);
    let views = views.collect::<Result<Vec<_>, _>>()?;
    let path = dir.join("model.safetensors");
    safetensors::serialize_to_file(views, None, &path)?;
    Ok(path)
}
