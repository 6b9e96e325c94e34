//! A program that reads views, shards and weights with the engine, over `auto`.

use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::Path;

use ringmain::Engine;
use ringmain::shards::{Order, RowType, ShardOptions, list_shards};
use ringmain::weights::{LoadOptions, Weights};

/// The name of the copied test program.
pub(super) const PROGRAM: &str = "engine";
/// The test in which the program begins.
pub(super) const TEST: &str = "surroundings::engine::program";
/// In the program: the folder of the data.
pub(super) const TASK: &str = "RINGMAIN_ENGINE_TASK";
/// The last line of a program that read everything.
pub(super) const RIGHT: &str = "all is right\n";

pub(super) const RAW: &str = "data.bin";
pub(super) const NPY: &str = "array.npy";
pub(super) const SHARDS: &str = "shards";
pub(super) const WEIGHTS: &str = "model.safetensors";

/// By itself it does nothing. It ends like a command: code 0, or 1 and a message.
#[test]
fn program() {
    let Some(data) = std::env::var_os(TASK) else { return };
    let code = match read_all(Path::new(&data)) {
        Ok(()) => {
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(RIGHT.as_bytes()).and_then(|()| stdout.flush()).unwrap();
            0
        }
        Err(error) => {
            let mut text = format!("error: {error}");
            let mut cause = error.source();
            while let Some(next) = cause {
                text += &format!(": {next}");
                cause = next.source();
            }
            eprintln!("{text}");
            1
        }
    };
    std::process::exit(code);
}

type Ending = Result<(), Box<dyn Error>>;

/// The standard library reads first, because the engine keeps files open.
fn read_all(data: &Path) -> Ending {
    let (npy, folder, weights) = (data.join(NPY), data.join(SHARDS), data.join(WEIGHTS));
    let right_npy = fs::read(&npy)?;
    let shards = list_shards(&folder)?.iter().map(fs::read).collect::<Result<Vec<_>, _>>()?;
    let right_weights = fs::read(&weights)?;
    let engine = Engine::new()?;
    read_views(&engine, &npy, &right_npy)?;
    read_shards(&engine, &folder, &shards)?;
    read_weights(&engine, &weights, &right_weights)?;
    let described = engine.describe().to_string();
    assert!(described.contains("auto"), "{described}");
    Ok(())
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn read_views(engine: &Engine, path: &Path, right: &[u8]) -> Ending {
    let view = engine.open_npy(path)?;
    let right = floats(&right[view.offset() as usize..]);
    assert!(view.read_vec::<f32>()? == right);
    let width = view.shape()[1];
    let rows = [7, 15_000, 512, 19_999];
    let windows = rows.iter().map(|row| view.at(*row)).collect::<Result<Vec<_>, _>>()?;
    let mut found = vec![0.0; rows.len() * width];
    engine.read_many(&windows, &mut found)?;
    for (row, found) in rows.iter().zip(found.chunks_exact(width)) {
        assert!(*found == right[*row as usize * width..][..width]);
    }
    Ok(())
}

fn read_shards(engine: &Engine, folder: &Path, shards: &[Vec<u8>]) -> Ending {
    const HEADER_BYTES: usize = 32;
    let right: Vec<f32> = shards.iter().flat_map(|bytes| floats(&bytes[HEADER_BYTES..])).collect();
    for order in [Order::Sequential, Order::Shuffled { seed: 3 }] {
        let options = ShardOptions::new().order(order).row_type(RowType::F32).batch_size(999);
        let mut source = options.open_dir(engine, folder)?;
        let (width, mut rows) = (source.width(), 0);
        while let Some(batch) = source.next_batch()? {
            rows += batch.row_ids().len() as u64;
            for (at, id) in batch.row_ids().iter().enumerate() {
                let found = &batch.rows_f32().unwrap()[at * width..][..width];
                assert!(*found == right[*id as usize * width..][..width], "row {id}");
            }
        }
        assert_eq!(rows, source.total_rows());
    }
    Ok(())
}

fn read_weights(engine: &Engine, path: &Path, right: &[u8]) -> Ending {
    let weights = Weights::open(engine, path)?;
    let mut tensors = 0;
    for tensor in weights.load(LoadOptions::new())? {
        let tensor = tensor?;
        let info = tensor.info();
        assert!(*tensor.bytes() == right[info.offset() as usize..][..info.nbytes()], "{info:?}");
        tensors += 1;
    }
    assert_eq!(tensors, weights.len());
    Ok(())
}
