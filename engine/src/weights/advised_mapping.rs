//! A mapping of weights whose ranges the kernel reads ahead on request.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::read_ahead::{ReadAhead, spawn};
use super::{Error, MappedWeights, MmapAdvice, Prepared};

/// The thread advises the kernel about this many bytes at a time. One call takes about a
/// millisecond, and between calls the thread checks whether it should stop.
const STEP_BYTES: usize = 1 << 20;

/// A mapping, and the threads that advise the kernel to read it ahead.
#[derive(Debug)]
pub(super) struct AdvisedMapping {
    pub(super) weights: Arc<MappedWeights>,
    ahead: ReadAhead<()>,
    is_over: Arc<AtomicBool>,
}

impl AdvisedMapping {
    pub(super) fn new(weights: Arc<MappedWeights>) -> Self {
        // The page cache holds the data and bounds itself, so there is no limit here.
        Self { weights, ahead: ReadAhead::new(usize::MAX), is_over: Arc::default() }
    }

    /// Advises the kernel about the start of the range here, and leaves the rest of a long range to
    /// a thread.
    pub(super) fn prepare(&self, range: Range<usize>) -> Result<Prepared, Error> {
        if range.is_empty() {
            return Ok(Prepared::InMemory);
        }
        let rest = range.end.min(range.start + STEP_BYTES)..range.end;
        match self.weights.advise_range(MmapAdvice::WillNeed, range.start..rest.start) {
            Ok(()) if rest.is_empty() => return Ok(Prepared::Started),
            Ok(()) => {}
            Err(Error::Unsupported { .. }) => return Ok(Prepared::Unsupported),
            Err(error) => return Err(error),
        }
        let begin = || {
            let (weights, is_over) = (Arc::clone(&self.weights), Arc::clone(&self.is_over));
            let rest = rest.clone();
            spawn(move || advise_all(&weights, rest, &is_over))
        };
        // The kernel may have evicted the pages, so a range can be advised again.
        self.ahead.forget_finished();
        let is_started = self.ahead.start(&rest, begin);
        Ok(if is_started { Prepared::Started } else { Prepared::Hinted })
    }
}

impl Drop for AdvisedMapping {
    fn drop(&mut self) {
        // Set before the threads are joined, so that they stop early.
        self.is_over.store(true, Ordering::SeqCst);
    }
}

fn advise_all(weights: &MappedWeights, range: Range<usize>, is_over: &AtomicBool) {
    for start in range.clone().step_by(STEP_BYTES) {
        let step = start..range.end.min(start + STEP_BYTES);
        let is_refused = || weights.advise_range(MmapAdvice::WillNeed, step).is_err();
        if is_over.load(Ordering::SeqCst) || is_refused() {
            return;
        }
    }
}
