//! Fresh memory that has its pages when the device comes to write to it.
//!
//! The kernel zeroes fresh pages one after the other, and a hypervisor may first have to find memory
//! for them: loading into it is bound by that, and the device waits. So threads ask for the pages of the
//! next tensors while this one reads the last. Two of them: measured with 2.4 GB on two processors, in
//! GB/s, medians of five: 1.1 without, 1.4 with one thread, 2.2 with two, 1.4 with two that also read.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, Scope};

use super::read::Placed;
use super::{Weights, WeightsError};

const THREADS: usize = 2;
/// Less is read before a thread is up.
const BYTES_MIN: usize = 32 << 20;
/// Read at a time: as much as is ready, but no more, so that there is always some.
const BATCH_BYTES_MAX: usize = 64 << 20;
/// Tensors that are ready and not yet read, of each thread. They are the caller's in any case.
const READY_MAX: usize = 256;

impl Weights {
    /// Reads what is in place, in that order, as its memory gets its pages. Gives everything back,
    /// unless a read fails.
    pub(super) fn read_fresh(&self, placed: Vec<Placed>) -> Result<Vec<Placed>, WeightsError> {
        let bytes = placed.iter().map(Placed::bytes).fold(0, usize::saturating_add);
        if bytes < BYTES_MIN {
            return self.read_one_batch(placed);
        }
        std::thread::scope(|scope| {
            let mut parts: [Vec<Placed>; THREADS] = Default::default();
            let count = placed.len();
            for (at, placed) in placed.into_iter().enumerate() {
                parts[at % THREADS].push(placed);
            }
            let mut lanes = Vec::with_capacity(THREADS);
            for part in parts {
                lanes.push(Lane::start(scope, part));
            }
            self.read_lanes(&mut lanes, count)
        })
    }

    fn read_one_batch(&self, mut placed: Vec<Placed>) -> Result<Vec<Placed>, WeightsError> {
        self.read_placed(&mut placed)?;
        Ok(placed)
    }

    fn read_lanes(&self, lanes: &mut [Lane], count: usize) -> Result<Vec<Placed>, WeightsError> {
        let mut done = Vec::with_capacity(count);
        while done.len() < count {
            let (mut batch, mut bytes) = (Vec::new(), 0);
            while done.len() + batch.len() < count && bytes < BATCH_BYTES_MAX {
                let lane = &mut lanes[(done.len() + batch.len()) % THREADS];
                // The first is waited for, others are taken if they are there.
                let next = if batch.is_empty() { lane.wait() } else { lane.take() };
                let Some(placed) = next else { break };
                bytes += placed.bytes();
                batch.push(placed);
            }
            if batch.is_empty() {
                break; // a lane has ended early, which it never does
            }
            done.append(&mut self.read_one_batch(batch)?);
        }
        Ok(done)
    }
}

/// Every second tensor, from a thread that populates them; or just so, if there can be no thread.
enum Lane {
    Thread(Receiver<Placed>),
    Plain(std::vec::IntoIter<Placed>),
}

impl Lane {
    fn start<'scope>(scope: &'scope Scope<'scope, '_>, part: Vec<Placed>) -> Self {
        let (ready, lane) = sync_channel(READY_MAX);
        let (give, take) = sync_channel(1);
        let spawned = Builder::new()
            .name("ringmain-pages".into())
            .spawn_scoped(scope, move || take.recv().map(|part| populate(part, &ready)));
        if spawned.is_err() {
            return Self::Plain(part.into_iter());
        }
        match give.send(part) {
            Ok(()) => Self::Thread(lane),
            Err(unsent) => Self::Plain(unsent.0.into_iter()),
        }
    }

    fn wait(&mut self) -> Option<Placed> {
        match self {
            Self::Thread(lane) => lane.recv().ok(),
            Self::Plain(rest) => rest.next(),
        }
    }

    fn take(&mut self) -> Option<Placed> {
        match self {
            Self::Thread(lane) => lane.try_recv().ok(),
            Self::Plain(rest) => rest.next(),
        }
    }
}

fn populate(part: Vec<Placed>, ready: &SyncSender<Placed>) {
    for mut placed in part {
        placed.populate();
        if ready.send(placed).is_err() {
            return; // nobody reads any more
        }
    }
}
