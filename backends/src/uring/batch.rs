//! A batch on its way through a ring.

use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use smallvec::SmallVec;

use super::ring::{Completion, ReadOp, Ring, RingFile};
use crate::buffer::PAGE_BYTES;
use crate::device::{Device, DeviceFile, Resume, resume_at, scatter};
use crate::fault::Fault;
use crate::handle_cache::{Cached, Pinned, for_read};
use crate::plan::{Plan, Request, Target};
use crate::retry::{Patience, shortfall_at_end};
use crate::{CachePolicy, Error, Read, Result, sys};

/// What a ring keeps between batches, so that a batch allocates nothing.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    lanes: Vec<Lane>,
    idle_lanes: Vec<usize>,
    /// Where in the arena a bounced request may go, in cells.
    idle_cells: Vec<usize>,
}

/// A request in flight.
#[derive(Debug, Default)]
struct Lane {
    /// Which request of the plan.
    request: usize,
    /// How many of its bytes have arrived in earlier rounds.
    done: usize,
    /// Where in the arena it goes, if it bounces.
    cell: Option<usize>,
    patience: Patience,
    /// What to take the kernel's answer for.
    injected: Option<Fault>,
}

/// The part of an arena that each bounced request of the plan gets: whole pages, so that every
/// one is aligned as the first.
pub(super) fn cell_bytes(plan: &Plan) -> usize {
    plan.bounce_bytes_max().next_multiple_of(PAGE_BYTES)
}

/// A file that requests in flight refer to.
struct FilePin<'a> {
    file: usize,
    pinned: Pinned<'a, DeviceFile>,
    name: RingFile,
    in_flight: usize,
}

