//! Reads through a backend that fails: the right bytes, or an error that names the file.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use ringmain_backends::{
    BackendKind, FileHandle, FileVersion, MemoryBackend, Read, ReadBackend, forward_to,
};

use crate::shards::{Order, RowType, ShardOptions, encode_shard_bytes};
use crate::weights::{LoadOptions, Weights};
use crate::{ContiguousMemmap, Engine, Error, Index, Kind};

/// A fault of one batch of reads.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The read with this number, modulo their count, fails after the destinations of the batch were
    /// overwritten with other bytes.
    Eio(u8),
    /// The file ends before this read.
    Ends(u8),
    /// The bytes are right, but the file has another version afterwards.
    Changed,
}

#[derive(Arbitrary, Debug)]
enum Op {
    /// A selection of rows of the raw array, or of columns of its transpose.
    Window {
        start: u8,
        stop: u8,
        step: i8,
        turned: bool,
    },
    /// Windows as one batch.
    Many(Vec<(u8, u8)>),
    /// An epoch of the shards, with up to three retries of each batch.
    Shards {
        seed: u8,
        batch_size: u8,
        ahead: bool,
    },
    /// All tensors, one by one or as a load.
    Weights {
        load: bool,
    },
    Npy,
}

#[derive(Arbitrary, Debug)]
struct Input {
    /// One for each batch of reads. After the last, nothing fails.
    faults: VecDeque<Fault>,
    ops: Vec<Op>,
}

const ROWS: usize = 48;
const COLUMNS: usize = 5;
const RAW: &str = "raw";
const NPY: &str = "a.npy";
const SHARDS: [&str; 2] = ["0.shard", "1.shard"];
const MODEL: &str = "m.safetensors";

/// The bytes are a list of faults and a list of reads. A read returns the right bytes or an error that
/// names its file, and succeeds when nothing fails any more.
pub(super) fn faulty_reads(bytes: &[u8]) {
    let Ok(Input { faults, ops }) = Input::arbitrary_take_rest(Unstructured::new(bytes)) else {
        return;
    };
    let faulty = Arc::new(FaultyBackend { inner: files(), faults: Mutex::new(faults) });
    let engine = Engine::builder().with_backend(Arc::clone(&faulty) as _);
    let engine = engine.memory_limit_bytes(1 << 20).memory_patience(Duration::ZERO);
    let engine = engine.build().expect("the options work");
    for op in ops.iter().take(8) {
        let _ = op.run(&engine).map_err(|error| check_error(&error, op));
    }
    faulty.lock().clear();
    for op in ops.iter().take(8) {
        op.run(&engine).unwrap_or_else(|error| panic!("{op:?} fails without a fault: {error}"));
    }
}

fn check_error(error: &Error, op: &Op) {
    let names: &[&str] = match op {
        Op::Window { .. } | Op::Many(_) => &[RAW],
        Op::Shards { .. } => &SHARDS,
        Op::Weights { .. } => &[MODEL],
        Op::Npy => &[NPY],
    };
    let is_named = |path: &Path| names.iter().any(|name| path.ends_with(name));
    assert!(error.path().is_some_and(is_named), "{op:?}: {error:?}");
}

/// The value at a place of every file.
fn value(at: usize) -> f32 {
    at as f32 + 0.5
}

