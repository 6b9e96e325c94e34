//! `ringmain overhead`: what measuring itself costs, for the cheapest reads that there are.

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use ringmain::Engine;

use crate::cli::OverheadArgs;
use crate::failure::Failure;
use crate::generate::write_raw;
use crate::measure::Clock;
use crate::measure::cache::{self, Opening};
use crate::plan::Plan;
use crate::random::RandomOrder;
use crate::result::{CacheState, Setting};
use crate::run::reading;
use crate::run::task::Task;
use crate::stats::median;
use crate::system::scratch::without_path;
use crate::system::space::{Remedy, check_space};
use crate::text::format::counted;
use crate::text::progress::Progress;
use crate::workload::{Job, JobSpec};

const BLOCK_BYTES: u64 = 4096;
const FILE_BYTES: u64 = 64 << 20;
/// Every block of the file once. That takes about 20 ms, so other programs seldom interrupt it.
const OPERATIONS: u64 = FILE_BYTES / BLOCK_BYTES;

/// One way of reading the same blocks in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loop {
    /// `pread` in a loop, nothing else.
    System,
    /// The backend `pread` in a loop that measures nothing.
    Backend,
    /// The loop of the harness.
    Harness,
}

const LOOPS: [Loop; 3] = [Loop::System, Loop::Backend, Loop::Harness];

/// Reads the same warm blocks with and without the harness, in turns, and prints the ratios.
pub(crate) fn run(args: &OverheadArgs, out: &mut impl Write) -> Result<(), Failure> {
    let dir = args.scratch.as_deref().unwrap_or(Path::new("."));
    check_space(dir, FILE_BYTES, Remedy::Place("--scratch"))?;
    let folder = tempfile::Builder::new()
        .prefix(".ringmain-overhead-")
        .tempdir_in(dir)
        .map_err(|error| Failure::Scratch { dir: dir.to_owned(), source: without_path(error) })?;
    let path = folder.path().join("raw.bin");
    write_raw(&path, FILE_BYTES, 1, &Progress::bytes("making data", FILE_BYTES))?;
    let files = std::slice::from_ref(&path);
    let prepared = cache::settle(files, CacheState::Warm, 0, Opening::ReadsNothing)?;
    if let Some(problem) = prepared.problem {
        return Err(Failure::Usage { message: problem });
    }
    let mut bench = Bench::open(&path)?;
    let mut seconds = LOOPS.map(|_| Vec::new());
    for round in 0..=args.rounds {
        // Every loop goes first equally often.
        for turn in 0..LOOPS.len() {
            let which = (turn + round as usize) % LOOPS.len();
            let elapsed = bench.time(LOOPS[which])?;
            // The first round warms the processor up.
            if round > 0 {
                seconds[which].push(elapsed.as_secs_f64());
            }
        }
    }
    print_ratios(&seconds, out)
}

struct Bench {
    clock: Clock,
    file: File,
    job: Box<dyn Job>,
    task: Task,
    order: RandomOrder,
    buffer: Vec<u8>,
}

impl Bench {
    fn open(path: &Path) -> Result<Self, Failure> {
        let setting = Setting { block_bytes: Some(BLOCK_BYTES), ..Setting::default() };
        let task = Task {
            workload: "rand".into(),
            setting,
            cache: CacheState::Warm,
            files: vec![path.to_owned()],
            seconds: 3600.0,
            operations: Some(OPERATIONS),
            ..Task::blank(&Plan::default(), 1 << 20)
        };
        let engine = Engine::builder().backend(task.backend.kind).build()?;
        let (setting, files, seed) = (&task.setting, &task.files, task.seed);
        let spec = JobSpec { engine: &engine, setting, files, seed, thread: 0, threads: 1 };
        let job = task.workload()?.open(&spec)?;
        let file = File::open(path)
            .map_err(|source| Failure::ReadFile { path: path.to_owned(), source })?;
        let order = RandomOrder::new(OPERATIONS, seed);
        Ok(Self {
            clock: Clock::start(),
            file,
            job,
            task,
            order,
            buffer: vec![0; BLOCK_BYTES as usize],
        })
    }

    fn time(&mut self, which: Loop) -> Result<Duration, Failure> {
        self.job.begin_epoch(0)?;
        let started = Instant::now();
        match which {
            Loop::System => self.read_by_system()?,
            Loop::Backend => self.read_by_backend()?,
            Loop::Harness => {
                let reading = reading::read(&self.task, self.job.as_mut(), &self.clock, 0)?;
                black_box(&reading);
            }
        }
        Ok(started.elapsed())
    }

    fn read_by_system(&mut self) -> Result<(), Failure> {
        let path = || self.task.files[0].clone();
        for index in 0..OPERATIONS {
            let block = self.order.at(index);
            self.file
                .read_exact_at(&mut self.buffer, block * BLOCK_BYTES)
                .map_err(|source| Failure::ReadFile { path: path(), source })?;
            black_box(&self.buffer);
        }
        Ok(())
    }

    fn read_by_backend(&mut self) -> Result<(), Failure> {
        let mut operations = 0;
        while operations < OPERATIONS {
            match self.job.next()? {
                Some(done) => operations += black_box(done).reads,
                None => self.job.begin_epoch(0)?,
            }
        }
        Ok(())
    }
}

fn print_ratios(seconds: &[Vec<f64>; 3], out: &mut impl Write) -> Result<(), Failure> {
    let ns = |times: &[f64]| median(times).unwrap_or(0.0) * 1e9 / OPERATIONS as f64;
    // The ratio of the printed medians, so that a reader can check it.
    let cost = |of: &[f64], over: &[f64]| (ns(of) / ns(over) - 1.0) * 100.0;
    let [system, backend, harness] = seconds;
    let text = format!(
        "warm random reads of 4 KiB, medians of {}\n\
         pread(2) in a bare loop     {:7.1} ns\n\
         the backend in a bare loop  {:7.1} ns, {:+.1} %\n\
         the loop of the harness     {:7.1} ns, {:+.1} %: what measuring costs\n",
        counted(system.len(), "interleaved round"),
        ns(system),
        ns(backend),
        cost(backend, system),
        ns(harness),
        cost(harness, backend),
    );
    out.write_all(text.as_bytes()).map_err(Failure::Output)
}
