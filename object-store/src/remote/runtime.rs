//! The threads that move bytes between the network and the readers, and the bounds on what is in flight.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use ringmain_backends::PerProcess;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Semaphore;
use tokio::task::coop::unconstrained;

use super::RemoteOptions;
use super::latency::Latencies;
use crate::locked::locked;

/// Names are looked up on threads of their own, which wait for nothing else.
const LOOKUP_THREADS_MAX: usize = 4;
const LOOKUP_THREAD_LIFETIME: Duration = Duration::from_secs(10);

/// The threads and the bounds of a backend. A forked child makes its own: threads do not survive a fork, and
/// connections would be shared with the parent.
#[derive(Debug)]
pub(super) struct RemoteThreads {
    options: RemoteOptions,
    current: PerProcess<Mutex<Option<Arc<Shift>>>>,
}

/// The threads and the bounds in one process.
#[derive(Debug)]
pub(super) struct Shift {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    pub(super) options: RemoteOptions,
    /// One permit for each request.
    pub(super) requests: Semaphore,
    /// One permit for each unit of the bytes in flight.
    pub(super) bytes: Semaphore,
    pub(super) latencies: Latencies,
}

/// The bytes in flight are counted in units of this size, because a semaphore counts up to 2^29 on small machines.
const UNIT_BYTES: usize = 4096;

impl RemoteThreads {
    pub(super) fn new(options: RemoteOptions) -> Self {
        Self { options, current: PerProcess::new(|_inherited| Mutex::default()) }
    }

    pub(super) fn options(&self) -> &RemoteOptions {
        &self.options
    }

    /// This process's threads, which the first call starts.
    pub(super) fn shift(&self) -> io::Result<Arc<Shift>> {
        let mut current = locked(self.current.get());
        if let Some(shift) = &*current {
            return Ok(Arc::clone(shift));
        }
        let shift = Arc::new(Shift::new(self.options.clone())?);
        *current = Some(Arc::clone(&shift));
        Ok(shift)
    }
}

impl Shift {
    fn new(options: RemoteOptions) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(options.threads)
            .max_blocking_threads(LOOKUP_THREADS_MAX)
            .thread_keep_alive(LOOKUP_THREAD_LIFETIME)
            .thread_name("ringmain-remote")
            .enable_all()
            .build()?;
        let bytes = Semaphore::new(units(options.in_flight_bytes));
        let requests = Semaphore::new(options.requests_max);
        let latencies = Latencies::default();
        Ok(Self { runtime: Some(runtime), options, requests, bytes, latencies })
    }

    /// Returns how many permits of `bytes` a request of this size takes: never more than there are.
    pub(super) fn permits_for(&self, request_bytes: u64) -> u32 {
        let bytes = usize::try_from(request_bytes).unwrap_or(usize::MAX);
        let permits = units(bytes).min(units(self.options.in_flight_bytes));
        u32::try_from(permits).unwrap_or(u32::MAX)
    }

    /// Runs a future on the calling thread, so that it may borrow from the caller: when this returns or unwinds, no
    /// part of it runs any more. Also inside another runtime, whose own `block_on` would refuse.
    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        let _entered = self.runtime.as_ref().map(|runtime| Handle::enter(runtime.handle()));
        // In a task of another runtime, the budget of that task would run out: then every part of the future waits for
        // a turn that never comes.
        let mut future = pin!(unconstrained(future));
        let unpark =
            Arc::new(Unpark { thread: std::thread::current(), is_woken: AtomicBool::new(false) });
        let waker = Waker::from(Arc::clone(&unpark));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            while !unpark.is_woken.swap(false, Ordering::Acquire) {
                std::thread::park();
            }
        }
    }
}

fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT_BYTES).clamp(1, Semaphore::MAX_PERMITS)
}

impl Drop for Shift {
    /// Dropping a runtime waits, and panics inside another runtime. No read is in flight here, only idle connections.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Wakes the thread that waits in [`Shift::block_on`].
struct Unpark {
    thread: Thread,
    /// The future may park the thread itself, and so take the token of a wake.
    is_woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shift() -> Arc<Shift> {
        RemoteThreads::new(RemoteOptions::default()).shift().unwrap()
    }

    async fn some_work() -> u32 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        tokio::spawn(async { 7 }).await.unwrap()
    }

    #[test]
    fn futures_run_anywhere() {
        let shift = shift();
        assert_eq!(shift.block_on(some_work()), 7);
        for mut builder in [Builder::new_current_thread(), Builder::new_multi_thread()] {
            let other = builder.enable_all().build().unwrap();
            assert_eq!(other.block_on(async { shift.block_on(some_work()) }), 7);
            let inside = Arc::clone(&shift);
            let task = other.spawn(async move { inside.block_on(some_work()) });
            assert_eq!(other.block_on(task).unwrap(), 7);
            // The last owner is a task.
            let last = RemoteThreads::new(RemoteOptions::default()).shift().unwrap();
            other.block_on(async { drop(last) });
        }
    }

    /// A future that waits by itself, as a lock may, took the wake of its own waker.
    #[test]
    fn a_future_that_parks_loses_no_wake() {
        let mut polls = 0;
        let parks = std::future::poll_fn(|context| {
            polls += 1;
            if polls == 2 {
                return Poll::Ready(polls);
            }
            context.waker().wake_by_ref();
            std::thread::park();
            Poll::Pending
        });
        assert_eq!(shift().block_on(parks), 2);
    }

    /// A task may use 128 resources before it must let others run. This budget was used up and never renewed.
    #[test]
    fn the_budget_of_another_runtimes_task_does_not_run_out() {
        let other = Builder::new_current_thread().build().unwrap();
        let shift = shift();
        let many = async {
            for _ in 0..1000 {
                drop(shift.requests.acquire().await.unwrap());
            }
        };
        other.block_on(async { shift.block_on(many) });
    }

    #[test]
    fn a_large_request_takes_all_permits_and_no_more() {
        let options = RemoteOptions { in_flight_bytes: 10_000, ..RemoteOptions::default() };
        let shift = RemoteThreads::new(options).shift().unwrap();
        assert_eq!(shift.bytes.available_permits(), 3);
        for (bytes, permits) in [(0, 1), (1, 1), (4096, 1), (4097, 2), (10_000, 3), (u64::MAX, 3)] {
            assert_eq!(shift.permits_for(bytes), permits, "{bytes}");
        }
    }
}