fn files() -> MemoryBackend {
    let memory = MemoryBackend::new();
    let values: Vec<f32> = (0..ROWS * COLUMNS).map(value).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    memory.insert(RAW, &*bytes);
    let dict = format!("{{'descr':'<f4','fortran_order':False,'shape':({ROWS},{COLUMNS})}}");
    let head = [b"\x93NUMPY\x01\0", &(dict.len() as u16).to_le_bytes()[..]].concat();
    memory.insert(NPY, [&head, dict.as_bytes(), &bytes].concat());
    let (first, second) = values.split_at(ROWS / 3 * COLUMNS);
    for (name, values) in SHARDS.into_iter().zip([first, second]) {
        memory.insert(name, encode_shard_bytes(values, COLUMNS).expect("whole rows"));
    }
    let half = bytes.len() / 2;
    let tensor = |begin: usize, end: usize| {
        format!(r#"{{"dtype":"F32","shape":[{}],"data_offsets":[{begin},{end}]}}"#, half / 4)
    };
    let json = format!(r#"{{"a":{},"b":{}}}"#, tensor(0, half), tensor(half, 2 * half));
    let len = (json.len() as u64).to_le_bytes();
    memory.insert(MODEL, [&len, json.as_bytes(), &bytes].concat());
    memory
}

impl Op {
    fn run(&self, engine: &Engine) -> Result<(), Error> {
        match self {
            Self::Window { start, stop, step, turned } => {
                let step = if *step == 0 { 1 } else { i64::from(*step) };
                let slice = Index::slice(Some(i64::from(*start)), Some(i64::from(*stop)), step);
                let (raw, same) = (open_raw(engine)?, open_raw(&sound_engine()));
                let same = same.expect("nothing fails");
                let (raw, same) = if *turned { (raw.t(), same.t()) } else { (raw, same) };
                let read = raw.read_selection::<f32>(&[slice.into()])?;
                let expected = same.read_selection(&[slice.into()]).expect("nothing fails");
                assert_eq!((read.shape, read.elements), (expected.shape, expected.elements));
                Ok(())
            }
            Self::Many(windows) => read_many(engine, windows),
            Self::Shards { seed, batch_size, ahead } => {
                read_shards(engine, u64::from(*seed), usize::from(*batch_size).max(1), *ahead)
            }
            Self::Weights { load } => read_weights(engine, *load),
            Self::Npy => {
                let read = engine.open_npy(NPY)?.read_vec::<f32>()?;
                assert!(read.into_iter().eq((0..ROWS * COLUMNS).map(value)));
                Ok(())
            }
        }
    }
}

/// Returns an engine that reads the same files without faults.
fn sound_engine() -> Engine {
    let engine = Engine::builder().with_backend(Arc::new(files())).build();
    engine.expect("the default options work")
}

fn open_raw(engine: &Engine) -> Result<ContiguousMemmap, Error> {
    engine.open_raw(RAW, Kind::F32, &[ROWS, COLUMNS], 0)
}

fn read_many(engine: &Engine, windows: &[(u8, u8)]) -> Result<(), Error> {
    let raw = open_raw(engine)?;
    let part = |(start, rows): &(u8, u8)| {
        let start = usize::from(*start) % ROWS;
        start..(start + usize::from(*rows) % 8).min(ROWS)
    };
    let parts: Vec<_> = windows.iter().take(8).map(part).collect();
    let index =
        |part: &std::ops::Range<usize>| raw.index(&[(part.start as i64..part.end as i64).into()]);
    let views = parts.iter().map(index).collect::<Result<Vec<_>, _>>()?;
    let mut bytes = vec![0; views.iter().map(ContiguousMemmap::nbytes).sum()];
    engine.read_many_bytes(&views, &mut bytes)?;
    let places = parts.iter().flat_map(|part| part.start * COLUMNS..part.end * COLUMNS);
    let expected: Vec<u8> = places.flat_map(|at| value(at).to_le_bytes()).collect();
    assert_eq!(bytes, expected);
    Ok(())
}

/// After an error the source keeps its place, so no row is lost or comes twice.
fn read_shards(engine: &Engine, seed: u64, batch_size: usize, ahead: bool) -> Result<(), Error> {
    let options = ShardOptions::new().order(Order::Shuffled { seed }).batch_size(batch_size);
    let options = options.row_type(RowType::F32).memory_patience(Duration::ZERO);
    let window = if ahead { 64 << 10 } else { 0 };
    let mut source = options.prefetch_window_bytes(window).open(engine, SHARDS)?;
    let (mut seen, mut retries) = (vec![false; ROWS], 0);
    loop {
        match source.next_batch() {
            Ok(Some(batch)) => {
                let values = batch.rows_f32().expect("the rows are f32");
                for (id, row) in batch.row_ids().iter().zip(values.chunks_exact(COLUMNS)) {
                    let first = *id as usize * COLUMNS;
                    assert!(row.iter().copied().eq((first..first + COLUMNS).map(value)));
                    assert!(!std::mem::replace(&mut seen[*id as usize], true), "row {id} twice");
                }
            }
            Ok(None) => break,
            Err(error) if retries == 3 => return Err(error),
            Err(error) => {
                check_error(&error, &Op::Shards { seed: 0, batch_size: 0, ahead });
                retries += 1;
            }
        }
    }
    assert!(seen.iter().all(|seen| *seen), "a row is missing");
    Ok(())
}

fn read_weights(engine: &Engine, load: bool) -> Result<(), Error> {
    let weights = Weights::open(engine, MODEL)?;
    let tensors = if load {
        let load = weights.load(LoadOptions::new().window_bytes(0))?;
        load.collect::<Result<Vec<_>, _>>()?
    } else {
        vec![weights.read("a")?, weights.read("b")?]
    };
    let read = tensors.iter().flat_map(|tensor| tensor.bytes().iter().copied());
    assert!(read.eq((0..ROWS * COLUMNS).flat_map(|at| value(at).to_le_bytes())));
    Ok(())
}

/// Files in memory, and the faults that are left.
#[derive(Debug)]
struct FaultyBackend {
    inner: MemoryBackend,
    faults: Mutex<VecDeque<Fault>>,
}

impl FaultyBackend {
    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Fault>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadBackend for FaultyBackend {
    forward_to!(inner: kind, open, len, capabilities);

    /// The version of a file changes while the next fault says so.
    fn version(&self, file: &FileHandle) -> ringmain_backends::Result<FileVersion> {
        let mut faults = self.lock();
        let is_changed = faults.front() == Some(&Fault::Changed);
        if is_changed {
            faults.pop_front();
        }
        let len = self.inner.len(file)?;
        Ok(FileVersion::composed(len + u64::from(is_changed), Vec::new()))
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> ringmain_backends::Result<()> {
        let fault = self.lock().pop_front().unwrap_or(Fault::None);
        let (Fault::Eio(number) | Fault::Ends(number)) = fault else {
            return self.inner.read_batch(reads);
        };
        let Some(index) = usize::from(number).checked_rem(reads.len()) else { return Ok(()) };
        reads.iter_mut().for_each(|read| read.dst().fill(0xEE));
        let read = &reads[index];
        let (backend, path) = (BackendKind::Memory, read.file().path().to_owned());
        let (offset, len) = (read.offset(), read.len());
        Err(match fault {
            Fault::Eio(_) => {
                let source = io::Error::other("the device failed");
                ringmain_backends::Error::Read { backend, path, offset, len, index, source }
            }
            _ => {
                let file_len = offset;
                ringmain_backends::Error::PastEnd { backend, path, offset, len, index, file_len }
            }
        })
    }
}
