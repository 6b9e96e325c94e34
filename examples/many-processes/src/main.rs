//! One process of a job: reads its shares of a folder of shards, and prints the rows of each global batch.
//!
//! ```text
//! RANK=0 WORLD_SIZE=2 many-processes SHARDS STATES
//! RANK=1 WORLD_SIZE=2 many-processes SHARDS STATES
//! ```
//!
//! After each batch, a process saves the state of the job in the folder STATES. When the job starts again, with any
//! number of processes, it continues where the slowest process was. In a training job all processes finish a batch
//! together, so the state of any one of them is enough.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::io::Write as _;
use std::path::Path;
use std::{env, fs, io};

use ringmain::Engine;
use ringmain::epochs::{EpochState, JobPlace};
use ringmain::shards::{Order, ShardOptions};

const GLOBAL_BATCH: u64 = 24;

fn main() -> Result<(), Box<dyn Error>> {
    let mut folders = env::args_os().skip(1);
    let (Some(shards), Some(states)) = (folders.next(), folders.next()) else {
        return Err("usage: many-processes SHARDS STATES".into());
    };
    let place = JobPlace::find(None)?;
    let mut source = ShardOptions::new()
        .order(Order::Shuffled { seed: 1 })
        .partition(place.rank(), place.world())
        .global_batch(GLOBAL_BATCH)
        .open_dir(&Engine::new()?, shards)?;
    let states = Path::new(&states);
    if let Some(state) = read_state(&states.join("job.json"))? {
        source.resume(&state)?;
    }
    let own = states.join(format!("rank-{}.json", place.rank()));
    let mut out = io::stdout().lock();
    loop {
        let number = source.state().batches_done().unwrap_or_default();
        let Some(batch) = source.next_batch()? else { return Ok(()) };
        writeln!(out, "{number} {:?}", batch.row_ids())?;
        write_state(&own, &source.state())?;
    }
}

fn read_state(path: &Path) -> Result<Option<EpochState>, Box<dyn Error>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(serde_json::from_str(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A process that is killed leaves the old state or the new one.
fn write_state(path: &Path, state: &EpochState) -> Result<(), Box<dyn Error>> {
    let new = path.with_extension("new");
    fs::write(&new, serde_json::to_string(state)?)?;
    Ok(fs::rename(new, path)?)
}
