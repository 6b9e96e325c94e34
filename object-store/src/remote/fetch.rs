//! One range of an object, tried until it is complete.

use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use object_store::{GetResult, ObjectStore};
use tokio::sync::SemaphorePermit;
use tokio::time::{sleep, timeout};

use super::RetryOptions;
use super::bucket::Bucket;
use super::failure::{Effort, FailureKind, RemoteFailure};
use super::object::Object;
use super::plan::Job;
use super::runtime::Shift;
use super::stall::{StallTimer, stalled};

/// Counters of requests so far.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) requests: AtomicU64,
    pub(super) received_bytes: AtomicU64,
    pub(super) retries: AtomicU64,
    pub(super) hedges: AtomicU64,
}

/// How the requests of a batch are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetcher<'s> {
    pub(super) shift: &'s Shift,
    pub(super) traffic: &'s Traffic,
}

impl Fetcher<'_> {
    /// Fills all segments of the job.
    pub(super) async fn fetch(&self, job: &mut Job<'_, '_>) -> Result<(), RemoteFailure> {
        let bucket = &*job.object.bucket;
        let mut tries = Tries::new(&self.shift.options.retry, bucket);
        let mut timer = StallTimer::new(self.shift.options.stall_timeout);
        loop {
            let before = job.rest().start;
            let outcome = {
                let _permits = self.permits(bucket, &job.rest()).await;
                tries.timed(self.attempt(job, &mut timer)).await
            };
            let Err(failure) = outcome else { return Ok(()) };
            let rest = job.rest();
            if rest.is_empty() && failure.may_pass() {
                // The connection broke after the last byte.
                return Ok(());
            }
            if rest.start > before {
                tries.start_again();
            }
            let failure = failure.at(&rest);
            self.pause(tries.next(failure)?).await;
        }
    }

    /// Does something with the store until it succeeds, fails for good, or takes too long. An attempt that sends several
    /// requests may take `steps_max` times as long as one. Each attempt asks for that number: before the client was made, it
    /// may not be known.
    pub(super) async fn insist<T, F: Future<Output = Result<T, RemoteFailure>>>(
        &self,
        bucket: &Bucket,
        steps_max: impl Fn() -> u32,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, RemoteFailure> {
        let mut tries = Tries::new(&self.shift.options.retry, bucket);
        loop {
            let outcome = {
                let _permits = self.permits(bucket, &(0..0)).await;
                self.traffic.requests.fetch_add(1, Ordering::Relaxed);
                let limit = self.shift.options.stall_timeout.saturating_mul(steps_max());
                tries
                    .timed(timeout(limit, attempt()))
                    .await
                    .unwrap_or_else(|_elapsed| Err(stalled(limit)))
            };
            match outcome {
                Ok(found) => {
                    bucket.reached();
                    return Ok(found);
                }
                Err(failure) => self.pause(tries.next(failure)?).await,
            }
        }
    }

    async fn pause(&self, pause: Duration) {
        self.traffic.retries.fetch_add(1, Ordering::Relaxed);
        sleep(pause).await;
    }

    /// Waits until the request may be sent.
    async fn permits(
        &self,
        bucket: &Bucket,
        range: &Range<u64>,
    ) -> Option<[SemaphorePermit<'_>; 2]> {
        let len = range.end.saturating_sub(range.start);
        loop {
            let pause = bucket.pause_left();
            if !pause.is_zero() {
                sleep(pause).await;
            }
            // Neither semaphore is ever closed.
            let request = self.shift.requests.acquire().await.ok()?;
            let bytes = self.shift.bytes.acquire_many(self.shift.permits_for(len)).await.ok()?;
            // While this request waited, the store may have asked for a pause.
            if bucket.pause_left().is_zero() {
                return Some([request, bytes]);
            }
        }
    }

    /// One request for the rest of the range. What arrives is kept if the request fails later.
    async fn attempt(
        &self,
        job: &mut Job<'_, '_>,
        timer: &mut StallTimer,
    ) -> Result<(), RemoteFailure> {
        let object = job.object;
        let client = object.bucket.client()?;
        let wanted = job.rest();
        let answer = self.answer(&*client, object, &wanted, timer).await?;
        object.bucket.reached();
        object.check(&answer.meta)?;
        if answer.range != wanted {
            return Err(wrong_range(&answer.range));
        }
        let mut frames = answer.into_stream();
        while let Some(frame) = timer.wait(frames.next()).await? {
            let frame = frame.map_err(|error| RemoteFailure::of_store(&error))?;
            self.traffic.received_bytes.fetch_add(frame.len() as u64, Ordering::Relaxed);
            if !job.receive(&frame) {
                return Err(wrong_range(&wanted).with_way_out("the server sent more than that"));
            }
        }
        let rest = job.rest();
        if rest.is_empty() {
            return Ok(());
        }
        let (received, expected) = (rest.start - wanted.start, wanted.end - wanted.start);
        let what = format!("the body ended after {received} of {expected} bytes");
        Err(RemoteFailure::new(FailureKind::Interrupted, what))
    }

    /// The beginning of the answer. If it is late, the request is sent a second time, and the first answer counts.
    async fn answer(
        &self,
        client: &dyn ObjectStore,
        object: &Object,
        range: &Range<u64>,
        timer: &mut StallTimer,
    ) -> Result<GetResult, RemoteFailure> {
        let Some(hedge) = self.shift.options.hedge else {
            return self.ask(client, object, range, timer).await;
        };
        let begun = Instant::now();
        let first = pin!(self.ask(client, object, range, timer));
        let answer = match self.shift.latencies.hedge_after(&hedge) {
            None => first.await,
            Some(wait) => match select(first, pin!(sleep(wait))).await {
                Either::Left((answer, _)) => answer,
                Either::Right(((), first)) => self.answer_twice(first, client, object, range).await,
            },
        };
        if answer.is_ok() {
            self.shift.latencies.add(begun.elapsed());
        }
        answer
    }

    /// Sends the request again if that is within the bound, and returns the first answer that is not a failure.
    async fn answer_twice(
        &self,
        first: impl Future<Output = Result<GetResult, RemoteFailure>> + Unpin,
        client: &dyn ObjectStore,
        object: &Object,
        range: &Range<u64>,
    ) -> Result<GetResult, RemoteFailure> {
        let Ok(_permit) = self.shift.requests.try_acquire() else {
            return first.await;
        };
        self.traffic.hedges.fetch_add(1, Ordering::Relaxed);
        let mut timer = StallTimer::new(self.shift.options.stall_timeout);
        match select(first, pin!(self.ask(client, object, range, &mut timer))).await {
            Either::Left((Err(_), second)) => second.await,
            Either::Right((Err(_), first)) => first.await,
            Either::Left((answer, _)) | Either::Right((answer, _)) => answer,
        }
    }

    async fn ask(
        &self,
        client: &dyn ObjectStore,
        object: &Object,
        range: &Range<u64>,
        timer: &mut StallTimer,
    ) -> Result<GetResult, RemoteFailure> {
        self.traffic.requests.fetch_add(1, Ordering::Relaxed);
        let answer = client.get_opts(object.key(), object.request(range.clone()));
        timer.wait(answer).await?.map_err(|error| RemoteFailure::of_store(&error))
    }
}

