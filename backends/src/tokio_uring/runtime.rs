//! The thread that the runtime runs on: it takes jobs, keeps their reads in flight, and sends the
//! answers.

use std::future::{Future, poll_fn};
use std::io;
use std::mem::ManuallyDrop;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::operation::{NoOp, Reading, submit_no_op, try_ring};
use super::queue::{JobQueue, ReadJob, Ticket};

/// Full batches, of several threads, whose reads can be in flight at once.
const FULL_BATCHES: usize = 8;

/// The most entries that the kernel gives a ring (`IORING_MAX_ENTRIES`).
const ENTRIES_MAX: usize = 32768;

/// A running runtime. Dropping it ends the thread.
pub(super) struct Runtime {
    queue: Arc<JobQueue>,
    thread: Option<JoinHandle<()>>,
}

impl Runtime {
    /// Starts the thread, and waits until it can read.
    pub(super) fn start(depth_max: usize) -> io::Result<Self> {
        let entries = (depth_max * FULL_BATCHES).next_power_of_two().min(ENTRIES_MAX) as u32;
        try_ring(entries)?;
        let queue = Arc::new(JobQueue::default());
        let (report, started) = mpsc::sync_channel(1);
        let jobs = Arc::clone(&queue);
        let main = move || run(entries, jobs, &report);
        let thread = thread::Builder::new().name("ringmain-tokio".into()).spawn(main)?;
        let runtime = Self { queue, thread: Some(thread) };
        // If the thread panics before it reports, the channel is closed.
        let panicked = |_| io::Error::other("the tokio-uring runtime panicked while it started");
        started.recv().map_err(panicked)??;
        Ok(runtime)
    }

    pub(super) fn queue(&self) -> &Arc<JobQueue> {
        &self.queue
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            // The batches have their answers already, whatever the panic was.
            let _ = thread.join();
        }
    }
}

/// Answers what is left when the thread ends, however it ends.
struct AbandonOnDrop(Arc<JobQueue>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

fn run(entries: u32, queue: Arc<JobQueue>, report: &mpsc::SyncSender<io::Result<()>>) {
    let queue = AbandonOnDrop(queue);
    let runtime = match tokio_uring::Runtime::new(tokio_uring::builder().entries(entries)) {
        Ok(runtime) => ManuallyDrop::new(runtime),
        Err(error) => {
            let _ = report.send(Err(error));
            return;
        }
    };
    let _ = report.send(Ok(()));
    // One place is for the no-op of `RefusalWatch`: tokio-uring panics when a full queue cannot be
    // submitted, so the queue is never full.
    let reads_max = entries as usize - 1;
    let end = panic::catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let mut read_loop = ReadLoop::new(&queue.0, reads_max);
            poll_fn(|context| read_loop.poll(context)).await
        })
    }));
    if let Ok(LoopEnd::Idle) = end {
        drop(ManuallyDrop::into_inner(runtime));
    }
    // Else the ring may hold reads that the kernel does not take. Dropping the runtime would wait
    // for them forever, or abort; so it is leaked, as `Reading` leaks their buffers.
}

/// How the runtime came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoopEnd {
    /// The queue was closed and everything is answered.
    Idle,
    /// The kernel takes nothing from the ring any more.
    RingRefused,
}

struct StartedRead {
    op: Reading<()>,
    // Dropped after the operation.
    ticket: Ticket,
}

/// The runtime's one task: no task for each read, so no memory for each either.
struct ReadLoop<'a> {
    queue: &'a JobQueue,
    /// Jobs taken from the queue and not yet started.
    arrivals: Vec<ReadJob>,
    reads: Vec<StartedRead>,
    reads_max: usize,
    watch: RefusalWatch,
}

