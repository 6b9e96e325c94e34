//! Fresh memory that has its pages when the device comes to write to it.
//!
//! The kernel zeroes fresh pages one after the other, and a hypervisor may first have to find memory
//! for them: loading into it is bound by that, and the device waits. So threads ask for the pages of the
//! next parts while this one reads the last. Two of them: measured with 2.4 GB on two processors, in
//! GB/s, medians of five: 1.1 without, 1.4 with one thread, 2.2 with two, 1.4 with two that also read.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, Scope};

use ringmain_backends::populate;

use super::read::Part;
use super::{Error, Weights};

const THREADS: usize = 2;
/// Less is read before a thread is up.
const BYTES_MIN: usize = 32 << 20;
/// Populated at a time, so that of a large tensor the beginning is read while the rest gets its pages.
const PART_BYTES_MAX: usize = 16 << 20;
/// Read at a time: as much as is ready, but no more, so that there is always some.
const BATCH_BYTES_MAX: usize = 64 << 20;
/// Parts that are ready and not yet read, of each thread. Their memory is the caller's in any case.
const READY_MAX: usize = 256;

impl Weights {
    /// Reads the parts, in that order, as their memory gets its pages.
    pub(super) fn read_fresh(&self, parts: Vec<Part<'_>>) -> Result<(), Error> {
        let bytes = parts.iter().map(|part| part.dst.len()).fold(0, usize::saturating_add);
        if bytes < BYTES_MIN {
            return self.read_parts(parts);
        }
        let mut dealt: [Vec<Part<'_>>; THREADS] = Default::default();
        let parts = parts.into_iter().flat_map(|part| part.split(PART_BYTES_MAX));
        for (at, part) in parts.enumerate() {
            dealt[at % THREADS].push(part);
        }
        std::thread::scope(|scope| {
            let mut lanes = dealt.map(|parts| Lane::start(scope, parts));
            self.read_lanes(&mut lanes)
        })
    }

    /// Reads what comes from the lanes, one of each in turn.
    fn read_lanes(&self, lanes: &mut [Lane<'_>]) -> Result<(), Error> {
        let mut turns = (0..lanes.len()).cycle();
        let mut turn = turns.next().unwrap_or(0);
        loop {
            let (mut batch, mut bytes) = (Vec::new(), 0);
            while bytes < BATCH_BYTES_MAX {
                // The first is waited for, others are taken if they are there.
                let lane = &mut lanes[turn];
                let next = if batch.is_empty() { lane.wait() } else { lane.take() };
                let Some(part) = next else { break };
                bytes += part.dst.len();
                batch.push(part);
                turn = turns.next().unwrap_or(0);
            }
            // Whose turn it is has ended, and after it nobody has a part.
            if batch.is_empty() {
                return Ok(());
            }
            self.read_parts(batch)?;
        }
    }
}

/// Every second part, from a thread that populates it; or just so, if there can be no thread.
enum Lane<'a> {
    Thread(Receiver<Part<'a>>),
    Plain(std::vec::IntoIter<Part<'a>>),
}

impl<'a> Lane<'a> {
    fn start<'scope>(scope: &'scope Scope<'scope, 'a>, parts: Vec<Part<'a>>) -> Self {
        let (ready, lane) = sync_channel(READY_MAX);
        let (give, take) = sync_channel(1);
        let spawned = Builder::new()
            .name("ringmain-pages".into())
            .spawn_scoped(scope, move || take.recv().map(|parts| populate_all(parts, &ready)));
        if spawned.is_err() {
            return Self::Plain(parts.into_iter());
        }
        match give.send(parts) {
            Ok(()) => Self::Thread(lane),
            Err(unsent) => Self::Plain(unsent.0.into_iter()),
        }
    }

    fn wait(&mut self) -> Option<Part<'a>> {
        match self {
            Self::Thread(lane) => lane.recv().ok(),
            Self::Plain(rest) => rest.next(),
        }
    }

    fn take(&mut self) -> Option<Part<'a>> {
        match self {
            Self::Thread(lane) => lane.try_recv().ok(),
            Self::Plain(rest) => rest.next(),
        }
    }
}

fn populate_all<'a>(parts: Vec<Part<'a>>, ready: &SyncSender<Part<'a>>) {
    for part in parts {
        // Where it cannot be, the read does it.
        let _populated = populate(part.dst);
        if ready.send(part).is_err() {
            return; // nobody reads any more
        }
    }
}
