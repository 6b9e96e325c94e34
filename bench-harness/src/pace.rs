//! When operations start.

use std::time::Duration;

use crate::measure::Clock;

/// How far ahead of its time a thread stops sleeping and watches the clock: a sleep may take this
/// much longer than asked.
const SPIN_NS: u64 = 100_000;

/// A closed loop starts each operation when the one before has ended; an open loop starts them at
/// a given rate, so that the ones that wait behind a stall count its time as theirs.
#[derive(Debug)]
pub(crate) enum Pace {
    Closed,
    Open {
        /// When the first one was meant to start.
        start_ns: u64,
        /// From one of this thread's to the next.
        interval_ns: f64,
        operations: u64,
        /// Time spent watching the clock, which is nobody's work.
        spun_ns: u64,
    },
}

impl Pace {
    /// For one thread of several that keep the rate together, taking turns.
    pub(crate) fn new(rate_per_s: Option<u64>, threads: u64, thread: u64, now_ns: u64) -> Self {
        let Some(rate) = rate_per_s else {
            return Self::Closed;
        };
        // Whole nanoseconds would be wrong by half at a thousand million a second.
        let turn_ns = 1e9 / rate as f64;
        Self::Open {
            start_ns: now_ns + (turn_ns * thread as f64) as u64,
            interval_ns: turn_ns * threads as f64,
            operations: 0,
            spun_ns: 0,
        }
    }

    /// Processor time that went into waiting.
    pub(crate) fn spun_ns(&self) -> u64 {
        match self {
            Self::Closed => 0,
            Self::Open { spun_ns, .. } => *spun_ns,
        }
    }

    /// Waits for the next operation's time, and says when it was meant to start. `now_ns` is the
    /// end of the one before.
    #[inline]
    pub(crate) fn wait(&mut self, clock: &Clock, now_ns: u64) -> u64 {
        match self {
            Self::Closed => now_ns,
            Self::Open { start_ns, interval_ns, operations, spun_ns } => {
                let intended_ns = *start_ns + (*interval_ns * *operations as f64) as u64;
                *operations += 1;
                *spun_ns += wait_until(clock, intended_ns);
                intended_ns
            }
        }
    }
}

/// Sleeps, then watches the clock; says for how long it watched.
fn wait_until(clock: &Clock, time_ns: u64) -> u64 {
    if let Some(sleep_ns) = time_ns.saturating_sub(clock.now_ns()).checked_sub(SPIN_NS) {
        std::thread::sleep(Duration::from_nanos(sleep_ns));
    }
    let watched_from_ns = clock.now_ns();
    let mut now_ns = watched_from_ns;
    while now_ns < time_ns {
        std::hint::spin_loop();
        now_ns = clock.now_ns();
    }
    now_ns - watched_from_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_counts_for_all_that_wait_behind_it() {
        let clock = Clock::start();
        let mut pace = Pace::new(Some(1000), 1, 0, clock.now_ns());
        let first_ns = pace.wait(&clock, 0);
        std::thread::sleep(Duration::from_millis(20));
        // Ten more were due during the stall: none waits, each counts from its own time.
        for number in 1..=10 {
            let intended_ns = pace.wait(&clock, 0);
            assert_eq!(intended_ns - first_ns, number * 1_000_000);
            assert!(clock.now_ns() - intended_ns >= 9_000_000);
        }
    }

    #[test]
    fn nothing_starts_early_and_threads_take_turns() {
        let clock = Clock::start();
        let now_ns = clock.now_ns();
        let starts: Vec<_> = (0..4)
            .map(|thread| Pace::new(Some(200), 4, thread, now_ns).wait(&clock, now_ns) - now_ns)
            .collect();
        assert_eq!(starts, [0, 5_000_000, 10_000_000, 15_000_000]);
        assert!(clock.now_ns() - now_ns >= 15_000_000);
    }
}
