//! The page faults of a program and its children, from the kernel's software events.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};

use crate::trace::PageFault;

/// The memory for events that were not collected yet. Each watched thread has a ring on each processor. Users without
/// rights get half a megabyte for each processor from the kernel.
const RING_BYTES: [usize; 3] = [8 << 20, 512 << 10, 64 << 10];
/// For all rings. The kernel cannot swap them.
const RINGS_BYTES_MAX: usize = 64 << 20;

/// The rings are emptied this often. A million faults a second fill half a megabyte in 13 ms.
const COLLECT_EVERY: Duration = Duration::from_millis(2);

/// They and their sorting take half a gigabyte.
const FAULTS_MAX: usize = 20 << 20;

/// Collects page faults on a thread until it is finished.
#[derive(Debug)]
pub(super) struct FaultCollector {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Faults>,
}

/// The page faults that were collected.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// In the order of time.
    pub(super) faults: Vec<PageFault>,
    /// Faults that came faster than they were collected, or after the limit.
    pub(super) lost: u64,
}

/// The processes whose faults are collected.
#[derive(Clone, Copy, Debug)]
pub(super) enum Watched {
    /// Those that this thread starts from now on.
    Children,
    /// This thread of another process, and those that it starts from now on.
    Thread(i32),
}

impl FaultCollector {
    /// Begins to collect. Fails if the kernel or its settings do not allow it.
    pub(super) fn start(watched: &[Watched]) -> io::Result<Self> {
        let mut samplers = Vec::new();
        let processors = processors()?;
        let ring_bytes_max = RINGS_BYTES_MAX / (watched.len() * processors).max(1);
        for watched in watched {
            for processor in 0..processors {
                match open(*watched, processor, ring_bytes_max) {
                    Ok(sampler) => samplers.push(sampler),
                    // A processor that is switched off.
                    Err(error) if error.raw_os_error() == Some(nix::libc::ENODEV) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let watch = Arc::clone(&is_over);
        let collect = move || collect(samplers, &watch);
        let thread = thread::Builder::new().name("page-faults".into()).spawn(collect)?;
        Ok(Self { is_over, thread })
    }

    pub(super) fn finish(self) -> Faults {
        self.is_over.store(true, Ordering::Release);
        self.thread.join().unwrap_or_default()
    }
}

fn processors() -> io::Result<usize> {
    let count = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_CONF)?;
    Ok(count.and_then(|count| usize::try_from(count).ok()).unwrap_or(1))
}

/// An event that children inherit can only have a ring if it is limited to one processor.
fn open(watched: Watched, processor: usize, ring_bytes_max: usize) -> io::Result<Sampler> {
    let mut last = io::Error::other("the process has too many threads");
    // Without rights, only faults of the program itself count, not those of calls on its behalf.
    for exclude_kernel in [false, true] {
        for ring_bytes in RING_BYTES.into_iter().filter(|bytes| *bytes <= ring_bytes_max) {
            match open_with(watched, processor, exclude_kernel, ring_bytes) {
                Ok(sampler) => return Ok(sampler),
                Err(error) => last = error,
            }
        }
    }
    Err(last)
}

fn open_with(
    watched: Watched,
    processor: usize,
    exclude_kernel: bool,
    ring_bytes: usize,
) -> io::Result<Sampler> {
    let mut builder = Builder::new(Software::PAGE_FAULTS);
    match watched {
        Watched::Children => builder.observe_self(),
        Watched::Thread(id) => builder.observe_pid(id),
    };
    let counter = builder
        .one_cpu(processor)
        .inherit(true)
        .exclude_kernel(exclude_kernel)
        .sample_period(1)
        .sample(SampleFlag::TID)
        .sample(SampleFlag::TIME)
        .sample(SampleFlag::ADDR)
        .clockid(Clock::REALTIME)
        .build()?;
    let mut sampler = counter.sampled(ring_bytes)?;
    sampler.as_counter_mut().enable()?;
    Ok(sampler)
}

fn collect(mut samplers: Vec<Sampler>, is_over: &AtomicBool) -> Faults {
    let mut collected = Faults::default();
    loop {
        let is_last = is_over.load(Ordering::Acquire);
        samplers.iter_mut().for_each(|sampler| collected.drain(sampler));
        if is_last {
            collected.faults.sort_unstable_by_key(|it| (it.at_us, it.thread, it.address));
            return collected;
        }
        thread::sleep(COLLECT_EVERY);
    }
}

impl Faults {
    fn drain(&mut self, sampler: &mut Sampler) {
        while let Some(record) = sampler.next_record() {
            match record.parse_record() {
                Ok(Record::Sample(sample)) => {
                    let fault = (|| {
                        let (process, thread) = (sample.pid()?, sample.tid()?);
                        let (at_us, address) = (sample.time()? / 1000, sample.addr()?);
                        // The watched thread starts this program's own threads too.
                        let is_ours = process == std::process::id();
                        (!is_ours).then_some(PageFault { at_us, thread, address })
                    })();
                    self.add(fault);
                }
                Ok(Record::Lost(lost)) => self.lost += lost.lost,
                _ => {}
            }
        }
    }

    fn add(&mut self, fault: Option<PageFault>) {
        let Some(fault) = fault else { return };
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(fault);
        } else {
            self.lost += 1;
        }
    }
}
