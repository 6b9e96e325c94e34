//! A batch, as the thread that reads it carries it out: it hands jobs to the runtime and handles the
//! answers. The runtime reads into buffers of the pool; only this thread writes to the destinations.

use std::sync::Arc;

use super::operation::RuntimeRead;
use super::queue::{JobQueue, Mailbox, ReadAnswer, ReadJob, Ticket};
use crate::device::{
    AnswerMeaning, DeviceCore, InFlightMemory, NextRead, Plan, Request, RequestTarget,
    RequestsInFlight, scatter,
};
use crate::{Buffer, Read, Result};

/// Memory that is kept between batches, so that a batch allocates nothing.
#[derive(Default)]
pub(super) struct RuntimeBatchMemory {
    requests: InFlightMemory,
    channel: JobChannel,
}

/// The way of a batch's reads to the runtime and back.
#[derive(Default)]
struct JobChannel {
    mailbox: Arc<Mailbox>,
    /// Jobs to be sent with the next round.
    jobs: Vec<ReadJob>,
    answers: Vec<ReadAnswer>,
}

pub(super) struct RuntimeBatch<'a, 'r> {
    requests: RequestsInFlight<'a, 'r>,
    queue: &'a JobQueue,
    channel: &'a mut JobChannel,
    in_flight: usize,
    /// The buffers that requests in flight hold, and how much they may.
    buffered_bytes: usize,
    buffered_bytes_max: usize,
}

impl<'a, 'r> RuntimeBatch<'a, 'r> {
    /// # Safety
    /// Nothing else may use the destinations of `reads` until [`run`](Self::run) has returned.
    pub(super) unsafe fn new(
        core: &'a DeviceCore,
        plan: &'a Plan,
        reads: &'a [Read<'r>],
        queue: &'a JobQueue,
        memory: &'a mut RuntimeBatchMemory,
        depth_max: usize,
    ) -> Self {
        let RuntimeBatchMemory { requests, channel } = memory;
        Self {
            requests: RequestsInFlight::new(core, plan, reads, requests, depth_max),
            queue,
            channel,
            in_flight: 0,
            buffered_bytes: 0,
            // The rest of the pool is for other batches. A batch may always have one buffer.
            buffered_bytes_max: core.pool.limit_bytes() / 4,
        }
    }

    /// Reads everything, or says what failed. Nothing is in flight when it returns.
    pub(super) fn run(mut self) -> Result<()> {
        loop {
            self.start_requests();
            if self.in_flight == 0 {
                break; // Nothing was left to start either.
            }
            self.queue.send(&mut self.channel.jobs);
            let mut answers = std::mem::take(&mut self.channel.answers);
            self.channel.mailbox.wait(self.answers_wanted(), &mut answers);
            for answer in answers.drain(..) {
                self.complete(answer);
            }
            self.channel.answers = answers;
        }
        // SAFETY: nothing is in flight, requests of a plan write to different parts, and `new`'s caller
        // promised that nothing else does.
        unsafe { self.requests.run_suspects() };
        self.requests.into_result()
    }

    /// Returns how many answers to wait for. While requests are left to start, it is enough answers to be
    /// worth waking up, but few enough that the device does not idle. At the end it is half of them, so that
    /// this thread copies while the rest arrives.
    fn answers_wanted(&self) -> usize {
        let part = if self.requests.has_more() { 8 } else { 2 };
        (self.in_flight / part).max(1)
    }

    /// Starts requests while there are slots, open files and buffers for them.
    fn start_requests(&mut self) {
        while let Some(request) = self.requests.next_request() {
            match self.buffer(&request) {
                Some(buffer) => self.start(&request, buffer),
                None if self.in_flight > 0 => return, // Until a buffer of this batch is free.
                // On this thread, straight into the destination where it can, else waiting for a
                // buffer while holding none. SAFETY: requests of a plan write to different parts,
                // and `new`'s caller promised that nothing else does.
                None => unsafe { self.requests.run_on_this_thread(&request) },
            }
        }
    }

    /// A buffer for the request, if the pool has one now. It must not wait: this batch may hold
    /// others.
    fn buffer(&mut self, request: &Request) -> Option<Buffer> {
        let within = self.buffered_bytes + request.len <= self.buffered_bytes_max;
        let wanted = within || self.in_flight == 0;
        wanted.then(|| self.requests.core.pool.try_take(request.len).ok()).flatten()
    }

    fn start(&mut self, request: &Request, buffer: Buffer) {
        if let Some(slot) = self.requests.start() {
            self.buffered_bytes += request.len;
            self.in_flight += 1;
            self.push(slot, buffer);
        }
    }

    /// Queues what is left of a slot's request.
    fn push(&mut self, slot: usize, buffer: Buffer) {
        let NextRead { request, descriptor, done, len } = self.requests.next_read(slot);
        let op = RuntimeRead {
            // Open until the pin goes, and that is after the answer.
            descriptor,
            offset: request.offset + done as u64,
            part: done..done + len,
            rw_flags: self.requests.core.policy.rw_flags(),
        };
        let ticket = Ticket::new(slot, &self.channel.mailbox);
        self.channel.jobs.push(ReadJob { op, buffer, ticket });
    }

    fn complete(&mut self, answer: ReadAnswer) {
        let ReadAnswer { slot, result, buffer } = answer;
        let Some(buffer) = buffer else {
            // The runtime has ended, and with it the buffer: there is nothing to try again with.
            if let Err(error) = result {
                self.requests.fail_request(slot, 0, error.into());
            }
            return self.finish(slot);
        };
        match self.requests.judge(slot, result) {
            AnswerMeaning::Again => return self.push(slot, buffer),
            AnswerMeaning::Complete(request) => self.deliver(&request, &buffer),
            AnswerMeaning::Over => {}
        }
        self.finish(slot);
    }

    /// Copies a request's bytes to where they are wanted.
    fn deliver(&self, request: &Request, buffer: &[u8]) {
        match request.target {
            RequestTarget::Straight { dst_offset } => {
                // SAFETY: requests of a plan write to different parts, and `new`'s caller promised
                // that nothing else does.
                let dst =
                    unsafe { self.requests.reads[request.read].part(dst_offset, request.len) };
                dst.copy_from_slice(&buffer[..request.len]);
            }
            RequestTarget::Bounce { .. } => {
                // SAFETY: as above.
                unsafe { scatter(self.requests.plan, request, self.requests.reads, buffer) };
            }
        }
    }

    /// Frees a slot.
    fn finish(&mut self, slot: usize) {
        let request = self.requests.finish(slot);
        self.buffered_bytes -= request.len;
        self.in_flight -= 1;
    }
}
