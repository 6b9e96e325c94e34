//! A batch on its way through a ring.

use std::io;
use std::ptr::NonNull;

use super::cells::ArenaCells;
use super::ring::{Completion, Ring, RingRead};
use crate::buffer::HUGE_PAGE_BYTES;
use crate::device::{
    AnswerMeaning, DeviceCore, InFlightMemory, NextRead, Plan, Request, RequestTarget,
    RequestsInFlight, scatter,
};
use crate::retry::Patience;
use crate::{Read, Result, sys};

/// Bounds on the memory that a batch borrows for its bounced reads. A batch gets less than the
/// minimum only if the pool cannot spare it. A batch that needs more than the minimum gets a huge
/// page, which is contiguous for the device: that was measured to give 10 to 15 % more 4 KiB reads
/// per second than small pages.
const ARENA_BYTES_MAX: usize = 4 << 20;
const ARENA_BYTES_MIN: usize = 256 << 10;

/// Memory that a ring keeps between batches, so that a batch allocates nothing.
#[derive(Debug, Default)]
pub(super) struct RingBatchMemory {
    requests: InFlightMemory,
    cells: ArenaCells,
    /// Where the part of the arena begins that a slot's request goes into, if it has one.
    cell_of_slot: Vec<Option<usize>>,
}

/// Returns how much of an arena a bounced request takes: whole pages of the system, which the request has to
/// itself.
fn cell_bytes(request_bytes: usize) -> usize {
    request_bytes.next_multiple_of(sys::page_bytes())
}

pub(super) struct RingBatch<'a, 'r> {
    requests: RequestsInFlight<'a, 'r>,
    cells: &'a mut ArenaCells,
    cell_of_slot: &'a mut Vec<Option<usize>>,
    ring: &'a mut Ring,
    depth_max: usize,
}

