//! The measured loop, on one thread or on several that start together.

use std::sync::{Condvar, Mutex, PoisonError};

use super::pace::Pace;
use super::task::Task;
use crate::failure::Failure;
use crate::measure::{Clock, Latencies};
use crate::result::CacheState;
use crate::workload::{self, Job};

/// The result of the measured loop, of one thread or of all together.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(super) bytes: u64,
    pub(super) reads: u64,
    pub(super) operations: u64,
    pub(super) elapsed_ns: u64,
    pub(super) spun_ns: u64,
    pub(super) latencies: Latencies,
}

impl Reading {
    fn new() -> Self {
        let latencies = Latencies::new();
        Self { bytes: 0, reads: 0, operations: 0, elapsed_ns: 0, spun_ns: 0, latencies }
    }

    /// Adds another thread. Threads run at the same time, so the longest time counts.
    fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.reads += other.reads;
        self.operations += other.operations;
        self.elapsed_ns = self.elapsed_ns.max(other.elapsed_ns);
        self.spun_ns += other.spun_ns;
        self.latencies.merge(&other.latencies);
    }
}

/// Runs every job on its own thread; a single job on this thread.
pub(super) fn read_on_threads(
    task: &Task,
    jobs: &mut [Box<dyn Job>],
    clock: &Clock,
) -> Result<Reading, Failure> {
    if let [job] = jobs {
        return read(task, job.as_mut(), clock, 1, 0);
    }
    let threads = jobs.len() as u64;
    let gate = Gate::default();
    std::thread::scope(|scope| {
        let mut handles = Vec::new();
        for (job, thread) in jobs.iter_mut().zip(0..) {
            let gate = &gate;
            let work = move || match gate.wait() {
                Signal::Start => read(task, job.as_mut(), clock, threads, thread),
                Signal::GiveUp => Ok(Reading::new()),
            };
            match std::thread::Builder::new().spawn_scoped(scope, work) {
                Ok(handle) => handles.push(handle),
                Err(source) => {
                    gate.open(Signal::GiveUp);
                    return Err(Failure::Thread(source));
                }
            }
        }
        gate.open(Signal::Start);
        let mut total = Reading::new();
        for handle in handles {
            total.add(&handle.join().unwrap_or(Err(Failure::ThreadPanicked))?);
        }
        Ok(total)
    })
}

/// A gate that lets all threads start together, or none.
#[derive(Debug, Default)]
struct Gate {
    signal: Mutex<Option<Signal>>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug)]
enum Signal {
    Start,
    GiveUp,
}

impl Gate {
    fn open(&self, signal: Signal) {
        *self.signal.lock().unwrap_or_else(PoisonError::into_inner) = Some(signal);
        self.changed.notify_all();
    }

    fn wait(&self) -> Signal {
        let mut signal = self.signal.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match *signal {
                Some(signal) => return signal,
                None => {
                    signal = self.changed.wait(signal).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// The measured loop. It looks at the clock once for each operation: the end of one is the start of
/// the next, or, in an open loop, each starts when it was meant to. The loop of a workload that reads
/// ahead ends only where a pass ends.
pub(crate) fn read(
    task: &Task,
    job: &mut dyn Job,
    clock: &Clock,
    threads: u64,
    thread: u64,
) -> Result<Reading, Failure> {
    let mut reading = Reading::new();
    let limit = operations_of(task, threads, thread);
    let ends_with_a_pass = workload::by_name(&task.workload)?.reads_ahead();
    let may_repeat = task.cache == CacheState::Warm;
    let started = clock.ticks();
    let deadline = started.saturating_add(clock.in_ticks(task.seconds * 1e9));
    let mut pace = Pace::of(&task.setting, clock, threads, thread, started);
    let mut ended = started;
    while reading.operations < limit && (ended < deadline || ends_with_a_pass) {
        let mut intended = pace.as_mut().map_or(ended, |pace| pace.wait(|| job.due_ns()));
        let mut done = job.next()?;
        // A second pass over a cold file would not be cold.
        if done.is_none() && may_repeat && ended < deadline {
            job.restart()?;
            intended = pace.as_mut().map_or(intended, |pace| pace.restart(intended));
            done = job.next()?;
        }
        let Some(done) = done else {
            break;
        };
        ended = clock.ticks();
        reading.latencies.record(ended.saturating_sub(intended));
        reading.bytes += done.bytes;
        reading.reads += done.reads;
        reading.operations += 1;
    }
    reading.elapsed_ns = clock.to_ns(ended - started);
    reading.spun_ns = pace.map_or(0, |pace| pace.spun_ns());
    Ok(reading)
}

/// Returns the number of operations of this thread.
fn operations_of(task: &Task, threads: u64, thread: u64) -> u64 {
    match task.operations {
        None => u64::MAX,
        Some(all) => all / threads + u64::from(thread < all % threads),
    }
}
