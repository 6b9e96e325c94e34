//! The formats: how a file is made, and how it is read and checked.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::Path;
use std::rc::Rc;

use ringmain::beton::{BetonReader, MemoryManager, SampleOptions};
use ringmain::epochs::Order;
use ringmain::shards::ShardOptions;
use ringmain::weights::{LoadOptions, Weights};
use ringmain::{BackendKind, ContiguousMemmap, Engine, Result};

use crate::corpus::{check_rows, write_shard};
use crate::made::{Made, check};
use crate::model::{Spec, bytes_of, file};

/// A format, and a way to read it.
pub(crate) struct Format {
    pub(crate) name: &'static str,
    /// The name of the file that fails.
    pub(crate) file: &'static str,
    /// Writes the files to a folder, and returns bytes that every reading needs. The first is in the header.
    pub(crate) write: fn(&Path) -> Vec<u64>,
    pub(crate) open: fn(&Engine, &Path) -> Result<Box<dyn Reading>>,
}

/// Reads a file step by step, and checks what it reads.
pub(crate) trait Reading {
    /// Makes the next step; `false` at the end. After an error the next call makes the same step.
    fn next(&mut self) -> Result<bool>;
}

pub(crate) const FORMATS: [Format; 7] = [
    Format { name: "views", file: ARRAY, write: write_array, open: open_views },
    Format {
        name: "shards",
        file: SHARD,
        write: write_shards,
        open: |engine, folder| open_shards(engine, folder, ShardOptions::new()),
    },
    Format {
        name: "shards, not read ahead",
        file: SHARD,
        write: write_shards,
        open: |engine, folder| {
            let options = ShardOptions::new().order(Order::Shuffled { seed: 5 });
            open_shards(engine, folder, options.prefetch_window_bytes(0))
        },
    },
    Format {
        name: "samples",
        file: BETON,
        write: write_beton,
        open: |engine, folder| {
            open_samples(engine, folder, SampleOptions::new().order(Order::Shuffled { seed: 5 }))
        },
    },
    Format {
        name: "samples, not read ahead",
        file: BETON,
        write: write_beton,
        open: |engine, folder| {
            // Through a mapping where there is one.
            let memory = match engine.backend().kind() {
                BackendKind::Mmap => MemoryManager::OsCache,
                _ => MemoryManager::Direct,
            };
            let options = SampleOptions::new().memory_manager(memory);
            open_samples(engine, folder, options.prefetch_window_bytes(0))
        },
    },
    Format {
        name: "samples by page",
        file: BETON,
        write: write_beton,
        open: |engine, folder| {
            let (open_pages, pages) = (NonZeroU64::new(1).unwrap(), NonZeroUsize::new(2).unwrap());
            let options = SampleOptions::new().order(Order::PageShuffled { seed: 5, open_pages });
            open_samples(
                engine,
                folder,
                options.memory_manager(MemoryManager::ProcessCache { pages }),
            )
        },
    },
    Format { name: "weights", file: WEIGHTS, write: write_weights, open: open_weights },
];

const ARRAY: &str = "array.npy";
const ROWS: usize = 3000;
const WIDTH: usize = 64;

fn element(at: usize) -> f32 {
    at as f32 + 0.5
}

fn write_array(folder: &Path) -> Vec<u64> {
    const HEADER_BYTES: u64 = 128;
    let dict = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({ROWS}, {WIDTH}), }}");
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    bytes.extend(format!("{dict:117}\n").bytes());
    assert_eq!(bytes.len() as u64, HEADER_BYTES);
    bytes.extend((0..ROWS * WIDTH).flat_map(|at| element(at).to_le_bytes()));
    std::fs::write(folder.join(ARRAY), &bytes).unwrap();
    vec![0, HEADER_BYTES + 5, bytes.len() as u64 / 3, bytes.len() as u64 - 1]
}

/// A step of a reading that is not a source.
type Step = Box<dyn Fn() -> Result<()>>;

struct Steps {
    steps: Vec<Step>,
    at: usize,
}

impl Reading for Steps {
    fn next(&mut self) -> Result<bool> {
        let Some(step) = self.steps.get(self.at) else { return Ok(false) };
        step()?;
        self.at += 1;
        Ok(true)
    }
}

fn check_elements(found: &[f32], first: usize) {
    let wrong = found.iter().enumerate().find(|(at, found)| **found != element(first + at));
    assert_eq!(wrong, None, "elements from {first}");
}

/// All of the array at once, many rows as one batch, and blocks of rows read ahead.
fn open_views(engine: &Engine, folder: &Path) -> Result<Box<dyn Reading>> {
    let view = engine.open_npy(folder.join(ARRAY))?;
    let whole = view.clone();
    let rows = (0..ROWS).rev().step_by(7).collect::<Vec<_>>();
    let views = rows.iter().map(|row| view.at(*row as i64)).collect::<Result<Vec<_>>>()?;
    let blocks: Vec<ContiguousMemmap> = view.chunks(100)?.collect();
    let (many_engine, ahead_engine) = (engine.clone(), engine.clone());
    let steps: Vec<Step> = vec![
        Box::new(move || {
            check_elements(&whole.read_vec()?, 0);
            Ok(())
        }),
        Box::new(move || {
            let mut found = vec![0.0; views.len() * WIDTH];
            many_engine.read_many(&views, &mut found)?;
            for (row, found) in rows.iter().zip(found.chunks_exact(WIDTH)) {
                check_elements(found, row * WIDTH);
            }
            Ok(())
        }),
        Box::new(move || {
            let mut read = 0;
            for (at, block) in ahead_engine.read_ahead(blocks.clone(), 1 << 20)?.enumerate() {
                let bytes = block?;
                let found: Vec<f32> =
                    bytes.as_chunks().0.iter().map(|it| f32::from_le_bytes(*it)).collect();
                check_elements(&found, at * 100 * WIDTH);
                read += found.len();
            }
            assert_eq!(read, ROWS * WIDTH);
            Ok(())
        }),
    ];
    Ok(Box::new(Steps { steps, at: 0 }))
}

