//! The measured loop, on one thread or on several that start together.

use std::sync::{Condvar, Mutex, PoisonError};

use super::pace::Pace;
use super::task::Task;
use crate::failure::Failure;
use crate::measure::{Clock, Latencies};
use crate::result::CacheState;
use crate::workload::Job;

/// The result of the measured loop, of one thread or of all together.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(super) bytes: u64,
    pub(super) reads: u64,
    pub(super) operations: u64,
    /// When the first operation began and the last one ended, in ticks.
    pub(super) started: u64,
    pub(super) ended: u64,
    pub(super) spun_ns: u64,
    pub(super) latencies: Latencies,
}

impl Reading {
    fn new() -> Self {
        let latencies = Latencies::new();
        let (started, ended) = (u64::MAX, 0);
        Self { bytes: 0, reads: 0, operations: 0, started, ended, spun_ns: 0, latencies }
    }

    /// Adds another thread. Threads run at the same time, so the time is from the first start to the last end.
    fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.reads += other.reads;
        self.operations += other.operations;
        self.started = self.started.min(other.started);
        self.ended = self.ended.max(other.ended);
        self.spun_ns += other.spun_ns;
        self.latencies.merge(&other.latencies);
    }
}

/// Runs every job on its own thread; a single job on this thread. The first one is thread `first` of all processes.
pub(super) fn read_on_threads(
    task: &Task,
    jobs: &mut [Box<dyn Job>],
    clock: &Clock,
    first: u64,
) -> Result<Reading, Failure> {
    if let [job] = jobs {
        return read(task, job.as_mut(), clock, first);
    }
    let gate = Gate::default();
    std::thread::scope(|scope| {
        let mut handles = Vec::new();
        for (job, thread) in jobs.iter_mut().zip(first..) {
            let gate = &gate;
            let work = move || match gate.wait() {
                Signal::Start => read(task, job.as_mut(), clock, thread),
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
/// the next, or, in an open loop, each starts when it was meant to. An epoch, the loop of a workload that reads
/// ahead, and a given number of uneven operations end only where a pass ends.
pub(crate) fn read(
    task: &Task,
    job: &mut dyn Job,
    clock: &Clock,
    thread: u64,
) -> Result<Reading, Failure> {
    let mut reading = Reading::new();
    let (threads, is_epoch) = (task.setting.readers(), task.setting.epochs.is_some());
    let limit = operations_of(task, threads, thread);
    let workload = task.workload()?;
    let ends_with_a_pass = is_epoch
        || workload.reads_ahead()
        || (workload.uneven().is_some() && task.operations.is_some());
    let may_repeat = task.cache == CacheState::Warm && !is_epoch;
    let started = clock.ticks();
    let deadline = started.saturating_add(clock.in_ticks(task.seconds * 1e9));
    let mut pace = Pace::of(&task.setting, clock, threads, thread, started);
    let mut ended = started;
    while reading.operations < limit && (ended < deadline || ends_with_a_pass) {
        let mut intended = pace.as_mut().map_or(ended, |pace| pace.wait(|| job.due_ns()));
        let mut done = job.next()?;
        // A second pass over a cold file would not be cold.
        if done.is_none() && may_repeat && ended < deadline {
            job.begin_epoch(0)?;
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
    (reading.started, reading.ended) = (started, ended);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use crate::workload::Done;

    /// A job with operations of different lengths.
    struct Uneven {
        left: u64,
    }

    impl Job for Uneven {
        fn next(&mut self) -> Result<Option<Done>, Failure> {
            self.left = self.left.saturating_sub(1);
            for number in 0..self.left % 7 * 100 {
                std::hint::black_box(number);
            }
            Ok((self.left > 0).then_some(Done { bytes: 4096, reads: 1 }))
        }

        fn last(&self) -> &[u8] {
            &[]
        }

        fn begin_epoch(&mut self, _: u64) -> Result<(), Failure> {
            Ok(())
        }
    }

    /// One look at the clock ends an operation and starts the next, so the latencies add up to the whole time: no time is
    /// lost between two operations, and none is counted twice.
    #[test]
    fn the_latencies_of_a_closed_loop_add_up_to_its_time() {
        let blank = Task::blank(&Plan::default(), 1 << 20);
        let task = Task { workload: "rand".into(), seconds: 3600.0, ..blank };
        let clock = Clock::start();
        let reading = read(&task, &mut Uneven { left: 5001 }, &clock, 0).unwrap();
        assert_eq!((reading.operations, reading.latencies.count()), (5000, 5000));
        let (sum, whole) = (reading.latencies.sum_ticks(), reading.ended - reading.started);
        // Latencies are kept to three digits.
        assert!(sum.abs_diff(whole) <= whole / 1000 + 5000, "{sum} of {whole} ticks");
    }
}
