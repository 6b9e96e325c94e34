//! The requests of a plan on their way through a queue of the kernel.
//!
//! A lane carries one request from its first submission to its last byte. `uring` and `tokio-uring`
//! share this: which request is next, which files are held for the requests in flight, what an
//! answer of the kernel means, and which failure the batch reports.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use smallvec::SmallVec;

use super::core::Device;
use super::failure::FirstFailure;
use super::file::DeviceFile;
use super::plan::{Plan, Request};
use super::progress::{NextStep, Progress};
use crate::fault::Fault;
use crate::handle_cache::{Cached, Pinned, for_read};
use crate::retry::{Shortfall, shortfall_at_end};
use crate::{Error, Read, Result};

/// Memory that is kept between batches, so that a batch allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct LaneMemory {
    lanes: Vec<Lane>,
    idle: Vec<usize>,
}

/// A request in flight.
#[derive(Debug, Default)]
struct Lane {
    /// Which request of the plan.
    request: usize,
    /// How many of its bytes have arrived in earlier rounds.
    progress: Progress,
    /// The fault that a test injects into the kernel's answer.
    injected: Fault,
}

/// A file that requests in flight read.
struct FilePin<'a> {
    /// Which file of the plan.
    file: usize,
    pinned: Pinned<'a, DeviceFile>,
    in_flight: usize,
}

/// The next read of the device for a lane.
pub(crate) struct NextRead {
    pub(crate) request: Request,
    pub(crate) descriptor: RawFd,
    /// How many bytes of the request have arrived; the part begins after them.
    pub(crate) done: usize,
    pub(crate) len: usize,
}

/// The meaning of an answer of the kernel.
pub(crate) enum LaneVerdict {
    /// The request is complete: deliver it, then finish the lane.
    Complete(Request),
    /// Ask for the rest.
    Again,
    /// It has failed, or an earlier read has: finish the lane.
    Over,
}

/// The requests of one batch on their way through a queue.
pub(crate) struct Lanes<'a, 'r> {
    pub(crate) device: &'a Device,
    pub(crate) plan: &'a Plan,
    pub(crate) reads: &'a [Read<'r>],
    memory: &'a mut LaneMemory,
    pins: SmallVec<[FilePin<'a>; 8]>,
    /// The next request to start.
    next: usize,
    failure: FirstFailure,
}

