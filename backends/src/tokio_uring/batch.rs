//! A batch on the thread that asked for it: what to have the runtime read, and what its answers
//! mean. The runtime reads into buffers of the pool; only this thread touches the destinations.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use super::operation::ReadOp;
use super::queue::{Answer, Job, Mailbox, Queue, Ticket};
use crate::device::{Device, DeviceFile, Resume, resume_at, scatter};
use crate::fault::Fault;
use crate::handle_cache::{Cached, Pinned, for_read};
use crate::plan::{Plan, Request, Target};
use crate::retry::{Patience, Shortfall, shortfall_at_end};
use crate::{Buffer, CachePolicy, Error, Read, Result, sys};

/// A request in flight.
#[derive(Debug, Default)]
struct Lane {
    /// Which request of the plan.
    request: usize,
    /// How many of its bytes have arrived in earlier rounds.
    done: usize,
    patience: Patience,
    /// What to take the kernel's answer for.
    injected: Option<Fault>,
}

/// A file that requests in flight refer to.
struct FilePin<'a> {
    file: usize,
    pinned: Pinned<'a, DeviceFile>,
    in_flight: usize,
}

pub(super) struct Batch<'a, 'r> {
    device: &'a Device,
    plan: &'a Plan,
    reads: &'a [Read<'r>],
    queue: &'a Queue,
    mailbox: Arc<Mailbox>,
    lanes: Vec<Lane>,
    idle_lanes: Vec<usize>,
    pins: Vec<FilePin<'a>>,
    /// Jobs to be sent with the next round.
    jobs: Vec<Job>,
    /// The buffers that requests in flight hold, and how much they may.
    buffered_bytes: usize,
    buffered_bytes_max: usize,
    /// The next request to start.
    next: usize,
    failure: Option<(usize, Error)>,
}

