//! A batch on its way through a ring.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;

use super::ring::{Completion, ReadOp, Ring};
use crate::buffer::PAGE_BYTES;
use crate::device::{Device, scatter};
use crate::handle_cache::Cached;
use crate::lanes::{LaneMemory, Lanes, Part, Verdict};
use crate::plan::{Plan, Request, Target};
use crate::retry::Patience;
use crate::{Read, Result};

/// What a ring keeps between batches, so that a batch allocates nothing.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    lanes: LaneMemory,
    cells: Cells,
}

/// Where in the arena bounced requests go.
#[derive(Debug, Default)]
struct Cells {
    /// The size of a cell; 0 without an arena.
    bytes: usize,
    idle: Vec<usize>,
    /// The cell of each lane that has one.
    of_lane: Vec<Option<usize>>,
}

impl Cells {
    fn reset(&mut self, plan: &Plan, arena_bytes: usize, depth_max: usize) {
        let count = arena_bytes.checked_div(cell_bytes(plan)).unwrap_or(0);
        self.bytes = if count == 0 { 0 } else { cell_bytes(plan) };
        self.idle.clear();
        self.idle.extend((0..count).rev());
        self.of_lane.clear();
        self.of_lane.resize(depth_max, None);
    }
}

/// The part of an arena that each bounced request of the plan gets: whole pages, so that every
/// one is aligned as the first.
pub(super) fn cell_bytes(plan: &Plan) -> usize {
    plan.bounce_bytes_max().next_multiple_of(PAGE_BYTES)
}

pub(super) struct Batch<'a, 'r> {
    lanes: Lanes<'a, 'r, RawFd>,
    cells: &'a mut Cells,
    ring: &'a mut Ring,
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
        let Scratch { lanes, cells } = scratch;
        cells.reset(plan, ring.arena_bytes(), depth_max);
        Self { lanes: Lanes::new(device, plan, reads, lanes, depth_max), cells, ring }
    }

    /// Reads everything, or says what failed. Nothing is in flight when it returns.
    pub(super) fn run(mut self) -> Result<()> {
        let mut patience = Patience::default();
        loop {
            self.start_requests();
            if self.ring.in_flight() == 0 {
                break; // Nothing was left to start either.
            }
            match self.ring.submit_and_wait(self.completions_wanted()) {
                Ok(()) => patience.renew(),
                // A signal ended the wait, and the reads go on: no failure, however long the
                // device takes. The kernel takes the queue before it waits, so a queue that it has
                // not taken is another matter.
                Err(error)
                    if error.kind() == io::ErrorKind::Interrupted
                        && self.ring.kernel_holds_reads() => {}
                Err(error) if patience.allows(&error) => {}
                Err(error) => {
                    self.lanes.fail_queue(error);
                    break;
                }
            }
            while let Some(completion) = self.ring.reap() {
                patience.renew();
                self.complete(completion);
            }
        }
        self.lanes.into_result()
    }

    /// How many reads to wait for: with more to start, enough of them that a system call is
    /// worth it and not so many that the device idles; at the end all of them, unless there are
    /// bytes to copy meanwhile.
    fn completions_wanted(&self) -> usize {
        let in_flight = self.ring.in_flight();
        if self.lanes.has_more() {
            (in_flight / 8).max(1)
        } else if self.cells.bytes > 0 {
            (in_flight / 2).max(1)
        } else {
            in_flight
        }
    }

    /// Starts requests while there are lanes, cells and file slots for them.
    fn start_requests(&mut self) {
        while let Some(request) = self.lanes.next_request() {
            let bounces = matches!(request.target, Target::Bounce { .. });
            if bounces && self.cells.bytes == 0 {
                // The pool had no arena for this thread: a buffer for the moment.
                if self.ring.in_flight() > 0 {
                    return;
                }
                // SAFETY: requests of a plan write to different parts, and `new`'s caller
                // promised that nobody else does.
                unsafe { self.lanes.run_on_this_thread(&request) };
                continue;
            }
            if bounces && self.cells.idle.is_empty() {
                return;
            }
            if !self.lanes.pin(&request, |pinned| pinned.file().as_raw_fd()) {
                if self.ring.in_flight() > 0 {
                    return; // Until a file of ours is done with.
                }
                continue; // It has failed, so the next one is another.
            }
            if let Some(lane) = self.lanes.start() {
                self.cells.of_lane[lane] = if bounces { self.cells.idle.pop() } else { None };
                self.push(lane);
            }
        }
    }

    /// Queues what is left of a lane's request.
    fn push(&mut self, lane: usize) {
        let Part { request, name, done, len } = self.lanes.part(lane);
        let cell = self.cells.of_lane[lane];
        let op = ReadOp {
            descriptor: name,
            offset: request.offset + done as u64,
            dst: self.destination(&request, cell, done),
            // At most a chunk, which is at most 1 GiB.
            len: len as u32,
            rw_flags: self.lanes.device.policy().rw_flags(),
            in_arena: cell.is_some() && self.ring.arena_is_registered(),
            token: lane as u64,
        };
        // SAFETY: the destination is a part of the batch's memory that only this request writes
        // to, or a cell of the arena that is this lane's. Both outlive the read: `run` returns
        // with nothing in flight, or else the ring is dropped, which waits.
        if let Err(error) = unsafe { self.ring.push(&op) } {
            self.lanes.fail_lane(lane, done, error.into());
            self.finish(lane);
        }
    }

    fn destination(&self, request: &Request, cell: Option<usize>, done: usize) -> NonNull<u8> {
        match request.target {
            Target::Straight { dst_offset } => {
                let read = &self.lanes.reads[request.read];
                // SAFETY: the plan keeps to the read's length, so the sum stays in its memory.
                unsafe { read.dst_ptr().add(dst_offset + done) }
            }
            Target::Bounce { .. } => {
                let start = cell.unwrap_or(0) * self.cells.bytes + done;
                self.ring.arena_part(start, request.len - done)
            }
        }
    }

    fn complete(&mut self, completion: Completion) {
        let Ok(lane) = usize::try_from(completion.token) else { return };
        match self.lanes.judge(lane, completion.result) {
            Verdict::Again => return self.push(lane),
            Verdict::Complete(request) => self.deliver(lane, &request),
            Verdict::Over => {}
        }
        self.finish(lane);
    }

    /// Copies a bounced request's pieces to where they are wanted.
    fn deliver(&mut self, lane: usize, request: &Request) {
        let Some(cell) = self.cells.of_lane[lane] else { return };
        let start = cell * self.cells.bytes;
        let bounce = self.ring.arena_part(start, request.len);
        // SAFETY: the cell is this lane's and its read has ended, so nobody writes to it. Requests
        // of a plan write to different parts of the destinations, and `new`'s caller promised that
        // nobody else does.
        unsafe {
            let bounce = std::slice::from_raw_parts(bounce.as_ptr(), request.len);
            scatter(self.lanes.plan, request, self.lanes.reads, bounce);
        }
    }

    /// Gives back what a lane held.
    fn finish(&mut self, lane: usize) {
        self.lanes.finish(lane);
        self.cells.idle.extend(self.cells.of_lane[lane].take());
    }
}
