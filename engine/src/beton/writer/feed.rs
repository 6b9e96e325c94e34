//! Who makes which samples: chunks that follow one another, each for one worker.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::super::Error;
use super::sample::{SampleBuilder, SampleError};

/// Where samples come from.
pub(super) trait Feed: Sync {
    /// What a sample is made of.
    type Item;

    /// The next chunk of up to `samples_max` samples, as many as there are items; `None` at the end.
    fn next_chunk(
        &self,
        samples_max: usize,
        items: &mut Vec<Self::Item>,
    ) -> Result<Option<ChunkId>, Error>;

    /// Makes a sample.
    fn make(&self, item: Self::Item, sample: &mut SampleBuilder<'_>) -> Result<(), SampleError>;
}

/// How many items of an iterator a worker has at a time: each may be large, and what comes slowly is
/// for all workers.
const ITEMS_MAX: usize = 8;

/// Which chunk it is, and its first sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ChunkId {
    pub(super) number: u64,
    pub(super) first: u64,
}

impl ChunkId {
    /// This one, which has so many samples; the next one takes its place.
    fn advance(&mut self, samples: usize) -> Self {
        let next = Self { number: self.number + 1, first: self.first + samples as u64 };
        std::mem::replace(self, next)
    }
}

/// Samples that are made from their number.
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

/// Samples that are made from what an iterator yields.
#[derive(Debug)]
pub(super) struct Iterated<I, F> {
    path: PathBuf,
    samples: u64,
    make: F,
    /// `None` after its end.
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
            "{} samples were declared, and {came} came; declare as many as there are",
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
        // Poisoned by an iterator that has panicked: whoever had it will tell.
        let Ok(mut state) = self.state.lock() else { return Ok(None) };
        let (iterator, next) = &mut *state;
        let left = usize::try_from(self.samples - next.first).unwrap_or(usize::MAX);
        items.clear();
        let Some(source) = iterator else { return Ok(None) };
        let wanted = left.min(samples_max).min(ITEMS_MAX);
        items.extend(source.take(wanted));
        let is_over = items.len() < wanted || (left == 0 && source.next().is_some());
        if is_over {
            // Another worker would find the end once more, and count what this one has taken as missing.
            *iterator = None;
            let found = next.first + if left == 0 { 1 } else { items.len() as u64 };
            return Err(self.wrong_count(found));
        }
        if left == 0 {
            *iterator = None; // it need not yield `None` twice
            return Ok(None);
        }
        Ok(Some(next.advance(items.len())))
    }

    fn make(&self, item: I::Item, sample: &mut SampleBuilder<'_>) -> Result<(), SampleError> {
        (self.make)(item, sample)
    }
}
