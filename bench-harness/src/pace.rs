//! When operations start.

use std::time::{Duration, Instant};

/// How far ahead of its time a thread stops sleeping and watches the clock: a sleep may take this
/// much longer than asked.
const SPIN: Duration = Duration::from_micros(100);

/// A closed loop starts each operation when the one before has ended; an open loop starts them at
/// a given rate, so that the ones that wait behind a stall count its time as theirs.
#[derive(Debug)]
pub(crate) enum Pace {
    Closed,
    Open { next: Instant, interval: Duration },
}

impl Pace {
    /// For one thread of several that keep the rate together, taking turns.
    pub(crate) fn new(
        rate_per_s: Option<u64>,
        threads: u64,
        thread: u64,
        started: Instant,
    ) -> Self {
        let Some(rate) = rate_per_s else {
            return Self::Closed;
        };
        let turn = Duration::from_secs_f64(1.0 / rate as f64);
        let times = |count: u64| turn.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        Self::Open { next: started + times(thread), interval: times(threads) }
    }

    /// Waits for the next operation's time, and says when it was meant to start. `now` is the end
    /// of the one before.
    #[inline]
    pub(crate) fn wait(&mut self, now: Instant) -> Instant {
        match self {
            Self::Closed => now,
            Self::Open { next, interval } => {
                let intended = *next;
                *next += *interval;
                wait_until(intended);
                intended
            }
        }
    }
}

fn wait_until(time: Instant) {
    loop {
        let left = time.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        match left.checked_sub(SPIN) {
            Some(sleep) => std::thread::sleep(sleep),
            None => std::hint::spin_loop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_counts_for_all_that_wait_behind_it() {
        let started = Instant::now();
        let mut pace = Pace::new(Some(1000), 1, 0, started);
        let first = pace.wait(started);
        std::thread::sleep(Duration::from_millis(20));
        // Ten more were due during the stall: none waits, each counts from its own time.
        for number in 1..=10u32 {
            let intended = pace.wait(Instant::now());
            assert_eq!(intended - first, Duration::from_millis(number.into()));
            assert!(Instant::now() - intended >= Duration::from_millis(10));
        }
    }

    #[test]
    fn nothing_starts_early_and_threads_take_turns() {
        let started = Instant::now();
        let starts: Vec<_> = (0..4)
            .map(|thread| Pace::new(Some(200), 4, thread, started).wait(started) - started)
            .collect();
        assert_eq!(starts, [0, 5, 10, 15].map(Duration::from_millis));
        assert!(started.elapsed() >= Duration::from_millis(15));
    }
}