impl<'a, 'r> RingBatch<'a, 'r> {
    /// # Safety
    /// Nothing else may use the destinations of `reads` until [`run`](Self::run) has returned.
    pub(super) unsafe fn new(
        core: &'a DeviceCore,
        plan: &'a Plan,
        reads: &'a [Read<'r>],
        ring: &'a mut Ring,
        memory: &'a mut RingBatchMemory,
        depth_max: usize,
    ) -> Self {
        let RingBatchMemory { requests, cells, cell_of_slot } = memory;
        cell_of_slot.clear();
        cell_of_slot.resize(depth_max, None);
        let requests = RequestsInFlight::new(core, plan, reads, requests, depth_max);
        let mut batch = Self { requests, cells, cell_of_slot, ring, depth_max };
        batch.borrow_arena();
        batch
    }

    /// Borrows memory to bounce through from the pool, as much as the plan can use and at least enough for
    /// the largest bounced request. Returns `false` if the pool has none now.
    fn borrow_arena(&mut self) -> bool {
        let plan = self.requests.plan;
        if plan.bounces() == 0 {
            return false;
        }
        let largest = cell_bytes(plan.bounce_bytes_max());
        let in_flight = largest.saturating_mul(plan.bounces().min(self.depth_max));
        let wanted = plan.bounce_bytes_sum().min(in_flight).min(ARENA_BYTES_MAX);
        let wanted = match wanted.next_power_of_two() {
            ..=ARENA_BYTES_MIN => ARENA_BYTES_MIN,
            more => more.max(HUGE_PAGE_BYTES),
        };
        let least = largest.next_power_of_two();
        let Some(loan) = self.requests.core.pool.lend(wanted.max(least), least) else {
            return false;
        };
        self.ring.set_arena(loan);
        self.cells.reset(self.ring.arena_bytes(), self.depth_max);
        true
    }

    /// Reads everything, or says what failed. Nothing is in flight when it returns. It does not
    /// wait while `work` returns true.
    pub(super) fn run(mut self, mut work: Option<&mut dyn FnMut() -> bool>) -> Result<()> {
        let mut patience = Patience::default();
        loop {
            self.start_requests();
            if self.ring.in_flight() == 0 {
                break; // Nothing was left to start either.
            }
            let submitted = match work {
                Some(_) => self.ring.submit_and_look(),
                None => self.ring.submit_and_wait(self.completions_wanted()),
            };
            match submitted {
                Ok(()) => patience.renew(),
                // A signal ended the wait, but the kernel has taken the reads and continues with them.
                // That is not a failure, however long the device takes. If the kernel has not taken the
                // queue, the next branch counts the attempt.
                Err(error)
                    if error.kind() == io::ErrorKind::Interrupted
                        && self.ring.kernel_holds_reads() => {}
                Err(error) if patience.allows(&error) => {}
                Err(error) => {
                    self.requests.fail_queue(error);
                    return self.requests.into_result();
                }
            }
            while let Some(completion) = self.ring.reap() {
                patience.renew();
                self.complete(completion);
            }
            work = work.and_then(|work| work().then_some(work));
        }
        // A request on this thread may have to wait for memory of the pool, which the arena holds.
        self.ring.drop_arena();
        // SAFETY: nothing is in flight, requests of a plan write to different parts, and `new`'s caller
        // promised that nothing else does.
        unsafe { self.requests.run_suspects() };
        self.requests.into_result()
    }

    /// Returns how many reads to wait for. While requests are left to start, it is enough reads to be worth
    /// a system call, but few enough that the device does not idle. At the end it is all of them, unless
    /// there are bytes to copy meanwhile.
    fn completions_wanted(&self) -> usize {
        let in_flight = self.ring.in_flight();
        if self.requests.has_more() {
            (in_flight / 8).max(1)
        } else if self.requests.plan.bounces() > 0 {
            (in_flight / 2).max(1)
        } else {
            in_flight
        }
    }

    /// Starts requests while there are slots, cells and open files for them.
    fn start_requests(&mut self) {
        while let Some(request) = self.requests.next_request() {
            let bounces = matches!(request.target, RequestTarget::Bounce { .. });
            if bounces && self.ring.arena_bytes() == 0 {
                if self.ring.in_flight() > 0 {
                    return;
                }
                if !self.borrow_arena() {
                    // The pool has none for this batch at the moment: a buffer for this request.
                    // SAFETY: requests of a plan write to different parts, and `new`'s caller
                    // promised that nothing else does.
                    unsafe { self.requests.run_on_this_thread(&request) };
                    continue;
                }
            }
            let cell = if bounces { self.cells.take(cell_bytes(request.len)) } else { None };
            if bounces && cell.is_none() {
                return; // Until a large enough part of the arena is idle.
            }
            if let Some(slot) = self.requests.start() {
                self.cell_of_slot[slot] = cell;
                self.push(slot);
            }
        }
    }

    /// Queues what is left of a slot's request.
    fn push(&mut self, slot: usize) {
        let NextRead { request, descriptor, done, len } = self.requests.next_read(slot);
        let cell = self.cell_of_slot[slot];
        let op = RingRead {
            descriptor,
            offset: request.offset + done as u64,
            dst: self.destination(&request, cell, done),
            // At most a chunk, which is at most 1 GiB.
            len: len as u32,
            rw_flags: self.requests.core.policy.rw_flags(),
            token: slot as u64,
        };
        // SAFETY: the destination is a part of the batch's memory that only this request writes
        // to, or a part of the arena that is this slot's. Both outlive the read: `run` returns
        // with nothing in flight, or else the ring is dropped, which waits.
        if let Err(error) = unsafe { self.ring.push(&op) } {
            self.requests.fail_request(slot, done, error.into());
            self.finish(slot);
        }
    }

    fn destination(&self, request: &Request, cell: Option<usize>, done: usize) -> NonNull<u8> {
        match request.target {
            RequestTarget::Straight { dst_offset } => {
                let read = &self.requests.reads[request.read];
                // SAFETY: the plan keeps to the read's length, so the sum stays in its memory.
                unsafe { read.dst_ptr().add(dst_offset + done) }
            }
            RequestTarget::Bounce { .. } => {
                self.ring.arena_part(cell.unwrap_or(0) + done, request.len - done)
            }
        }
    }

    fn complete(&mut self, completion: Completion) {
        let Ok(slot) = usize::try_from(completion.token) else { return };
        match self.requests.judge(slot, completion.result) {
            AnswerMeaning::Again => return self.push(slot),
            AnswerMeaning::Complete(request) => self.deliver(slot, &request),
            AnswerMeaning::Over => {}
        }
        self.finish(slot);
    }

    /// Copies a bounced request's pieces to where they are wanted.
    fn deliver(&mut self, slot: usize, request: &Request) {
        let Some(start) = self.cell_of_slot[slot] else { return };
        let bounce = self.ring.arena_part(start, request.len);
        // SAFETY: the part is this slot's and its read has ended, so nothing writes to it. Requests
        // of a plan write to different parts of the destinations, and `new`'s caller promised that
        // nothing else does.
        unsafe {
            let bounce = std::slice::from_raw_parts(bounce.as_ptr(), request.len);
            scatter(self.requests.plan, request, self.requests.reads, bounce);
        }
    }

    /// Frees a slot and its cell.
    fn finish(&mut self, slot: usize) {
        let request = self.requests.finish(slot);
        if let Some(start) = self.cell_of_slot[slot].take() {
            self.cells.give_back(start..start + cell_bytes(request.len));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a fork in mid-read, a write to a page that two requests share could take it away from the
    /// device.
    #[test]
    fn requests_have_the_pages_of_the_arena_to_themselves() {
        let page_bytes = sys::page_bytes();
        let mut cells = ArenaCells::default();
        cells.reset(64 * page_bytes, 8);
        for bytes in [1, page_bytes - 1, page_bytes, page_bytes + 1, 5 * page_bytes] {
            let cell = cell_bytes(bytes);
            assert!(cell >= bytes && cell.is_multiple_of(page_bytes), "{bytes}: {cell}");
            assert!(cells.take(cell).is_some_and(|start| start.is_multiple_of(page_bytes)));
        }
    }
}
