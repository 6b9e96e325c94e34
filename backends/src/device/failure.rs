//! The failure that a batch reports.

use super::core::DeviceCore;
use super::plan::Request;
use crate::{Error, Read, Result};

/// The failure of the earliest read. Requests run in the order of the file, not of the batch, so
/// requests for earlier reads still run after a failure: they may fail too.
#[derive(Debug, Default)]
pub(crate) struct FirstFailure {
    first: Option<(usize, Error)>,
}

impl FirstFailure {
    /// Returns `true` if the same or an earlier read of the batch has failed already. Then the outcome of
    /// this request does not matter.
    pub(crate) fn outranks(&self, request: &Request) -> bool {
        self.first.as_ref().is_some_and(|(index, _)| *index <= request.read)
    }

    pub(crate) fn record(&mut self, index: usize, error: Error) {
        if self.first.as_ref().is_none_or(|(other, _)| index < *other) {
            self.first = Some((index, error));
        }
    }

    pub(crate) fn into_result(self, core: &DeviceCore, reads: &[Read<'_>]) -> Result<()> {
        match self.first {
            None => Ok(()),
            Some((_, found @ Error::PastEnd { .. })) => Err(core.past_end(reads, found)),
            Some((_, error)) => Err(error),
        }
    }
}
