//! Notices a server that sends nothing.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use super::failure::{FailureKind, RemoteFailure};

/// The timer of a job. Starting a wait is one look at the clock: the timer itself is moved only when it fires, which it
/// does once in `limit`. A timer for each frame of a body took a lock of the runtime twice.
#[derive(Debug)]
pub(super) struct StallTimer {
    limit: Duration,
    /// `None` before the first wait that is not over at once.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl StallTimer {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, sleep: None }
    }

    /// Waits for a part of an answer. Fails if that takes longer than the limit.
    pub(super) async fn wait<F: Future>(&mut self, part: F) -> Result<F::Output, RemoteFailure> {
        let begun = Instant::now();
        let mut part = pin!(part);
        poll_fn(|context| {
            if let Poll::Ready(output) = part.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep(self.limit)));
            loop {
                if sleep.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                // It was set by an earlier wait.
                let left = self.limit.saturating_sub(begun.elapsed());
                if left.is_zero() {
                    return Poll::Ready(Err(stalled(self.limit)));
                }
                sleep.set(tokio::time::sleep(left));
            }
        })
        .await
    }
}

/// The failure of a server that has sent nothing for this long.
pub(super) fn stalled(limit: Duration) -> RemoteFailure {
    let what = format!("the server sent nothing for {:.1} s", limit.as_secs_f64());
    RemoteFailure::new(FailureKind::TimedOut, what)
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    const LONG: Duration = Duration::from_secs(300);

    fn run<F: Future>(work: F) -> F::Output {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().build().unwrap().block_on(work)
    }

    #[test]
    fn each_wait_has_the_whole_limit() {
        run(async {
            let mut timer = StallTimer::new(LONG);
            assert_eq!(timer.wait(ready(7)).await, Ok(7));
            assert!(timer.sleep.is_none(), "a part that is there needs no timer");
            // The timer of an earlier wait fires in the middle of this one.
            timer.sleep = Some(Box::pin(sleep(Duration::ZERO)));
            tokio::time::sleep(Duration::from_millis(2)).await;
            assert_eq!(timer.wait(tokio::task::yield_now()).await, Ok(()));
        });
    }

    #[test]
    fn a_wait_ends_at_the_limit() {
        run(async {
            let limit = Duration::from_millis(20);
            let mut timer = StallTimer::new(limit);
            for _ in 0..2 {
                let begun = Instant::now();
                let failure = timer.wait(pending::<()>()).await.unwrap_err();
                assert_eq!(failure.kind(), FailureKind::TimedOut);
                assert_eq!(failure.to_string(), "the server sent nothing for 0.0 s");
                assert!(begun.elapsed() >= limit);
            }
        });
    }

    #[test]
    fn a_limit_without_end_is_never_reached() {
        run(async {
            let mut timer = StallTimer::new(Duration::MAX);
            assert_eq!(timer.wait(sleep(Duration::from_millis(1))).await, Ok(()));
        });
    }
}
