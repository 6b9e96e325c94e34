//! A loader of arrays: random windows of many arrays in one file, a batch at a time.

use ringmain::{Buffer, ContiguousMemmap, Engine, Kind};

use super::{Done, Job, JobSpec, Workload, combinations};
use crate::failure::Failure;
use crate::plan::Plan;
use crate::random::{RandomOrder, mix};
use crate::result::Setting;

/// The workload `views`.
#[derive(Debug)]
pub(super) struct Views;

/// Columns of every array: a row of 1 KiB.
const COLUMNS: usize = 256;
const ROW_BYTES: u64 = COLUMNS as u64 * 4;
/// Rows of an array. Some arrays are a little longer, so that offsets have no pattern.
const ROWS: u64 = 4096;

impl Workload for Views {
    fn name(&self) -> &'static str {
        "views"
    }

    fn about(&self) -> &'static str {
        "reads windows of 64 KiB of many f32 arrays, 32 views at a time"
    }

    fn settings(&self, plan: &Plan) -> Vec<Setting> {
        combinations(plan, &[(64 << 10, 32)])
    }

    fn is_scattered(&self) -> bool {
        true
    }

    fn open(&self, job: &JobSpec<'_>) -> Result<Box<dyn Job>, Failure> {
        Ok(Box::new(Loader::open(job)?))
    }
}

/// Reads batches of windows, each window of the file once.
#[derive(Debug)]
struct Loader {
    engine: Engine,
    arrays: Vec<ContiguousMemmap>,
    /// The number of windows in the arrays before each array.
    windows_before: Vec<u64>,
    windows: u64,
    order: RandomOrder,
    seed: u64,
    rows_per_window: u64,
    batch: usize,
    thread: u64,
    threads: u64,
    next_batch: u64,
    chosen: Vec<ContiguousMemmap>,
    buffer: Buffer,
}

impl Loader {
    fn open(spec: &JobSpec<'_>) -> Result<Self, Failure> {
        let batch = spec.batch(1);
        let block_bytes = spec.setting.block_bytes.unwrap_or(ROW_BYTES);
        let rows_per_window = (block_bytes / ROW_BYTES).clamp(1, ROWS);
        let (arrays, windows_before, windows) = open_arrays(spec, rows_per_window)?;
        if windows < batch as u64 {
            let message = format!(
                "the data is too small for a batch of {batch} windows of {rows_per_window} KiB; \
                 use a larger file, or a smaller --block-size or --batch"
            );
            return Err(Failure::TooSmall { message });
        }
        let window_bytes = usize::try_from(rows_per_window * ROW_BYTES).unwrap_or(usize::MAX);
        let mut buffer = spec.engine.pool().try_take(window_bytes.saturating_mul(batch))?;
        buffer.fill(0); // Fresh memory gets its pages before the clock starts.
        Ok(Self {
            engine: spec.engine.clone(),
            arrays,
            windows_before,
            windows,
            order: RandomOrder::of_epoch(windows, spec.seed, 0),
            seed: spec.seed,
            rows_per_window,
            batch,
            thread: spec.thread,
            threads: spec.threads,
            next_batch: spec.thread,
            chosen: Vec::with_capacity(batch),
            buffer,
        })
    }

    fn window(&self, index: u64) -> Result<ContiguousMemmap, Failure> {
        let array = self.windows_before.partition_point(|before| *before <= index) - 1;
        let first = (index - self.windows_before[array]) * self.rows_per_window;
        let rows = first.cast_signed()..(first + self.rows_per_window).cast_signed();
        Ok(self.arrays[array].index(&[rows.into()])?)
    }
}

type Arrays = (Vec<ContiguousMemmap>, Vec<u64>, u64);

/// Opens as many arrays as fit into each file, one after the other as exca appends them.
fn open_arrays(spec: &JobSpec<'_>, rows_per_window: u64) -> Result<Arrays, Failure> {
    let (mut arrays, mut windows_before, mut windows) = (Vec::new(), Vec::new(), 0);
    for path in spec.files {
        let file = spec.engine.backend().open(path)?;
        let file_len = spec.engine.backend().len(&file)?;
        let mut offset = 0;
        loop {
            let rows = ROWS + mix(spec.seed ^ arrays.len() as u64) % 64;
            let rows = rows.min(file_len.saturating_sub(offset) / ROW_BYTES);
            if rows < rows_per_window {
                break;
            }
            let shape = [rows as usize, COLUMNS];
            arrays.push(spec.engine.open_raw(path, Kind::F32, &shape, offset)?);
            windows_before.push(windows);
            windows += rows / rows_per_window;
            offset += rows * ROW_BYTES;
        }
    }
    Ok((arrays, windows_before, windows))
}

impl Job for Loader {
    fn next(&mut self) -> Result<Option<Done>, Failure> {
        let first = self.next_batch * self.batch as u64;
        if first + self.batch as u64 > self.windows {
            return Ok(None);
        }
        self.next_batch += self.threads;
        self.chosen.clear();
        for index in first..first + self.batch as u64 {
            let window = self.window(self.order.at(index))?;
            self.chosen.push(window);
        }
        self.engine.read_many_bytes(&self.chosen, &mut self.buffer)?;
        Ok(Some(Done { bytes: self.buffer.len() as u64, reads: self.batch as u64 }))
    }

    fn last(&self) -> &[u8] {
        &self.buffer
    }

    fn begin_epoch(&mut self, epoch: u64) -> Result<(), Failure> {
        self.next_batch = self.thread;
        self.order = RandomOrder::of_epoch(self.windows, self.seed, epoch);
        Ok(())
    }
}