/// A source of batches. Each item must come exactly once.
struct Batches<N> {
    next: N,
    items: u64,
    seen: Vec<u64>,
}

impl<N: FnMut() -> Result<Option<Vec<u64>>>> Reading for Batches<N> {
    fn next(&mut self) -> Result<bool> {
        if let Some(ids) = (self.next)()? {
            self.seen.extend(ids);
            return Ok(true);
        }
        self.seen.sort_unstable();
        assert!(self.seen.iter().copied().eq(0..self.items), "{} items", self.seen.len());
        Ok(false)
    }
}

/// The second of two shards.
const SHARD: &str = "part-1.shard";
const SHARD_ROWS: u64 = 1500;

fn write_shards(folder: &Path) -> Vec<u64> {
    write_shard(&folder.join("part-0.shard"), 0..SHARD_ROWS, WIDTH);
    write_shard(&folder.join(SHARD), SHARD_ROWS..2 * SHARD_ROWS, WIDTH);
    let len = folder.join(SHARD).metadata().unwrap().len();
    vec![0, 35, len / 2, len - 1]
}

fn open_shards(engine: &Engine, folder: &Path, options: ShardOptions) -> Result<Box<dyn Reading>> {
    let mut source = options.batch_size(100).open_dir(engine, folder)?;
    let next = move || {
        let batch = source.next_batch()?;
        Ok(batch.map(|batch| {
            check_rows(&batch);
            batch.row_ids().to_vec()
        }))
    };
    Ok(Box::new(Batches { next, items: 2 * SHARD_ROWS, seen: Vec::new() }))
}

const BETON: &str = "made.beton";
const SAMPLES: u64 = 200;

fn write_beton(folder: &Path) -> Vec<u64> {
    let made = Made::new(SAMPLES, 3);
    made.write(&folder.join(BETON));
    let table = &made.table;
    let regions = [table.len() / 2, table.len() - 1].map(|at| &table[at]);
    let last_bytes = regions.map(|region| region.ptr + region.size - 1);
    [0, 100].into_iter().chain(last_bytes).collect()
}

fn open_samples(
    engine: &Engine,
    folder: &Path,
    options: SampleOptions,
) -> Result<Box<dyn Reading>> {
    let reader = BetonReader::open(engine, folder.join(BETON))?;
    let mut source = options.batch_size(16).open(&reader)?;
    let next = move || {
        let batch = source.next_batch()?;
        Ok(batch.map(|batch| {
            check(&batch, "samples");
            batch.ids().to_vec()
        }))
    };
    Ok(Box::new(Batches { next, items: SAMPLES, seen: Vec::new() }))
}

const WEIGHTS: &str = "model.safetensors";

fn specs() -> Vec<Spec> {
    let spec = |at: usize| {
        let len = 20_000 + at * 3701 % 10_007;
        (format!("layer.{at}"), "U8", vec![len], len)
    };
    (0..30).map(spec).collect()
}

fn write_weights(folder: &Path) -> Vec<u64> {
    let bytes = file(&specs());
    std::fs::write(folder.join(WEIGHTS), &bytes).unwrap();
    let len = bytes.len() as u64;
    vec![0, 100, len / 2, len - 1]
}

/// All tensors as one batch, one by one, and loaded ahead.
fn open_weights(engine: &Engine, folder: &Path) -> Result<Box<dyn Reading>> {
    let weights = Rc::new(Weights::open(engine, folder.join(WEIGHTS))?);
    let [all, one_by_one, ahead] = [(); 3].map(|()| Rc::clone(&weights));
    let steps: Vec<Step> = vec![
        Box::new(move || {
            all.read_all()?.iter().for_each(|it| check_tensor(it.name(), it.bytes()));
            Ok(())
        }),
        Box::new(move || {
            for (name, ..) in specs() {
                check_tensor(&name, one_by_one.read(&name)?.bytes());
            }
            Ok(())
        }),
        Box::new(move || {
            let mut tensors = 0;
            for tensor in ahead.load(LoadOptions::new().window_bytes(100_000))? {
                let tensor = tensor?;
                check_tensor(tensor.name(), tensor.bytes());
                tensors += 1;
            }
            assert_eq!(tensors, specs().len());
            Ok(())
        }),
    ];
    Ok(Box::new(Steps { steps, at: 0 }))
}

fn check_tensor(name: &str, bytes: &[u8]) {
    assert!(bytes == bytes_of(name, bytes.len()), "tensor {name}");
}
