//! Scans a folder of parquet files as a query engine does, through `RingmainStore` or `LocalFileSystem`.
//!
//! ```text
//! parquet-scan generate FOLDER MIB
//! parquet-scan scan FOLDER ringmain|local COLUMNS REPETITIONS
//! ```
//!
//! Each scan prints its seconds and the sum of all values, which must be the same whatever the store is.

mod data;
mod scan;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use ringmain_object_store::local_store::RingmainStore;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["generate", folder, mib] => data::generate(Path::new(folder), mib.parse()?),
        ["scan", folder, store, columns, repetitions] => {
            repeat(Path::new(folder), store, columns.parse()?, repetitions.parse()?)
        }
        _ => Err("usage: parquet-scan generate FOLDER MIB\n       parquet-scan scan FOLDER ringmain|local COLUMNS REPETITIONS".into()),
    }
}

fn repeat(folder: &Path, store: &str, columns: usize, repetitions: usize) -> Outcome<()> {
    let store = open(store)?;
    let files = data::files(folder)?;
    // As many threads and partitions as a query engine has by default.
    let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    for _ in 0..repetitions {
        let started = Instant::now();
        let sum = runtime.block_on(scan::scan(&store, &files, columns))?;
        println!("{} {sum}", started.elapsed().as_secs_f64());
    }
    Ok(())
}

/// The only line that differs between the two.
fn open(name: &str) -> Outcome<Arc<dyn ObjectStore>> {
    match name {
        "local" => Ok(Arc::new(LocalFileSystem::new())),
        "ringmain" => Ok(Arc::new(RingmainStore::new(LocalFileSystem::new())?)),
        _ => Err(format!("there is no store {name}: it can be ringmain or local").into()),
    }
}
