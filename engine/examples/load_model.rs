//! Loads models one after the other, like a server that swaps them, and prints a line of JSON with
//! the time for each. With `--recycled` the second model reuses the memory of the first.
//!
//! ```text
//! cargo run --release -p ringmain --features direct,uring,safetensors --example load_model -- \
//!     [--backend KIND] [--recycled] [--stream] MODEL...
//! ```
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::PathBuf;
use std::{env, time::Instant};

use ringmain::backends::PoolOptions;
use ringmain::weights::{LoadOptions, Tensor, Weights};
use ringmain::{BackendKind, BufferPool, Engine};

struct Args {
    backend: BackendKind,
    memory: Memory,
    way: Way,
    models: Vec<PathBuf>,
}

#[derive(Clone, Copy, PartialEq)]
enum Memory {
    Fresh,
    Recycled,
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// `Weights::read_all`: one batch.
    Batch,
    /// `Weights::load`: one tensor after the other, while the next ones are read.
    Stream,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse()?;
    let engine = Engine::builder().backend(args.backend).build()?;
    let mut pool = None;
    for model in &args.models {
        let start = Instant::now();
        let weights = Weights::open(&engine, model)?;
        if args.memory == Memory::Recycled && pool.is_none() {
            let limit_bytes = weights.pool_bytes();
            pool = Some(BufferPool::new(PoolOptions { limit_bytes, ..PoolOptions::default() })?);
        }
        let tensors = load(&weights, args.way, pool.as_ref())?;
        let seconds = start.elapsed().as_secs_f64();
        let line = serde_json::json!({
            "model": model,
            "backend": engine.backend().kind().to_string(),
            "tensors": tensors.len(),
            "bytes": weights.nbytes(),
            "seconds": seconds,
            "sum": tensors.iter().fold(0, |sum: u64, tensor| sum.wrapping_add(sum_of(tensor))),
        });
        println!("{line}");
    }
    Ok(())
}

/// Returns all tensors of a model, in memory at once.
fn load(
    weights: &Weights,
    way: Way,
    pool: Option<&BufferPool>,
) -> Result<Vec<Tensor>, Box<dyn Error>> {
    match (way, pool) {
        (Way::Batch, None) => Ok(weights.read_all()?),
        (Way::Batch, Some(pool)) => Ok(weights.read_all_from(pool)?),
        (Way::Stream, None) => Ok(weights.load(LoadOptions::new())?.collect::<Result<_, _>>()?),
        (Way::Stream, Some(pool)) => {
            Ok(weights.load(LoadOptions::new().pool(pool))?.collect::<Result<_, _>>()?)
        }
    }
}

/// Returns the sum of the tensor's bytes as little-endian words, to compare with other loaders.
fn sum_of(tensor: &Tensor) -> u64 {
    let (words, rest) = tensor.bytes().as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&last]);
    words.fold(0, |sum: u64, word| sum.wrapping_add(u64::from_le_bytes(*word)))
}

impl Args {
    fn parse() -> Result<Self, Box<dyn Error>> {
        let mut parsed = Self {
            backend: BackendKind::Auto,
            memory: Memory::Fresh,
            way: Way::Batch,
            models: Vec::new(),
        };
        let mut args = env::args_os().skip(1);
        while let Some(arg) = args.next() {
            match arg.to_str() {
                Some("--backend") => {
                    let name = args.next().ok_or("--backend needs a name")?;
                    parsed.backend = name.to_str().unwrap_or_default().parse()?;
                }
                Some("--recycled") => parsed.memory = Memory::Recycled,
                Some("--stream") => parsed.way = Way::Stream,
                Some(option) if option.starts_with("--") => {
                    return Err(format!("there is no option {option}").into());
                }
                _ => parsed.models.push(arg.into()),
            }
        }
        if parsed.models.is_empty() {
            return Err(
                "usage: load_model [--backend KIND] [--recycled] [--stream] MODEL...".into()
            );
        }
        Ok(parsed)
    }
}
