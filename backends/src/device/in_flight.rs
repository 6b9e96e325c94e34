//! The requests of a plan on their way through a queue of the kernel.
//!
//! A batch has as many slots as the queue is deep. A slot holds one request from its first submission
//! to its last byte. `uring` and `tokio-uring` share this: which request is next, which files are held
//! for the requests in flight, what an answer of the kernel means, and which failure the batch reports.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use smallvec::SmallVec;

use super::core::DeviceCore;
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
pub(crate) struct InFlightMemory {
    slots: Vec<RequestInFlight>,
    idle: Vec<usize>,
}

/// A slot that holds a request.
#[derive(Debug, Default)]
struct RequestInFlight {
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

/// The next read of the device for the request of a slot.
pub(crate) struct NextRead {
    pub(crate) request: Request,
    pub(crate) descriptor: RawFd,
    /// How many bytes of the request have arrived; the part begins after them.
    pub(crate) done: usize,
    pub(crate) len: usize,
}

/// The meaning of an answer of the kernel.
pub(crate) enum AnswerMeaning {
    /// The request is complete: deliver it, then free the slot.
    Complete(Request),
    /// Ask for the rest.
    Again,
    /// It has failed, or an earlier read has: free the slot.
    Over,
}

/// The requests of one batch on their way through a queue.
pub(crate) struct RequestsInFlight<'a, 'r> {
    pub(crate) core: &'a DeviceCore,
    pub(crate) plan: &'a Plan,
    pub(crate) reads: &'a [Read<'r>],
    memory: &'a mut InFlightMemory,
    pins: SmallVec<[FilePin<'a>; 8]>,
    /// The next request to start.
    next: usize,
    failure: FirstFailure,
    /// Requests for several reads that failed: which of the reads failed has to be found out.
    suspects: Vec<Request>,
}

impl<'a, 'r> RequestsInFlight<'a, 'r> {
    pub(crate) fn new(
        core: &'a DeviceCore,
        plan: &'a Plan,
        reads: &'a [Read<'r>],
        memory: &'a mut InFlightMemory,
        depth_max: usize,
    ) -> Self {
        let depth = depth_max.min(plan.requests().len());
        memory.slots.clear(); // Nothing of the last batch is left.
        memory.slots.reserve(depth_max); // For a later batch that has more.
        memory.slots.resize_with(depth, RequestInFlight::default);
        memory.idle.clear();
        memory.idle.reserve(depth_max);
        memory.idle.extend((0..depth).rev());
        let (pins, next, failure) = (SmallVec::new(), 0, FirstFailure::default());
        let suspects = Vec::new();
        Self { core, plan, reads, memory, pins, next, failure, suspects }
    }

    /// Returns `true` if requests are left to start.
    pub(crate) fn has_more(&self) -> bool {
        self.next < self.plan.requests().len()
    }