impl RemoteFailure {
    /// Says which bytes were asked for.
    fn at(mut self, range: &Range<u64>) -> Self {
        let last = range.end.saturating_sub(1);
        self.what = format!("bytes {}-{last}: {}", range.start, self.what);
        self
    }
}

fn wrong_range(found: &Range<u64>) -> RemoteFailure {
    let what = format!("the server sent other bytes than those that were asked for: {found:?}");
    RemoteFailure::new(FailureKind::WrongRange, what)
}

/// The attempts since the last progress.
#[derive(Debug)]
struct Tries<'b> {
    options: RetryOptions,
    bucket: &'b Bucket,
    /// The time of the attempts and of the pauses after them, without the time in which a request waited for its turn.
    spent: Duration,
    failures: u32,
}

impl<'b> Tries<'b> {
    fn new(options: &RetryOptions, bucket: &'b Bucket) -> Self {
        Self { options: *options, bucket, spent: Duration::ZERO, failures: 0 }
    }

    /// Bytes have arrived: the next failure is the first.
    fn start_again(&mut self) {
        (self.spent, self.failures) = (Duration::ZERO, 0);
    }

    /// Counts the time of an attempt.
    async fn timed<T>(&mut self, attempt: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        let outcome = attempt.await;
        self.spent = self.spent.saturating_add(begun.elapsed());
        outcome
    }

    /// Returns how long to wait before the next attempt, or the failure if there is none.
    fn next(&mut self, failure: RemoteFailure) -> Result<Duration, RemoteFailure> {
        self.failures = self.failures.saturating_add(1);
        if failure.status.is_some() {
            self.bucket.reached();
        }
        let is_short = failure.kind == FailureKind::Shortage;
        let limit = match self.bucket.is_reached() {
            // It cannot connect, but can send a request over a connection that it has, once that is idle.
            true if is_short => self.options.timeout.min(self.options.shortage),
            true => self.options.timeout,
            false => self.options.timeout.min(self.options.first_contact),
        };
        let may_pass = failure.may_pass() || (is_short && self.bucket.is_reached());
        let elapsed = self.spent;
        let asked = failure.retry_after.unwrap_or_default();
        let pause = self.backoff().max(asked);
        if !may_pass || elapsed.saturating_add(pause) > limit {
            let attempts = self.failures;
            let effort = (attempts > 1).then_some(Effort { attempts, elapsed });
            return Err(self.bucket.explain(RemoteFailure { effort, ..failure }));
        }
        if !asked.is_zero() {
            self.bucket.pause(asked);
        }
        self.spent = self.spent.saturating_add(pause);
        Ok(pause)
    }

    /// The pause doubles with each failure. Up to a half of it is taken off, so that many readers that failed together
    /// do not come again together.
    fn backoff(&self) -> Duration {
        let RetryOptions { pause_min, pause_max, .. } = self.options;
        let doublings = (self.failures - 1).min(20);
        let pause = pause_min.saturating_mul(1 << doublings).min(pause_max);
        pause.mul_f64(1.0 - random() / 2.0)
    }
}

