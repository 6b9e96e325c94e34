//! Results until the first error.

use std::task::Poll;
use std::time::Duration;

use super::{Outcome, Prefetcher, Schedule};

/// A prefetcher that ends after its first error.
pub(crate) struct UntilError<S: Schedule>(Option<Prefetcher<S>>);

impl<S: Schedule> UntilError<S> {
    pub(crate) fn new(prefetcher: Prefetcher<S>) -> Self {
        Self(Some(prefetcher))
    }

    /// Returns the consumer's position; `None` after an error.
    pub(crate) fn position(&self) -> Option<&S> {
        self.0.as_ref().map(Prefetcher::position)
    }

    pub(crate) fn next(&mut self) -> Outcome<S> {
        let outcome = self.0.as_mut()?.next();
        self.ended_by(outcome)
    }

    /// See [`Prefetcher::next_within`].
    #[cfg_attr(not(feature = "safetensors"), allow(dead_code))]
    pub(crate) fn next_within(&mut self, timeout: Duration) -> Poll<Outcome<S>> {
        let Some(prefetcher) = &mut self.0 else { return Poll::Ready(None) };
        prefetcher.next_within(timeout).map(|outcome| self.ended_by(outcome))
    }

    /// See [`Prefetcher::poll_next`].
    #[cfg(feature = "async")]
    pub(crate) fn poll_next(&mut self, waker: &std::task::Waker) -> Poll<Outcome<S>> {
        let Some(prefetcher) = &mut self.0 else { return Poll::Ready(None) };
        prefetcher.poll_next(waker).map(|outcome| self.ended_by(outcome))
    }

    fn ended_by(&mut self, outcome: Outcome<S>) -> Outcome<S> {
        if matches!(outcome, Some(Err(_))) {
            self.0 = None;
        }
        outcome
    }
}
