//! Trains a small model on a corpus of shards: linear regression by gradient descent, with the rows
//! in another order in every epoch, in bounded memory for any corpus.
//!
//! ```text
//! cargo run --release -p ringmain --features direct,uring --example shards -- [BACKEND] [DIRECTORY]
//! ```
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::Path;
use std::{env, time::Instant};

use indicatif::{ProgressBar, ProgressStyle};
use ringmain::Engine;
use ringmain::shards::{Order, RowType, ShardOptions, ShardSource, ShardWriter};

/// The last column is the target, the others are the inputs.
const WIDTH: usize = 64;
const SHARDS: usize = 4;
const SHARD_ROWS: usize = 100_000;
const EPOCHS: u64 = 3;
const BATCH_ROWS: usize = 512;
const LEARNING_RATE: f32 = 0.5;

fn main() -> Result<(), Box<dyn Error>> {
    let backend = env::args().nth(1).unwrap_or("auto".into()).parse()?;
    let dir = tempfile::tempdir_in(env::args().nth(2).unwrap_or(".".into()))?;
    write_corpus(dir.path())?;

    let engine = Engine::builder().backend(backend).build()?;
    println!("{}", engine.describe());
    let mut source = ShardOptions::new()
        .batch_size(BATCH_ROWS)
        .order(Order::Shuffled { seed: 1 })
        .row_type(RowType::F32)
        .open_dir(&engine, dir.path())?;
    println!("{} rows of {} columns", source.total_rows(), source.width());

    let mut weights = [0.0; WIDTH - 1];
    for epoch in source.epoch()..EPOCHS {
        source.set_epoch(epoch);
        let start = Instant::now();
        let loss = train(&mut source, &mut weights)?;
        let rate = source.total_rows() as f64 / start.elapsed().as_secs_f64() / 1e6;
        println!("epoch {epoch}: mean squared error {loss:.6}, {rate:.2} million rows/s");
    }
    let error = weights.iter().enumerate().map(|(at, weight)| (weight - true_weight(at)).abs());
    println!("largest error of a weight: {:.4}", error.fold(0.0, f32::max));
    Ok(())
}

/// Makes one pass over the rows, and returns the mean squared error.
fn train(source: &mut ShardSource, weights: &mut [f32]) -> Result<f64, Box<dyn Error>> {
    let style = ProgressStyle::with_template("{bar:40} {human_pos}/{human_len} rows, {eta} left")?;
    let bar = ProgressBar::new(source.epoch_items()).with_style(style);
    let mut squares = 0.0;
    let mut gradient = vec![0.0; weights.len()];
    while let Some(batch) = source.next_batch()? {
        gradient.fill(0.0);
        for row in batch.rows_f32().ok_or("the source delivers f32")?.chunks_exact(WIDTH) {
            let (inputs, target) = row.split_at(WIDTH - 1);
            let predicted: f32 = inputs.iter().zip(&*weights).map(|(x, w)| x * w).sum();
            let error = predicted - target[0];
            squares += f64::from(error * error);
            gradient.iter_mut().zip(inputs).for_each(|(gradient, x)| *gradient += error * x);
        }
        let step = LEARNING_RATE / batch.len() as f32;
        weights.iter_mut().zip(&gradient).for_each(|(weight, gradient)| *weight -= step * gradient);
        bar.inc(batch.len() as u64);
    }
    bar.finish_and_clear();
    Ok(squares / source.epoch_items() as f64)
}

fn true_weight(at: usize) -> f32 {
    (at as f32 * 0.7).sin()
}

/// Writes random inputs, and the target that the true weights give for them.
fn write_corpus(dir: &Path) -> Result<(), Box<dyn Error>> {
    let bar = ProgressBar::new(SHARDS as u64).with_message("writing shards");
    let mut state = 0x5EED_u64;
    let mut row = [0.0; WIDTH];
    for shard in 0..SHARDS {
        let mut writer = ShardWriter::create(dir.join(format!("part-{shard:03}.shard")), WIDTH)?;
        for _ in 0..SHARD_ROWS {
            for value in &mut row[..WIDTH - 1] {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *value = (state >> 40) as f32 / (1 << 23) as f32 - 1.0;
            }
            let inputs = row[..WIDTH - 1].iter().enumerate();
            row[WIDTH - 1] = inputs.map(|(at, value)| value * true_weight(at)).sum();
            writer.write(&row)?;
        }
        writer.finish()?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}