pub(super) struct Batch<'a, 'r> {
    device: &'a Device,
    plan: &'a Plan,
    reads: &'a [Read<'r>],
    ring: &'a mut Ring,
    scratch: &'a mut Scratch,
    depth_max: usize,
    /// The size of a cell of the arena; 0 without one.
    cell_bytes: usize,
    pins: SmallVec<[FilePin<'a>; 8]>,
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
        ring: &'a mut Ring,
        scratch: &'a mut Scratch,
        depth_max: usize,
    ) -> Self {
        let cells = ring.arena_bytes().checked_div(cell_bytes(plan)).unwrap_or(0);
        scratch.lanes.resize_with(depth_max, Lane::default);
        scratch.idle_lanes.clear();
        scratch.idle_lanes.extend((0..depth_max).rev());
        scratch.idle_cells.clear();
        scratch.idle_cells.extend((0..cells).rev());
        let cell_bytes = if cells == 0 { 0 } else { cell_bytes(plan) };
        let pins = SmallVec::new();
        let (next, failure) = (0, None);
        Self { device, plan, reads, ring, scratch, depth_max, cell_bytes, pins, next, failure }
    }

    /// Reads everything, or says what failed. Nothing is in flight when it returns.
    pub(super) fn run(mut self) -> Result<()> {
        let mut patience = Patience::default();
        loop {
            self.start_requests();
            if self.ring.in_flight() == 0 {
                if self.failure.is_some() || self.next == self.plan.requests().len() {
                    break;
                }
                continue;
            }
            match self.ring.submit_and_wait(self.completions_wanted()) {
                Ok(()) => patience.renew(),
                Err(error) if patience.allows(&error) => {}
                Err(error) => {
                    self.fail_ring(error);
                    break;
                }
            }
            while let Some(completion) = self.ring.reap() {
                self.complete(completion);
            }
        }
        self.pins.clear(); // Never wait for a file while holding one.
        match self.failure.take() {
            None => Ok(()),
            Some((_, Error::PastEnd { .. })) => Err(self.device.past_end(self.reads)),
            Some((_, error)) => Err(error),
        }
    }

    /// How many reads to wait for: with more to start, enough of them that a system call is
    /// worth it and not so many that the device idles; at the end all of them, unless there are
    /// bytes to copy meanwhile.
    fn completions_wanted(&self) -> usize {
        let in_flight = self.ring.in_flight();
        if self.next < self.plan.requests().len() {
            (in_flight / 8).max(1)
        } else if self.cell_bytes > 0 {
            (in_flight / 2).max(1)
        } else {
            in_flight
        }
    }

    /// Starts requests while there are lanes, cells and file slots for them.
    fn start_requests(&mut self) {
        while self.failure.is_none() && self.next < self.plan.requests().len() {
            let request = self.plan.requests()[self.next];
            let bounces = matches!(request.target, Target::Bounce { .. });
            let no_cell = bounces && self.cell_bytes > 0 && self.scratch.idle_cells.is_empty();
            if self.scratch.idle_lanes.is_empty() || no_cell {
                return;
            }
            if bounces && self.cell_bytes == 0 {
                if self.ring.in_flight() > 0 {
                    return;
                }
                self.run_without_ring(&request);
                self.next += 1;
                continue;
            }
            match self.pin(&request) {
                Ok(true) => self.start(self.next, &request),
                Ok(false) => return, // Until a file of ours is done with.
                Err(error) => {
                    let error = for_read(error, &self.reads[request.read], request.read);
                    self.fail(request.read, error);
                    return;
                }
            }
            self.next += 1;
        }
    }

    /// A bounced request when the pool had no arena for this thread: a buffer for the moment.
    fn run_without_ring(&mut self, request: &Request) {
        self.pins.clear(); // Never wait for a file or a buffer while holding a file.
        // SAFETY: requests of a plan write to different parts, and `new`'s caller promised that
        // nobody else does.
        let outcome = unsafe { self.device.run_request(self.plan, request, self.reads) };
        if let Err((index, error)) = outcome {
            self.fail(index, error);
        }
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
        let descriptor = pinned.file().as_raw_fd();
        let name = self.ring.file(pinned.slot(), pinned.serial(), descriptor);
        self.pins.push(FilePin { file: request.file, pinned, name, in_flight: 0 });
        Ok(true)
    }

    fn start(&mut self, at: usize, request: &Request) {
        let Some(lane) = self.scratch.idle_lanes.pop() else {
            return;
        };
        let bounces = matches!(request.target, Target::Bounce { .. });
        let cell = if bounces { self.scratch.idle_cells.pop() } else { None };
        let patience = Patience::default();
        self.scratch.lanes[lane] = Lane { request: at, done: 0, cell, patience, injected: None };
        if let Some(pin) = self.pins.last_mut() {
            pin.in_flight += 1;
        }
        self.push(lane);
    }

    /// Queues what is left of a lane's request.
    fn push(&mut self, lane: usize) {
        let Lane { request, done, cell, .. } = self.scratch.lanes[lane];
        let request = self.plan.requests()[request];
        let Some(pin) = self.pins.iter().find(|pin| pin.file == request.file) else {
            unreachable!("a request in flight has its file pinned");
        };
        let mut len = request.len - done;
        let offset = request.offset + done as u64;
        self.scratch.lanes[lane].injected = self.device.faults.as_ref().map(|faults| {
            let fault = faults.decide(offset, len, pin.pinned.alignment().offset);
            if let Fault::Short(short) = fault {
                len = short;
            }
            fault
        });
        let op = ReadOp {
            file: pin.name,
            offset,
            dst: self.destination(&request, cell, done),
            // At most a chunk, which is at most 1 GiB.
            len: len as u32,
            rw_flags: if self.device.policy() == CachePolicy::Uncached {
                sys::RWF_DONTCACHE
            } else {
                0
            },
            in_arena: cell.is_some() && self.ring.arena_is_registered(),
            token: lane as u64,
        };
        // SAFETY: the destination is a part of the batch's memory that only this request writes
        // to, or a cell of the arena that is this lane's; both outlive the read, as `run` and
        // `drop` do not return before it is reaped.
        if let Err(error) = unsafe { self.ring.push(&op) } {
            self.fail_lane(lane, 0, error.into());
            self.finish(lane);
        }
    }

    fn destination(&mut self, request: &Request, cell: Option<usize>, done: usize) -> NonNull<u8> {
        match (request.target, cell) {
            (Target::Straight { dst_offset }, _) => {
                // SAFETY: the plan keeps to the read's length, so the sum stays in its memory.
                unsafe { self.reads[request.read].dst_ptr().add(dst_offset + done) }
            }
            (Target::Bounce { .. }, cell) => {
                let start = cell.unwrap_or(0) * self.cell_bytes + done;
                NonNull::from(&mut self.ring.arena()[start..]).cast()
            }
        }
    }

    /// What a finished read means for its lane: done, to be continued, or failed.
    fn complete(&mut self, completion: Completion) {
        let Ok(lane) = usize::try_from(completion.token) else {
            return;
        };
        let at = self.scratch.lanes[lane].request;
        let request = self.plan.requests()[at];
        let align = self.reads[request.read].file().alignment().offset;
        let result = match self.scratch.lanes[lane].injected {
            Some(Fault::Interrupted) => Err(sys::eintr()),
            Some(Fault::Eio) => Err(sys::eio()),
            _ => completion.result,
        };
        let state = &mut self.scratch.lanes[lane];
        let done = state.done;
        match result {
            Err(error) if self.failure.is_none() && state.patience.allows(&error) => {
                return self.push(lane);
            }
            Err(error) => self.fail_lane(lane, done, error.into()),
            Ok(n) => match resume_at(done, n, request.needed, align) {
                Resume::Complete => self.deliver(lane, &request),
                Resume::From(next) if self.failure.is_none() => {
                    state.done = next;
                    state.patience.renew();
                    return self.push(lane);
                }
                Resume::From(_) => {}
                Resume::End => self.fail_at_end(lane, &request, done + n),
            },
        }
        self.finish(lane);
    }

    /// Copies a bounced request's pieces to where they are wanted.
    fn deliver(&mut self, lane: usize, request: &Request) {
        let Some(cell) = self.scratch.lanes[lane].cell else {
            return;
        };
        let start = cell * self.cell_bytes;
        let bounce = &self.ring.arena()[start..start + request.len];
        // SAFETY: requests of a plan write to different parts, and `new`'s caller promised that
        // nobody else does.
        unsafe { scatter(self.plan, request, self.reads, bounce) };
    }

    /// Gives back what a lane held.
    fn finish(&mut self, lane: usize) {
        let Lane { request, cell, .. } = self.scratch.lanes[lane];
        self.scratch.idle_lanes.push(lane);
        self.scratch.idle_cells.extend(cell);
        let file = self.plan.requests()[request].file;
        if let Some(pin) = self.pins.iter_mut().find(|pin| pin.file == file) {
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

    fn fail_lane(&mut self, lane: usize, arrived: usize, shortfall: crate::retry::Shortfall) {
        let request = self.plan.requests()[self.scratch.lanes[lane].request];
        let (index, error) =
            self.device.request_error(self.plan, &request, self.reads, arrived, shortfall);
        self.fail(index, error);
    }

    /// The kernel takes no more requests: the batch fails with its first unfinished read.
    fn fail_ring(&mut self, error: io::Error) {
        let busy = |lane: &usize| !self.scratch.idle_lanes.contains(lane);
        let lanes = (0..self.depth_max).filter(busy);
        let first = lanes.map(|lane| self.scratch.lanes[lane].request).min().unwrap_or(0);
        let index = self.plan.requests().get(first).map_or(0, |request| request.read);
        if let Some(read) = self.reads.get(index) {
            self.fail(index, read.error(self.device.kind, index, error));
        }
    }

    /// Keeps the failure of the earliest read; no further request is started.
    fn fail(&mut self, index: usize, error: Error) {
        if self.failure.as_ref().is_none_or(|(other, _)| index < *other) {
            self.failure = Some((index, error));
        }
    }
}
