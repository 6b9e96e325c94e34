//! Weights by a mapping whose ranges the kernel is told to read ahead.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::read_ahead::{ReadAhead, spawn};
use super::{Error, MappedWeights, MmapAdvice, Prepared};

/// The kernel is told so much at a time. It returns from one within a millisecond or so, and between
/// two the thread looks whether anybody still wants the rest.
const STEP_BYTES: usize = 1 << 20;

/// A mapping, and the threads that tell the kernel what to read ahead of it.
#[derive(Debug)]
pub(super) struct Advised {
    pub(super) weights: Arc<MappedWeights>,
    ahead: ReadAhead<()>,
    is_over: Arc<AtomicBool>,
}

impl Advised {
    pub(super) fn new(weights: Arc<MappedWeights>) -> Self {
        // What is read ahead is the page cache's, which bounds itself.
        Self { weights, ahead: ReadAhead::new(usize::MAX), is_over: Arc::default() }
    }

    /// Begins with the range here, and leaves the rest of a long one to a thread.
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
        // The pages may be gone again: what was told once is told again.
        self.ahead.forget_finished();
        let is_started = self.ahead.start(&rest, begin);
        Ok(if is_started { Prepared::Started } else { Prepared::Hinted })
    }
}

impl Drop for Advised {
    fn drop(&mut self) {
        // Seen before the threads are waited for.
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