impl<'a, 'r> Lanes<'a, 'r> {
    pub(crate) fn new(
        device: &'a Device,
        plan: &'a Plan,
        reads: &'a [Read<'r>],
        memory: &'a mut LaneMemory,
        depth_max: usize,
    ) -> Self {
        let depth = depth_max.min(plan.requests().len());
        memory.lanes.clear(); // Nothing of the last batch is left.
        memory.lanes.reserve(depth_max); // For a later batch that has more.
        memory.lanes.resize_with(depth, Lane::default);
        memory.idle.clear();
        memory.idle.reserve(depth_max);
        memory.idle.extend((0..depth).rev());
        let (pins, next, failure) = (SmallVec::new(), 0, FirstFailure::default());
        Self { device, plan, reads, memory, pins, next, failure }
    }

    /// Whether requests are left to start.
    pub(crate) fn has_more(&self) -> bool {
        self.next < self.plan.requests().len()
    }

    /// The next request to start, with a lane and its file at hand. `None` if there is none, or if it
    /// must wait until a request that is in flight has ended.
    pub(crate) fn next_request(&mut self) -> Option<Request> {
        while let Some(request) = self.plan.requests().get(self.next).copied() {
            if self.failure.outranks(&request) {
                self.next += 1;
            } else if self.memory.idle.is_empty() {
                return None;
            } else {
                match self.pin(&request) {
                    Ok(true) => return Some(request),
                    Ok(false) => return None,
                    Err(error) => {
                        let read = &self.reads[request.read];
                        self.fail(request.read, for_read(error, read, request.read));
                    }
                }
            }
        }
        None
    }

    /// Holds the request's file. False if a slot of the handle cache must become free first, which
    /// happens when a request in flight ends.
    fn pin(&mut self, request: &Request) -> Result<bool> {
        if self.pins.last().is_some_and(|pin| pin.file == request.file) {
            return Ok(true);
        }
        // Files are done one after the other, so those before this one only wait for their reads.
        self.pins.retain(|pin| pin.in_flight > 0);
        let (cache, file) = (self.device.cache(), self.reads[request.read].file());
        let pinned = if self.pins.is_empty() {
            Some(cache.acquire(file)?)
        } else {
            cache.try_acquire(file)?
        };
        let pin = pinned.map(|pinned| FilePin { file: request.file, pinned, in_flight: 0 });
        let is_held = pin.is_some();
        self.pins.extend(pin);
        Ok(is_held)
    }

    /// Puts the next request, which [`next_request`](Self::next_request) has returned, on a lane.
    pub(crate) fn start(&mut self) -> Option<usize> {
        let lane = self.memory.idle.pop()?;
        self.memory.lanes[lane] = Lane { request: self.next, ..Lane::default() };
        self.next += 1;
        if let Some(pin) = self.pins.last_mut() {
            pin.in_flight += 1;
        }
        Some(lane)
    }

    /// The part of a lane's request that has not arrived.
    pub(crate) fn part(&mut self, lane: usize) -> NextRead {
        let done = self.memory.lanes[lane].progress.done();
        let request = self.plan.requests()[self.memory.lanes[lane].request];
        let Some(pin) = self.pins.iter().find(|pin| pin.file == request.file) else {
            unreachable!("a request in flight has its file pinned");
        };
        let (offset, unit) = (request.offset + done as u64, pin.pinned.alignment().offset);
        let (injected, len) = self.device.faults.decide(offset, request.len - done, unit);
        self.memory.lanes[lane].injected = injected;
        NextRead { request, descriptor: pin.pinned.file().as_raw_fd(), done, len }
    }

    /// Returns the meaning of the kernel's answer for its lane.
    pub(crate) fn judge(&mut self, lane: usize, result: io::Result<usize>) -> LaneVerdict {
        let request = self.plan.requests()[self.memory.lanes[lane].request];
        let align = self.reads[request.read].file().alignment().offset;
        let wanted = !self.failure.outranks(&request);
        let state = &mut self.memory.lanes[lane];
        let result = state.injected.instead_of(result);
        let pin = self.pins.iter().find(|pin| pin.file == request.file);
        let end = request.offset + request.needed as u64;
        let at_end = || match pin {
            Some(pin) => shortfall_at_end(pin.pinned.file(), end),
            None => unreachable!("a request in flight has its file pinned"),
        };
        match state.progress.after(result, request.needed, align, at_end) {
            NextStep::Complete => return LaneVerdict::Complete(request),
            NextStep::Again if wanted => {
                self.device.count_retry();
                return LaneVerdict::Again;
            }
            NextStep::Again => {}
            NextStep::Failed(arrived, shortfall) => self.fail_lane(lane, arrived, shortfall),
        }
        LaneVerdict::Over
    }

    /// Gives back what a lane held.
    pub(crate) fn finish(&mut self, lane: usize) -> Request {
        let request = self.plan.requests()[self.memory.lanes[lane].request];
        self.memory.idle.push(lane);
        if let Some(pin) = self.pins.iter_mut().find(|pin| pin.file == request.file) {
            pin.in_flight -= 1;
        }
        request
    }

    /// Fulfils the next request on this thread with positional reads. Nothing may be in flight.
    ///
    /// # Safety
    /// As for [`Device::run_request_through`].
    pub(crate) unsafe fn run_on_this_thread(&mut self, request: &Request) {
        self.pins.clear(); // Never wait for a file or a buffer while holding a file.
        // SAFETY: the caller's promise.
        let outcome = unsafe { self.device.run_request(self.plan, request, self.reads) };
        if let Err((index, error)) = outcome {
            self.fail(index, error);
        }
        self.next += 1;
    }

    pub(crate) fn fail_lane(&mut self, lane: usize, arrived: usize, shortfall: Shortfall) {
        let request = self.plan.requests()[self.memory.lanes[lane].request];
        let (index, error) =
            self.device.request_error(self.plan, &request, self.reads, arrived, shortfall);
        self.fail(index, error);
    }

    /// The kernel takes no more requests: the batch fails with its first unfinished read.
    #[cfg(linux_uring)]
    pub(crate) fn fail_queue(&mut self, error: io::Error) {
        let busy = |lane: &usize| !self.memory.idle.contains(lane);
        let lanes = (0..self.memory.lanes.len()).filter(busy);
        let requests = lanes.map(|lane| &self.plan.requests()[self.memory.lanes[lane].request]);
        let index = requests.map(|request| request.read).min().unwrap_or(0);
        if let Some(read) = self.reads.get(index) {
            self.fail(index, read.error(self.device.kind, index, error));
        }
    }

    fn fail(&mut self, index: usize, error: Error) {
        self.failure.record(index, error);
    }

    /// How the batch ended. Nothing may be in flight in a queue that still works.
    pub(crate) fn into_result(self) -> Result<()> {
        drop(self.pins); // Never wait for a file while holding one.
        self.failure.into_result(self.device, self.reads)
    }
}
