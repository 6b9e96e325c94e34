//! Batches whose reads go several ways: some to the device, others to the page cache.

use std::slice;

use smallvec::SmallVec;

use super::AutoBackend;
use super::route::{ROUTED_READS_MAX, Way};
use crate::{Error, Read, ReadBackend, Result};

/// Bytes that are copied from the page cache between two looks at the device.
const COPY_STEP_BYTES: usize = 256 << 10;

impl AutoBackend {
    /// A batch that goes several ways.
    pub(super) fn read_mixed(&self, reads: &mut [Read<'_>], ways: &[Way]) -> Result<()> {
        let mut groups = Grouped::new(reads, ways);
        let outcome = self.read_groups(&mut groups);
        groups.restore();
        outcome
    }

    /// After a failure only earlier reads of the batch matter, because the first failure is the one to
    /// report.
    fn read_groups(&self, groups: &mut Grouped<'_, '_>) -> Result<()> {
        let (places, device, advised, cached) = groups.split();
        let (advised_at, cached_at) = (device.len(), device.len() + advised.len());
        let mut missed = SmallVec::<[usize; 64]>::new();
        let mut next = 0;
        let mut copy_some = || {
            let mut bytes = 0;
            while next < cached.len() && bytes < COPY_STEP_BYTES {
                bytes += cached[next].len();
                if !self.copy_cached(&mut cached[next]) {
                    missed.push(next);
                }
                next += 1;
            }
            next < cached.len()
        };
        let mut failure = None;
        if !device.is_empty() {
            let outcome = self.device().read_batch_beside(device, &mut copy_some);
            failure = outcome.err().map(|error| in_batch(error, places));
        }
        while copy_some() {}
        if !advised.is_empty() {
            let outcome = self.advised().read_batch(advised);
            let error = outcome.err().map(|error| in_batch(error, &places[advised_at..]));
            failure = first_of(failure, error);
        }
        for at in missed {
            let index = usize::from(places[cached_at + at]);
            if failure.as_ref().is_some_and(|error| error.index() < Some(index)) {
                continue;
            }
            if let Err(error) = self.page_cache.read_batch(slice::from_mut(&mut cached[at])) {
                failure = first_of(failure, Some(error.with_index(index)));
            }
        }
        failure.map_or(Ok(()), Err)?;
        self.count_device(device);
        self.count_cached(cached);
        Ok(())
    }
}

/// A place in the batch for each of its reads.
type Places = SmallVec<[u16; ROUTED_READS_MAX]>;

/// The reads of a batch, put into an order in which those that go the same way stand together: first those
/// of the device, then those of the advised backend, then those of the page cache. No memory is allocated
/// for that.
struct Grouped<'b, 'r> {
    reads: &'b mut [Read<'r>],
    /// Where each read stood in the batch.
    places: Places,
    device: usize,
    advised: usize,
}

impl<'b, 'r> Grouped<'b, 'r> {
    /// Within a group the reads keep their order: a backend names the first of its reads that fails.
    fn new(reads: &'b mut [Read<'r>], ways: &[Way]) -> Self {
        let mut places = Places::with_capacity(ways.len());
        let mut gather = |is_it: fn(Way) -> bool| {
            let before = places.len();
            // A batch that is routed together has fewer reads than a `u16` can count.
            places.extend((0..ways.len() as u16).filter(|at| is_it(ways[usize::from(*at)])));
            places.len() - before
        };
        let device = gather(|way| way == Way::Device);
        let advised = gather(|way| way == Way::Advised);
        gather(|way| matches!(way, Way::Cache | Way::Bring));
        let mut moves: Places = places.clone();
        for (to, from) in (0..).zip(&places) {
            moves[usize::from(*from)] = to;
        }
        arrange(reads, moves);
        Self { reads, places, device, advised }
    }

    /// The places of all reads, and the reads of the device, of the advised backend and of the page cache.
    fn split(&mut self) -> (&[u16], &mut [Read<'r>], &mut [Read<'r>], &mut [Read<'r>]) {
        let (device, rest) = self.reads.split_at_mut(self.device);
        let (advised, cached) = rest.split_at_mut(self.advised);
        (&self.places, device, advised, cached)
    }

    /// Puts every read back to its place.
    fn restore(self) {
        arrange(self.reads, self.places);
    }
}

/// Moves each read to the place that `moves` has for it.
fn arrange(reads: &mut [Read<'_>], mut moves: Places) {
    for at in 0..reads.len() {
        while usize::from(moves[at]) != at {
            let to = usize::from(moves[at]);
            reads.swap(at, to);
            moves.swap(at, to);
        }
    }
}

/// The error of one of a way's reads, with its place in the batch. `places` begins with the way's first read.
fn in_batch(error: Error, places: &[u16]) -> Error {
    match error.index().and_then(|at| places.get(at)) {
        Some(index) => error.with_index(usize::from(*index)),
        None => error,
    }
}

/// The failure to report. One without an index speaks of no read, and goes first.
fn first_of(a: Option<Error>, b: Option<Error>) -> Option<Error> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.index() < a.index() { b } else { a }),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::MemoryBackend;

    proptest! {
        #[test]
        fn reads_are_grouped_by_their_way_and_put_back(
            ways in prop::collection::vec(0..4usize, 0..200),
        ) {
            let ways: Vec<Way> = ways
                .into_iter()
                .map(|way| [Way::Device, Way::Advised, Way::Cache, Way::Bring][way])
                .collect();
            let memory = MemoryBackend::new();
            memory.insert("data", vec![0; 10]);
            let file = memory.open("data".as_ref()).unwrap();
            let mut reads: Vec<_> =
                (0..ways.len()).map(|at| Read::new(&file, at as u64, &mut [])).collect();
            let mut grouped = Grouped::new(&mut reads, &ways);
            let (places, device, advised, cached) = grouped.split();
            let groups = [device, advised, cached];
            let order = groups.iter().flat_map(|group| group.iter().map(Read::offset));
            prop_assert!(order.eq(places.iter().map(|place| u64::from(*place))));
            let is_of = [
                |way: Way| way == Way::Device,
                |way: Way| way == Way::Advised,
                |way: Way| matches!(way, Way::Cache | Way::Bring),
            ];
            for (group, is_of) in groups.iter().zip(is_of) {
                prop_assert!(group.iter().all(|read| is_of(ways[read.offset() as usize])));
            }
            prop_assert!(groups.iter().all(|group| group.is_sorted_by_key(Read::offset)));
            grouped.restore();
            prop_assert!(reads.iter().map(Read::offset).eq(0..ways.len() as u64));
        }
    }
}