impl<'a, 'r> Batch<'a, 'r> {
    /// # Safety
    /// Nobody else may use the destinations of `reads` until [`run`](Self::run) has returned.
    pub(super) unsafe fn new(
        device: &'a Device,
        plan: &'a Plan,
        reads: &'a [Read<'r>],
        queue: &'a Queue,
        depth_max: usize,
    ) -> Self {
        let depth = depth_max.min(plan.requests().len());
        Self {
            device,
            plan,
            reads,
            queue,
            mailbox: Arc::default(),
            lanes: std::iter::repeat_with(Lane::default).take(depth).collect(),
            idle_lanes: (0..depth).rev().collect(),
            pins: Vec::new(),
            jobs: Vec::with_capacity(depth),
            buffered_bytes: 0,
            // The rest of the pool is for others; one buffer a batch may have in any case.
            buffered_bytes_max: device.pool.limit_bytes() / 4,
            next: 0,
            failure: None,
        }
    }

    /// Reads everything, or says what failed. Nothing is in flight when it returns.
    pub(super) fn run(mut self) -> Result<()> {
        let mut answers = Vec::new();
        loop {
            self.start_requests();
            if self.in_flight() == 0 {
                break; // Nothing was left to start either.
            }
            self.queue.send(&mut self.jobs);
            self.mailbox.wait(self.answers_wanted(), &mut answers);
            for answer in answers.drain(..) {
                self.complete(answer);
            }
        }
        self.pins.clear(); // Never wait for a file while holding one.
        match self.failure.take() {
            None => Ok(()),
            Some((_, Error::PastEnd { .. })) => Err(self.device.past_end(self.reads)),
            Some((_, error)) => Err(error),
        }
    }

    fn in_flight(&self) -> usize {
        self.lanes.len() - self.idle_lanes.len()
    }

    /// How many answers to wait for: with more to start, enough of them that waking up is worth
    /// it and not so many that the device idles; at the end half, to copy while the rest comes.
    fn answers_wanted(&self) -> usize {
        let part = if self.next < self.plan.requests().len() { 8 } else { 2 };
        (self.in_flight() / part).max(1)
    }

    /// Starts requests while there are lanes, file slots and buffers for them.
    fn start_requests(&mut self) {
        while let Some(request) = self.plan.requests().get(self.next).copied() {
            if self.idle_lanes.is_empty() {
                return;
            }
            if self.is_pointless(&request) {
                self.next += 1;
                continue;
            }
            match self.pin(&request) {
                Ok(true) => match self.buffer(&request) {
                    Some(buffer) => self.start(self.next, &request, buffer),
                    None if self.in_flight() > 0 => return, // Until a buffer of ours is free.
                    None => self.run_without_runtime(&request),
                },
                Ok(false) => return, // Until a file of ours is done with.
                Err(error) => {
                    let error = for_read(error, &self.reads[request.read], request.read);
                    self.fail(request.read, error);
                }
            }
            self.next += 1;
        }
    }

    /// True once an earlier read of the batch, or the same, has failed: its error is the one to be
    /// told. Requests run in the order of the file, so one for an earlier read may be yet to come.
    fn is_pointless(&self, request: &Request) -> bool {
        self.failure.as_ref().is_some_and(|(index, _)| *index <= request.read)
    }

    /// Sees to it that the request's file is pinned; false if a slot must become free first.
    fn pin(&mut self, request: &Request) -> Result<bool> {
        if self.pins.last().is_some_and(|pin| pin.file == request.file) {
            return Ok(true);
        }
        // Files are done one after the other, so those before this one only wait for their reads.
        self.pins.retain(|pin| pin.in_flight > 0);
        let (cache, handle) = (self.device.cache(), self.reads[request.read].file());
        let pinned = if self.pins.is_empty() {
            cache.acquire(handle)?
        } else {
            let Some(pinned) = cache.try_acquire(handle)? else {
                return Ok(false);
            };
            pinned
        };
        self.pins.push(FilePin { file: request.file, pinned, in_flight: 0 });
        Ok(true)
    }

    /// A buffer for the request, if one can be had without waiting: this batch may hold others.
    fn buffer(&mut self, request: &Request) -> Option<Buffer> {
        let within = self.buffered_bytes + request.len <= self.buffered_bytes_max;
        let wanted = within || self.in_flight() == 0;
        let buffer = wanted.then(|| self.device.pool.try_take(request.len).ok()).flatten()?;
        self.buffered_bytes += request.len;
        Some(buffer)
    }

    /// A request for which the pool has no buffer now: on this thread, straight into the
    /// destination where it can, else waiting for a buffer while holding none.
    fn run_without_runtime(&mut self, request: &Request) {
        self.pins.clear(); // Never wait for a file or a buffer while holding a file.
        // SAFETY: requests of a plan write to different parts, and `new`'s caller promised that
        // nobody else does.
        let outcome = unsafe { self.device.run_request(self.plan, request, self.reads) };
        if let Err((index, error)) = outcome {
            self.fail(index, error);
        }
    }

    fn start(&mut self, at: usize, request: &Request, buffer: Buffer) {
        let Some(lane) = self.idle_lanes.pop() else {
            return;
        };
        self.lanes[lane] = Lane { request: at, ..Lane::default() };
        if let Some(pin) = self.pins.last_mut() {
            debug_assert_eq!(pin.file, request.file);
            pin.in_flight += 1;
        }
        self.push(lane, buffer);
    }

    /// Queues what is left of a lane's request.
    fn push(&mut self, lane: usize, buffer: Buffer) {
        let Lane { request, done, .. } = self.lanes[lane];
        let request = self.plan.requests()[request];
        let Some(pin) = self.pins.iter().find(|pin| pin.file == request.file) else {
            unreachable!("a request in flight has its file pinned");
        };
        let mut len = request.len - done;
        let offset = request.offset + done as u64;
        self.lanes[lane].injected = self.device.faults.as_ref().map(|faults| {
            let fault = faults.decide(offset, len, pin.pinned.alignment().offset);
            if let Fault::Short(short) = fault {
                len = short;
            }
            fault
        });
        let op = ReadOp {
            // Open until the pin goes, and that is after the answer.
            descriptor: pin.pinned.file().as_raw_fd(),
            offset,
            part: done..done + len,
            rw_flags: rw_flags(self.device.policy()),
        };
        self.jobs.push(Job { op, buffer, ticket: Ticket::new(lane, &self.mailbox) });
    }

    /// What an answer means for its lane: done, to be continued, or failed.
    fn complete(&mut self, answer: Answer) {
        let Answer { lane, result, buffer } = answer;
        let request = self.plan.requests()[self.lanes[lane].request];
        let align = self.reads[request.read].file().alignment().offset;
        let go_on = !self.is_pointless(&request);
        let state = &mut self.lanes[lane];
        let done = state.done;
        let result = match state.injected {
            Some(Fault::Interrupted) => Err(sys::eintr()),
            Some(Fault::Eio) => Err(sys::eio()),
            _ => result,
        };
        match (result, buffer) {
            (Err(error), Some(buffer)) if go_on && state.patience.allows(&error) => {
                return self.push(lane, buffer);
            }
            (Err(error), _) => self.fail_lane(lane, done, error.into()),
            (Ok(_), None) => unreachable!("a read that ended comes with its buffer"),
            (Ok(n), Some(buffer)) => match resume_at(done, n, request.needed, align) {
                Resume::Complete => self.deliver(&request, &buffer),
                Resume::From(next) if go_on => {
                    state.done = next;
                    state.patience.renew();
                    return self.push(lane, buffer);
                }
                Resume::From(_) => {}
                Resume::End => self.fail_at_end(lane, &request, done + n),
            },
        }
        self.finish(lane);
    }

    /// Copies a request's bytes to where they are wanted.
    fn deliver(&self, request: &Request, buffer: &[u8]) {
        match request.target {
            Target::Straight { dst_offset } => {
                // SAFETY: requests of a plan write to different parts, and `new`'s caller
                // promised that nobody else does.
                let dst = unsafe { self.reads[request.read].part(dst_offset, request.len) };
                dst.copy_from_slice(&buffer[..request.len]);
            }
            Target::Bounce { .. } => {
                // SAFETY: as above.
                unsafe { scatter(self.plan, request, self.reads, buffer) };
            }
        }
    }

    /// Gives back what a lane held.
    fn finish(&mut self, lane: usize) {
        let request = self.plan.requests()[self.lanes[lane].request];
        self.idle_lanes.push(lane);
        self.buffered_bytes -= request.len;
        if let Some(pin) = self.pins.iter_mut().find(|pin| pin.file == request.file) {
            pin.in_flight -= 1;
        }
    }

    fn fail_at_end(&mut self, lane: usize, request: &Request, arrived: usize) {
        let pin = self.pins.iter().find(|pin| pin.file == request.file);
        let end = request.offset + request.needed as u64;
        if let Some(shortfall) = pin.map(|pin| shortfall_at_end(pin.pinned.file(), end)) {
            self.fail_lane(lane, arrived, shortfall);
        }
    }

    fn fail_lane(&mut self, lane: usize, arrived: usize, shortfall: Shortfall) {
        let request = self.plan.requests()[self.lanes[lane].request];
        let (index, error) =
            self.device.request_error(self.plan, &request, self.reads, arrived, shortfall);
        self.fail(index, error);
    }

    /// Keeps the failure of the earliest read.
    fn fail(&mut self, index: usize, error: Error) {
        if self.failure.as_ref().is_none_or(|(other, _)| index < *other) {
            self.failure = Some((index, error));
        }
    }
}

/// The flags of every read under a cache policy.
pub(super) fn rw_flags(policy: CachePolicy) -> i32 {
    match policy {
        CachePolicy::Direct | CachePolicy::Buffered => 0,
        CachePolicy::Uncached => sys::RWF_DONTCACHE,
    }
}
