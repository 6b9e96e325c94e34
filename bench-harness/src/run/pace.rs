//! The times at which operations start.
//!
//! At a given rate (open loop) each operation has an intended start, and its latency counts from there. So
//! the latency of operations that wait behind a stall includes the wait. The time spent watching the clock
//! is subtracted from the processor time. A backend that misses its rate is named in a warning and not
//! ranked.

use std::time::Duration;

use crate::measure::Clock;
use crate::result::Setting;

/// A thread stops sleeping this long before an operation and watches the clock, because a sleep may
/// take this much longer than requested.
const SPIN_NS: u64 = 100_000;

/// An open loop: operations start at given times, so that a stall counts for all operations that wait
/// behind it. (A closed loop starts each operation when the one before has ended.)
#[derive(Debug)]
pub(crate) struct Pace {
    clock: Clock,
    /// When the first operation is meant to start, in ticks.
    start: u64,
    times: Times,
    /// Ticks spent watching the clock, which is not the work of the backend.
    spun: u64,
}

/// When the operations are meant to start.
#[derive(Debug)]
enum Times {
    /// At a rate: this many ticks lie between two operations of this thread. Whole ticks would be wrong by
    /// half at a thousand million operations a second.
    Regular { interval: f64, operations: u64 },
    /// At the times of the job.
    OfTheJob,
}

impl Pace {
    /// Returns the pace of one of several threads that take turns; `None` for a closed loop.
    pub(crate) fn of(
        setting: &Setting,
        clock: &Clock,
        threads: u64,
        thread: u64,
        now: u64,
    ) -> Option<Self> {
        let Some(rate_per_s) = setting.rate_per_s else {
            let pace = Self { clock: *clock, start: now, times: Times::OfTheJob, spun: 0 };
            return setting.is_open_loop().then_some(pace);
        };
        let turn_ns = 1e9 / rate_per_s as f64;
        let second = clock.in_ticks(1e9) as f64;
        let interval = second / rate_per_s as f64 * threads as f64;
        Some(Self {
            clock: *clock,
            start: now + clock.in_ticks(turn_ns * thread as f64),
            times: Times::Regular { interval, operations: 0 },
            spun: 0,
        })
    }

    /// Waits for the time of the next operation, and returns it. `due_ns` returns the time of the next
    /// operation of the job.
    pub(crate) fn wait(&mut self, due_ns: impl FnOnce() -> Option<u64>) -> u64 {
        let intended = match &mut self.times {
            Times::Regular { interval, operations } => {
                let intended = self.start + (*interval * *operations as f64) as u64;
                *operations += 1;
                intended
            }
            Times::OfTheJob => match due_ns() {
                Some(due_ns) => self.start + self.clock.in_ticks(due_ns as f64),
                None => self.clock.ticks(),
            },
        };
        self.wait_until(intended);
        intended
    }

    /// Starts another pass: the times of the job count from now.
    pub(crate) fn restart(&mut self, intended: u64) -> u64 {
        match self.times {
            Times::Regular { .. } => intended,
            Times::OfTheJob => {
                self.start = self.clock.ticks();
                self.start
            }
        }
    }

    fn wait_until(&mut self, intended: u64) {
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
    }

    /// Returns the processor time that was spent waiting.
    pub(crate) fn spun_ns(&self) -> u64 {
        self.clock.to_ns(self.spun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_rate(rate_per_s: u64) -> Setting {
        Setting { rate_per_s: Some(rate_per_s), ..Setting::default() }
    }

    #[test]
    fn recorded_times_count_from_the_start_of_each_pass() {
        let clock = Clock::start();
        assert!(Pace::of(&Setting::default(), &clock, 1, 0, 0).is_none(), "a closed loop");
        let variant = Some(Setting::RECORDED_TIMES.to_owned());
        let setting = Setting { variant, ..Setting::default() };
        let now = clock.ticks();
        let mut pace = Pace::of(&setting, &clock, 1, 0, now).unwrap();
        let intended = pace.wait(|| Some(3_000_000));
        assert!(clock.to_ns(intended - now).abs_diff(3_000_000) < 1000);
        let again = pace.restart(intended);
        assert!(again >= intended);
        assert_eq!(pace.wait(|| Some(0)), again);
    }

    #[test]
    fn a_stall_counts_for_all_that_wait_behind_it() {
        let clock = Clock::start();
        let mut pace = Pace::of(&at_rate(1000), &clock, 1, 0, clock.ticks()).unwrap();
        let first = pace.wait(|| None);
        std::thread::sleep(Duration::from_millis(20));
        // Ten more operations were due during the stall; none of them waits.
        for number in 1..=10 {
            let intended = pace.wait(|| None);
            assert!(clock.to_ns(intended - first).abs_diff(number * 1_000_000) < 1000);
            assert!(clock.to_ns(clock.ticks() - intended) >= 9_000_000);
        }
    }

    #[test]
    fn nothing_starts_early_and_threads_take_turns() {
        let clock = Clock::start();
        let now = clock.ticks();
        for thread in 0..4 {
            let mut pace = Pace::of(&at_rate(200), &clock, 4, thread, now).unwrap();
            let intended = pace.wait(|| None);
            assert!(clock.to_ns(intended - now).abs_diff(thread * 5_000_000) < 1000);
        }
        assert!(clock.to_ns(clock.ticks() - now) >= 14_999_000);
    }
}
