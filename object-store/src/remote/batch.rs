//! A batch: its requests at once, and the first read that fails.

use std::cell::Cell;

use futures_util::StreamExt;
use futures_util::future::{Aborted, abortable};
use futures_util::stream::FuturesUnordered;

use super::failure::RemoteFailure;
use super::fetch::Fetcher;
use super::plan::Job;

/// The first read that could not be completed.
#[derive(Debug)]
pub(super) struct FailedRead {
    pub(super) index: usize,
    pub(super) failure: RemoteFailure,
}

impl Fetcher<'_> {
    async fn fetch_job(&self, mut job: Job<'_, '_>) -> Result<(), FailedRead> {
        let outcome = self.fetch(&mut job).await;
        outcome.map_err(|failure| FailedRead { index: job.failed_index(), failure })
    }

    /// Does all jobs, at most as many at once as the options allow.
    ///
    /// After a failure only requests for earlier reads continue: one of them may fail too, and then it is the first.
    pub(super) async fn fetch_all(&self, jobs: Vec<Job<'_, '_>>) -> Result<(), FailedRead> {
        let mut waiting = jobs.into_iter();
        if waiting.len() <= 1 {
            return match waiting.next() {
                Some(job) => self.fetch_job(job).await,
                None => Ok(()),
            };
        }
        let first_failed = Cell::new(usize::MAX);
        let mut in_flight = FuturesUnordered::new();
        let mut handles = Vec::new();
        let mut found: Option<FailedRead> = None;
        loop {
            while in_flight.len() < self.shift.options.requests_max {
                let is_wanted = |job: &Job<'_, '_>| job.first_index() < first_failed.get();
                let Some(job) = waiting.by_ref().find(is_wanted) else { break };
                let first_index = job.first_index();
                let (work, handle) = abortable(self.fetch_job(job));
                handles.push((first_index, handle));
                in_flight.push(work);
            }
            match in_flight.next().await {
                None => return found.map_or(Ok(()), Err),
                Some(Ok(Ok(())) | Err(Aborted)) => {}
                Some(Ok(Err(failed))) => {
                    if failed.index < first_failed.get() {
                        first_failed.set(failed.index);
                        let later = handles.iter().filter(|(first, _)| *first >= failed.index);
                        later.for_each(|(_, handle)| handle.abort());
                        found = Some(failed);
                    }
                }
            }
        }
    }
}