/// A number from 0 to 1.
fn random() -> f64 {
    // Each state has other keys.
    let random = RandomState::new().build_hasher().finish();
    (random >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(kind: FailureKind) -> RemoteFailure {
        RemoteFailure::new(kind, "a failure of a test")
    }

    #[test]
    fn pauses_grow_and_end_at_the_deadline() {
        let bucket = Bucket::of_tests();
        bucket.reached();
        let options = RetryOptions::default();
        let mut tries = Tries::new(&options, &bucket);
        for doubling in 0..20 {
            tries.spent = Duration::ZERO;
            let full = options.pause_min.saturating_mul(1 << doubling).min(options.pause_max);
            let pause = tries.next(failure(FailureKind::Server)).unwrap();
            assert!(pause >= full / 2 && pause <= full, "{pause:?} of {full:?}");
        }
        tries.spent = options.timeout;
        let given_up = tries.next(failure(FailureKind::Server)).unwrap_err();
        assert!(given_up.to_string().contains("the last of 21 attempts in 180"), "{given_up}");
        tries.start_again();
        assert!(tries.next(failure(FailureKind::Server)).unwrap() <= options.pause_min);
        assert!(tries.next(failure(FailureKind::NotFound)).is_err(), "that will not pass");
    }

    /// A request that had waited longer than the deadline for its turn was not tried a second time.
    #[test]
    fn the_wait_for_a_turn_does_not_count() {
        let bucket = Bucket::of_tests();
        bucket.reached();
        let short = Duration::from_millis(50);
        let options = RetryOptions {
            timeout: short,
            pause_min: short / 50,
            pause_max: short / 50,
            ..RetryOptions::default()
        };
        let mut tries = Tries::new(&options, &bucket);
        std::thread::sleep(2 * short);
        assert!(tries.next(failure(FailureKind::Server)).is_ok());
        futures_util::FutureExt::now_or_never(tries.timed(async { std::thread::sleep(2 * short) }));
        assert!(tries.next(failure(FailureKind::Server)).is_err(), "an attempt counts");
    }

    /// Requests that waited for others, and not for the pause, were sent in the middle of it.
    #[test]
    fn requests_that_wait_for_their_turn_respect_a_later_pause() {
        let options = super::super::RemoteOptions { requests_max: 1, ..Default::default() };
        let shift = super::super::runtime::RemoteThreads::new(options).shift().unwrap();
        let (traffic, bucket) = (Traffic::default(), Bucket::of_tests());
        let fetcher = Fetcher { shift: &shift, traffic: &traffic };
        shift.block_on(async {
            let first = fetcher.permits(&bucket, &(0..1)).await;
            let mut second = pin!(fetcher.permits(&bucket, &(0..1)));
            assert!(timeout(Duration::from_millis(10), &mut second).await.is_err());
            bucket.pause(Duration::from_secs(3600));
            drop(first);
            assert!(timeout(Duration::from_millis(100), &mut second).await.is_err());
        });
    }

    #[test]
    fn a_server_that_asks_for_a_pause_gets_it_or_an_end() {
        let bucket = Bucket::of_tests();
        bucket.reached();
        let mut tries = Tries::new(&RetryOptions::default(), &bucket);
        let asking = |seconds| RemoteFailure {
            retry_after: Some(Duration::from_secs(seconds)),
            ..failure(FailureKind::Throttled)
        };
        assert_eq!(tries.next(asking(20)).unwrap(), Duration::from_secs(20));
        // The other requests to the store wait too.
        assert!(bucket.pause_left() > Duration::from_secs(15));
        assert!(tries.next(asking(181)).is_err(), "longer than the deadline");
        let patient = RetryOptions { timeout: Duration::MAX, ..RetryOptions::default() };
        let endless = Tries::new(&patient, &bucket).next(asking(u64::MAX));
        assert_eq!(endless.unwrap(), Duration::from_secs(u64::MAX));
        assert!(bucket.pause_left() > Duration::from_secs(3600));
    }

    /// A read failed for want of a descriptor if it came just after another one, whose connection was not idle yet.
    #[test]
    fn a_process_without_descriptors_waits_for_a_connection_that_it_has() {
        let bucket = Bucket::of_tests();
        let mut tries = Tries::new(&RetryOptions::default(), &bucket);
        assert!(tries.next(failure(FailureKind::Shortage)).is_err(), "there is no connection");
        bucket.reached();
        assert!(tries.next(failure(FailureKind::Shortage)).is_ok());
        tries.spent += RetryOptions::default().shortage;
        assert!(tries.next(failure(FailureKind::Shortage)).is_err());
    }

    #[test]
    fn a_store_that_was_never_reached_is_given_up_early() {
        let bucket = Bucket::of_tests();
        let options = RetryOptions::default();
        let mut tries = Tries::new(&options, &bucket);
        tries.spent = options.first_contact;
        assert!(tries.next(failure(FailureKind::Unreachable)).is_err());
        bucket.reached();
        assert!(tries.next(failure(FailureKind::Unreachable)).is_ok());
    }
}