impl<'a> ReadLoop<'a> {
    fn new(queue: &'a JobQueue, reads_max: usize) -> Self {
        let (arrivals, reads) = (Vec::new(), Vec::new());
        Self { queue, arrivals, reads, reads_max, watch: RefusalWatch::new() }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<LoopEnd> {
        let mut more_to_come = true;
        loop {
            self.answer_ended(context);
            let in_flight = self.reads.len();
            more_to_come &= self.start_reads(context);
            // A read that has just started must be polled once, so that its end wakes this task.
            if self.reads.len() == in_flight {
                break;
            }
        }
        if self.reads.is_empty() && !more_to_come {
            Poll::Ready(if self.watch.no_op.is_none() {
                LoopEnd::Idle
            } else {
                LoopEnd::RingRefused
            })
        } else if self.watch.sees_refusal(context, !self.reads.is_empty()) {
            Poll::Ready(LoopEnd::RingRefused)
        } else {
            Poll::Pending
        }
    }

    /// Answers the reads that have ended. Looks at all in flight, which costs some ten
    /// nanoseconds each; many have ended whenever there are many.
    fn answer_ended(&mut self, context: &mut Context<'_>) {
        let mut at = 0;
        while at < self.reads.len() {
            match Pin::new(&mut self.reads[at].op).poll(context) {
                Poll::Pending => at += 1,
                Poll::Ready((result, buffer)) => {
                    self.reads.swap_remove(at).ticket.answer(result, buffer);
                    self.watch.reads_ended();
                }
            }
        }
    }

    /// Starts reads while there is room in the ring; false if no more will ever come.
    fn start_reads(&mut self, context: &Context<'_>) -> bool {
        let was_idle = self.reads.is_empty();
        let room = self.reads_max - self.reads.len();
        let more_to_come = self.queue.take(room, &mut self.arrivals, context);
        for ReadJob { op, buffer, ticket } in self.arrivals.drain(..) {
            // This fails only outside a runtime, which cannot be; dropping the ticket answers.
            if let Ok(op) = op.submit(buffer, ()) {
                self.reads.push(StartedRead { op, ticket });
            }
        }
        if was_idle && !self.reads.is_empty() {
            self.watch.begin();
        }
        more_to_come
    }
}

/// While reads are in flight: how often to look whether any has ended.
const TICK: Duration = Duration::from_millis(20);

/// Ticks that a no-op may stay in the queue before the ring is given up: half a second.
const REFUSED_TICKS_MAX: u32 = 25;

/// Tells a slow device from a kernel that does not take the queue.
///
/// tokio-uring submits its queue whenever its thread goes to sleep, and ignores the error. After
/// one, the reads would wait for the next sleep, which comes with the next event: perhaps never. A
/// tick is such an event, so that a passing error (`EAGAIN`, `EBUSY`) is overcome. A no-op ends the
/// moment the kernel takes it; one that does not end shows that the kernel takes nothing.
struct RefusalWatch {
    tick: Pin<Box<Sleep>>,
    /// Some read has ended since the last tick.
    progress: bool,
    no_op: Option<NoOp>,
    refused_ticks: u32,
}

impl RefusalWatch {
    fn new() -> Self {
        let tick = Box::pin(tokio::time::sleep(TICK));
        Self { tick, progress: true, no_op: None, refused_ticks: 0 }
    }

    /// The first reads after a pause.
    fn begin(&mut self) {
        self.progress = true;
        self.tick.as_mut().reset(Instant::now() + TICK);
    }

    fn reads_ended(&mut self) {
        self.progress = true;
    }

    /// Returns `true` when the ring is to be given up.
    fn sees_refusal(&mut self, context: &mut Context<'_>, reads_in_flight: bool) -> bool {
        while reads_in_flight && self.tick.as_mut().poll(context).is_ready() {
            self.tick.as_mut().reset(Instant::now() + TICK);
            if std::mem::take(&mut self.progress) {
                self.refused_ticks = 0;
            } else if self.no_op.is_some() {
                self.refused_ticks += 1;
            } else {
                self.no_op = submit_no_op().ok();
            }
        }
        if self.no_op.as_mut().is_some_and(|no_op| Pin::new(no_op).poll(context).is_ready()) {
            self.no_op = None;
            self.refused_ticks = 0;
        }
        self.refused_ticks > REFUSED_TICKS_MAX
    }
}
