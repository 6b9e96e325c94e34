//! Divides the samples into chunks of consecutive samples, each for one worker.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::super::Error;
use super::sample::{SampleBuilder, SampleError};

/// A source of samples.
pub(super) trait Feed: Sync {
    /// The item that a sample is made from.
    type Item;

    /// Returns the next chunk of up to `samples_max` samples, one for each item; `None` at the end.
    fn next_chunk(
        &self,
        samples_max: usize,
        items: &mut Vec<Self::Item>,
    ) -> Result<Option<ChunkId>, Error>;

    /// Makes a sample.
    fn make(&self, item: Self::Item, sample: &mut SampleBuilder<'_>) -> Result<(), SampleError>;
}

/// A worker takes at most this many items of an iterator at a time: items may be large, and a slow
/// iterator should feed all workers.
const ITEMS_MAX: usize = 8;

/// The number of a chunk, and its first sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ChunkId {
    pub(super) number: u64,
    pub(super) first: u64,
}

impl ChunkId {
    /// Returns this id, for a chunk of `samples` samples, and advances to the next.
    fn advance(&mut self, samples: usize) -> Self {
        let next = Self { number: self.number + 1, first: self.first + samples as u64 };
        std::mem::replace(self, next)
    }
}

/// Makes samples from their ids.
#[derive(Debug)]
pub(super) struct Indexed<F> {
    samples: u64,
    make: F,
    next: Mutex<ChunkId>,
}

impl<F> Indexed<F> {
    pub(super) fn new(samples: u64, make: F) -> Self {
        Self { samples, make, next: Mutex::default() }
    }
}

impl<F> Feed for Indexed<F>
where
    F: Fn(u64, &mut SampleBuilder<'_>) -> Result<(), SampleError> + Sync,
{
    type Item = ();

    fn next_chunk(
        &self,
        samples_max: usize,
        items: &mut Vec<()>,
    ) -> Result<Option<ChunkId>, Error> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let left = usize::try_from(self.samples - next.first).unwrap_or(usize::MAX);
        items.resize(left.min(samples_max), ());
        Ok((left > 0).then(|| next.advance(items.len())))
    }

    fn make(&self, (): (), sample: &mut SampleBuilder<'_>) -> Result<(), SampleError> {
        (self.make)(sample.id(), sample)
    }
}

/// Makes samples from the items of an iterator.
#[derive(Debug)]
pub(super) struct Iterated<I, F> {
    path: PathBuf,
    samples: u64,
    make: F,
    /// The iterator is `None` after its end.
    state: Mutex<(Option<I>, ChunkId)>,
}

impl<I, F> Iterated<I, F> {
    pub(super) fn new(path: &Path, samples: u64, items: I, make: F) -> Self {
        let state = Mutex::new((Some(items), ChunkId::default()));
        Self { path: path.to_owned(), samples, make, state }
    }

    fn wrong_count(&self, found: u64) -> Error {
        let came = if found > self.samples { "more".to_owned() } else { format!("only {found}") };
        let reason = format!(
            "{} samples were declared, but the iterator yielded {came}; declare the exact number",
            self.samples
        );
        Error::InvalidItem { path: self.path.clone(), item: None, reason }
    }
}

impl<I, F> Feed for Iterated<I, F>
where
    I: Iterator + Send,
    F: Fn(I::Item, &mut SampleBuilder<'_>) -> Result<(), SampleError> + Sync,
{
    type Item = I::Item;

    fn next_chunk(
        &self,
        samples_max: usize,
        items: &mut Vec<I::Item>,
    ) -> Result<Option<ChunkId>, Error> {
        // The iterator panicked in another worker, which reports it.
        let Ok(mut state) = self.state.lock() else { return Ok(None) };
        let (iterator, next) = &mut *state;
        let left = usize::try_from(self.samples - next.first).unwrap_or(usize::MAX);
        items.clear();
        let Some(source) = iterator else { return Ok(None) };
        let wanted = left.min(samples_max).min(ITEMS_MAX);
        items.extend(source.take(wanted));
        let is_over = items.len() < wanted || (left == 0 && source.next().is_some());
        if is_over {
            // Otherwise another worker would reach the end too, and report this chunk's samples as
            // missing.
            *iterator = None;
            let found = next.first + if left == 0 { 1 } else { items.len() as u64 };
            return Err(self.wrong_count(found));
        }
        if left == 0 {
            *iterator = None; // an iterator need not yield `None` twice
            return Ok(None);
        }
        Ok(Some(next.advance(items.len())))
    }

    fn make(&self, item: I::Item, sample: &mut SampleBuilder<'_>) -> Result<(), SampleError> {
        (self.make)(item, sample)
    }
}
