//! Writes a dataset in FFCV's format with all processors, and trains a linear classifier on it:
//! images of two colours, with the samples in another order in every epoch, in bounded memory.
//!
//! ```text
//! cargo run --release -p ringmain --features direct,uring,beton --example beton -- [BACKEND] [DIRECTORY]
//! ```
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::Path;
use std::{env, time::Instant};

use ringmain::beton::{
    ArraySpec, BetonReader, BetonWriter, Field, FieldKind, MemoryManager, Order, SampleOptions,
    SampleSource,
};
use ringmain::{Engine, Kind};

const SAMPLES: u64 = 5_000;
const SIDE: usize = 64;
const PIXEL_BYTES: usize = SIDE * SIDE * 3;
const EPOCHS: u64 = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let backend = env::args().nth(1).unwrap_or("auto".into()).parse()?;
    let dir = tempfile::tempdir_in(env::args().nth(2).unwrap_or(".".into()))?;
    let path = dir.path().join("train.beton");
    write(&path)?;

    // Half of the memory is for batches and pages: room for four pages of 8 MiB.
    let engine = Engine::builder().backend(backend).memory_limit_bytes(128 << 20).build()?;
    println!("{}", engine.describe());
    let reader = BetonReader::open(&engine, &path)?;
    println!("{} samples in {} pages", reader.len(), reader.pages());
    println!("sample 7: {:?}", reader.read_sample(7)?.get("note")?);

    let random = Order::Shuffled { seed: 1 };
    train("single samples, in random order", &reader, SampleOptions::new().order(random))?;
    let quasi = Order::PageShuffled { seed: 1, open_pages: 2.try_into()? };
    let pages = MemoryManager::ProcessCache { pages: 4.try_into()? };
    let options = SampleOptions::new().order(quasi).memory_manager(pages);
    train("whole pages, in quasi-random order", &reader, options)
}

/// The label says whether an image is more red or more blue.
fn write(path: &Path) -> Result<(), Box<dyn Error>> {
    let pixels = ArraySpec::new(Kind::U8.into(), &[SIDE, SIDE, 3])?;
    let fields = [
        Field::new("label", FieldKind::Int)?,
        Field::new("pixels", FieldKind::NdArray(pixels))?,
        Field::new("note", FieldKind::Json)?,
    ];
    let start = Instant::now();
    let report = BetonWriter::new(fields).write_indexed(path, SAMPLES, |id, sample| {
        let is_red = id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 63;
        sample.int(is_red as i64)?;
        sample.array_with(|bytes| {
            for (at, byte) in bytes.iter_mut().enumerate() {
                let noise = (id.wrapping_mul(31) ^ at as u64).wrapping_mul(0xBF58_476D) >> 8 & 63;
                let is_lit = at % 3 == if is_red == 1 { 0 } else { 2 };
                *byte = noise as u8 + if is_lit { 64 } else { 0 };
            }
            Ok(())
        })?;
        sample.json(&format!("{{\"id\": {id}}}"))?;
        Ok(())
    })?;
    let rate = report.file_bytes as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!("wrote {} bytes at {rate:.0} MB/s", report.file_bytes);
    Ok(())
}

fn train(what: &str, reader: &BetonReader, options: SampleOptions) -> Result<(), Box<dyn Error>> {
    println!("{what}:");
    let mut source = options.batch_size(128).open(reader)?;
    let mut weights = [0.0f32; 3];
    for epoch in source.epoch()..EPOCHS {
        source.set_epoch(epoch);
        let start = Instant::now();
        let right = one_epoch(&mut source, &mut weights)?;
        let rate = reader.region_bytes() as f64 / start.elapsed().as_secs_f64() / 1e6;
        let share = 100.0 * right as f64 / reader.len() as f64;
        println!("epoch {epoch}: {share:.1} % right, {rate:.0} MB/s");
    }
    Ok(())
}

/// Trains a perceptron on the mean colour, and returns the number of right predictions.
fn one_epoch(source: &mut SampleSource, weights: &mut [f32; 3]) -> Result<u64, Box<dyn Error>> {
    let mut right = 0;
    while let Some(batch) = source.next_batch()? {
        let labels = batch.ints(0).ok_or("no labels")?;
        let images = batch.arrays(1).ok_or("no pixels")?.bytes.chunks_exact(PIXEL_BYTES);
        for (label, pixels) in labels.iter().zip(images) {
            let mut colour = [0.0f32; 3];
            for pixel in pixels.as_chunks::<3>().0 {
                colour.iter_mut().zip(pixel).for_each(|(sum, value)| *sum += f32::from(*value));
            }
            let sum: f32 = weights.iter().zip(colour).map(|(weight, part)| weight * part).sum();
            let target = if *label == 1 { 1.0 } else { -1.0 };
            if sum * target > 0.0 {
                right += 1;
            } else {
                let step = target / (SIDE * SIDE) as f32;
                weights.iter_mut().zip(colour).for_each(|(weight, part)| *weight += step * part);
            }
        }
    }
    Ok(right)
}
