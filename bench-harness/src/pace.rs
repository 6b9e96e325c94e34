//! When operations start.

use std::time::Duration;

use crate::measure::Clock;

/// How far ahead of its time a thread stops sleeping and watches the clock: a sleep may take this
/// much longer than asked.
const SPIN_NS: u64 = 100_000;

/// An open loop: operations start at a given rate, so that those that wait behind a stall count its
/// time as theirs. (A closed loop starts each when the one before has ended.)
#[derive(Debug)]
pub(crate) struct Pace {
    clock: Clock,
    /// When the first one is meant to start, in ticks.
    start: u64,
    /// Ticks from one of this thread's to the next. Whole ones would be wrong by half at a thousand
    /// million a second.
    interval: f64,
    operations: u64,
    /// Ticks spent watching the clock, which is nobody's work.
    spun: u64,
}

impl Pace {
    /// For one thread of several that keep the rate together, taking turns.
    pub(crate) fn new(clock: &Clock, rate_per_s: u64, threads: u64, thread: u64, now: u64) -> Self {
        let turn_ns = 1e9 / rate_per_s as f64;
        let second = clock.in_ticks(1e9) as f64;
        Self {
            clock: *clock,
            start: now + clock.in_ticks(turn_ns * thread as f64),
            interval: second / rate_per_s as f64 * threads as f64,
            operations: 0,
            spun: 0,
        }
    }

    /// Waits for the next operation's time, and says when it was meant to start.
    pub(crate) fn wait(&mut self) -> u64 {
        let intended = self.start + (self.interval * self.operations as f64) as u64;
        self.operations += 1;
        let left_ns = self.clock.to_ns(intended.saturating_sub(self.clock.ticks()));
        if let Some(sleep_ns) = left_ns.checked_sub(SPIN_NS) {
            std::thread::sleep(Duration::from_nanos(sleep_ns));
        }
        let watched_from = self.clock.ticks();
        let mut now = watched_from;
        while now < intended {
            std::hint::spin_loop();
            now = self.clock.ticks();
        }
        self.spun += now - watched_from;
        intended
    }

    /// Processor time that went into waiting.
    pub(crate) fn spun_ns(&self) -> u64 {
        self.clock.to_ns(self.spun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_counts_for_all_that_wait_behind_it() {
        let clock = Clock::start();
        let mut pace = Pace::new(&clock, 1000, 1, 0, clock.ticks());
        let first = pace.wait();
        std::thread::sleep(Duration::from_millis(20));
        // Ten more were due during the stall: none waits, each counts from its own time.
        for number in 1..=10 {
            let intended = pace.wait();
            assert!(clock.to_ns(intended - first).abs_diff(number * 1_000_000) < 1000);
            assert!(clock.to_ns(clock.ticks() - intended) >= 9_000_000);
        }
    }

    #[test]
    fn nothing_starts_early_and_threads_take_turns() {
        let clock = Clock::start();
        let now = clock.ticks();
        for thread in 0..4 {
            let intended = Pace::new(&clock, 200, 4, thread, now).wait();
            assert!(clock.to_ns(intended - now).abs_diff(thread * 5_000_000) < 1000);
        }
        assert!(clock.to_ns(clock.ticks() - now) >= 14_999_000);
    }
}
