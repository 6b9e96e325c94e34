//! Batches that go several ways.

use std::slice;

use smallvec::SmallVec;

use super::AutoBackend;
use super::route::Way;
use crate::{Error, Read, ReadBackend, Result};

/// Bytes that are copied from the page cache between two looks at the device.
const COPY_STEP_BYTES: usize = 256 << 10;

impl AutoBackend {
    /// A batch that goes several ways. After a failure only earlier reads of the batch matter,
    /// because the first failure is the one to report.
    pub(super) fn read_mixed(&self, reads: &mut [Read<'_>], ways: &[Way]) -> Result<()> {
        let mut advised = WayGroup::default();
        let mut device = WayGroup::default();
        let mut cached = WayGroup::default();
        for (index, (read, way)) in reads.iter_mut().zip(ways).enumerate() {
            let group = match way {
                Way::Advised => &mut advised,
                Way::Device => &mut device,
                Way::Cache | Way::Bring => &mut cached,
            };
            group.indices.push(index);
            group.reads.push(read.reborrow());
        }
        let mut missed = SmallVec::<[usize; 64]>::new();
        let mut next = 0;
        let mut copy_some = || {
            let mut bytes = 0;
            while next < cached.reads.len() && bytes < COPY_STEP_BYTES {
                bytes += cached.reads[next].len();
                if !self.copy_cached(&mut cached.reads[next]) {
                    missed.push(next);
                }
                next += 1;
            }
            next < cached.reads.len()
        };
        let mut failure = None;
        if !device.reads.is_empty() {
            // With the copies that run beside it: a device that looks slower than it is only makes
            // data be brought in.
            let sample = self.sample_of(&device.reads);
            let outcome = self.device().read_batch_beside(&mut device.reads, &mut copy_some);
            self.add_sample(&device.reads, sample.filter(|_| outcome.is_ok()));
            failure = outcome.err().map(|error| device.in_batch(error));
        }
        while copy_some() {}
        if !advised.reads.is_empty() {
            let outcome = self.advised().read_batch(&mut advised.reads);
            failure = first_of(failure, outcome.err().map(|error| advised.in_batch(error)));
        }
        for at in missed {
            let outcome = self.cache.read_batch(slice::from_mut(&mut cached.reads[at]));
            if let Err(error) = outcome {
                let error = error.with_index(cached.indices[at]);
                failure = first_of(failure, Some(error));
                break;
            }
        }
        failure.map_or(Ok(()), Err)?;
        self.count_cached(&cached.reads);
        Ok(())
    }
}

/// The reads of a batch that go one way, and their places in the batch.
#[derive(Default)]
struct WayGroup<'a> {
    indices: SmallVec<[usize; 64]>,
    reads: Vec<Read<'a>>,
}

impl WayGroup<'_> {
    /// The error of one of the reads, with its place in the batch.
    fn in_batch(&self, error: Error) -> Error {
        match error.index().and_then(|at| self.indices.get(at)) {
            Some(index) => error.with_index(*index),
            None => error,
        }
    }
}

/// The failure to report. One without an index speaks of no read, and goes first.
fn first_of(a: Option<Error>, b: Option<Error>) -> Option<Error> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.index() < a.index() { b } else { a }),
        (a, b) => a.or(b),
    }
}