    /// The next request to start, with an idle slot and its file at hand. `None` if there is none, or if it
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
        let (handles, file) = (self.core.handles(), self.reads[request.read].file());
        let pinned = if self.pins.is_empty() {
            Some(handles.acquire(file)?)
        } else {
            handles.try_acquire(file)?
        };
        let pin = pinned.map(|pinned| FilePin { file: request.file, pinned, in_flight: 0 });
        let is_held = pin.is_some();
        self.pins.extend(pin);
        Ok(is_held)
    }

    /// Puts the next request, which [`next_request`](Self::next_request) has returned, into a slot.
    pub(crate) fn start(&mut self) -> Option<usize> {
        let slot = self.memory.idle.pop()?;
        self.memory.slots[slot] =
            RequestInFlight { request: self.next, ..RequestInFlight::default() };
        self.next += 1;
        if let Some(pin) = self.pins.last_mut() {
            pin.in_flight += 1;
        }
        Some(slot)
    }

    /// The request that a slot holds.
    fn request_of(&self, slot: usize) -> Request {
        self.plan.requests()[self.memory.slots[slot].request]
    }

    /// The part of a slot's request that has not arrived.
    pub(crate) fn next_read(&mut self, slot: usize) -> NextRead {
        let done = self.memory.slots[slot].progress.done();
        let request = self.request_of(slot);
        let file = &pin_of(&mut self.pins, &request).pinned;
        let (descriptor, unit) = (file.file().as_raw_fd(), file.alignment().offset);
        let offset = request.offset + done as u64;
        let (injected, len) = self.core.faults.decide(offset, request.len - done, unit);
        self.memory.slots[slot].injected = injected;
        NextRead { request, descriptor, done, len }
    }

    /// Returns the meaning of the kernel's answer for its slot.
    pub(crate) fn judge(&mut self, slot: usize, result: io::Result<usize>) -> AnswerMeaning {
        let request = self.request_of(slot);
        let align = self.reads[request.read].file().alignment().offset;
        let wanted = !self.failure.outranks(&request);
        let state = &mut self.memory.slots[slot];
        let result = state.injected.instead_of(result);
        let end = request.offset + request.needed as u64;
        let at_end = || shortfall_at_end(pin_of(&mut self.pins, &request).pinned.file(), end);
        match state.progress.after(result, request.needed, align, at_end) {
            NextStep::Complete => return AnswerMeaning::Complete(request),
            NextStep::Again if wanted => {
                self.core.count_retry();
                return AnswerMeaning::Again;
            }
            NextStep::Again => {}
            NextStep::Failed(_, Shortfall::Io(_)) if self.plan.is_merged(&request) => {
                self.suspects.push(request);
            }
            NextStep::Failed(arrived, shortfall) => self.fail_request(slot, arrived, shortfall),
        }
        AnswerMeaning::Over
    }

    /// Frees a slot, and returns the request that it held.
    pub(crate) fn finish(&mut self, slot: usize) -> Request {
        let request = self.request_of(slot);
        self.memory.idle.push(slot);
        pin_of(&mut self.pins, &request).in_flight -= 1;
        request
    }

    /// Fulfils the next request on this thread with positional reads. Nothing may be in flight.
    ///
    /// # Safety
    /// As for [`DeviceCore::run_request_through`].
    pub(crate) unsafe fn run_on_this_thread(&mut self, request: &Request) {
        // SAFETY: the caller's promise.
        unsafe { self.run_positional(request) };
        self.next += 1;
    }

    /// Fulfils the failed requests for several reads on this thread, as far as the device lets it.
    /// Nothing may be in flight, and the caller may hold no memory of the pool.
    ///
    /// # Safety
    /// As for [`DeviceCore::run_request_through`].
    pub(crate) unsafe fn run_suspects(&mut self) {
        for request in std::mem::take(&mut self.suspects) {
            if !self.failure.outranks(&request) {
                // SAFETY: the caller's promise.
                unsafe { self.run_positional(&request) };
            }
        }
    }

    /// # Safety
    /// As for [`DeviceCore::run_request_through`].
    unsafe fn run_positional(&mut self, request: &Request) {
        self.pins.clear(); // Never wait for a file or a buffer while holding a file.
        // SAFETY: the caller's promise.
        let outcome = unsafe { self.core.run_request(self.plan, request, self.reads) };
        if let Err((index, error)) = outcome {
            self.fail(index, error);
        }
    }

    pub(crate) fn fail_request(&mut self, slot: usize, arrived: usize, shortfall: Shortfall) {
        let request = self.request_of(slot);
        let (index, error) =
            self.core.request_error(self.plan, &request, self.reads, arrived, shortfall);
        self.fail(index, error);
    }

    /// The kernel takes no more requests: the batch fails with its first unfinished read.
    #[cfg(linux_uring)]
    pub(crate) fn fail_queue(&mut self, error: io::Error) {
        let busy = |slot: &usize| !self.memory.idle.contains(slot);
        let slots = (0..self.memory.slots.len()).filter(busy);
        let index = slots.map(|slot| self.request_of(slot).read).min().unwrap_or(0);
        if let Some(read) = self.reads.get(index) {
            self.fail(index, read.error(self.core.kind, index, error));
        }
    }

    fn fail(&mut self, index: usize, error: Error) {
        self.failure.record(index, error);
    }

    /// Returns how the batch ended. Nothing may be in flight in a queue that still works.
    pub(crate) fn into_result(self) -> Result<()> {
        drop(self.pins); // Never wait for a file while holding one.
        self.failure.into_result(self.core, self.reads)
    }
}

/// The file of a request in flight.
fn pin_of<'p, 'a>(pins: &'p mut [FilePin<'a>], request: &Request) -> &'p mut FilePin<'a> {
    match pins.iter_mut().find(|pin| pin.file == request.file) {
        Some(pin) => pin,
        None => unreachable!("a request in flight has its file pinned"),
    }
}
