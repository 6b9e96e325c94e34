//! The clock of the measured loop.
//!
//! It is read once for each operation: the end of one operation is the start of the next. If the
//! kernel itself keeps time by the processor's counter, so does this clock. Latencies are counted in
//! HdrHistogram's buckets, without its bookkeeping. `ringmain overhead` measures what this costs.

use std::time::{Duration, Instant};

/// How long the two clocks are compared. Reading them takes about 50 ns, so the rate is known to a few
/// parts in 100 000.
const CALIBRATION: Duration = Duration::from_millis(2);

/// A clock that takes about 10 ns to read if the processor's counter can be used, else 30 ns. A warm
/// read of 4 KiB takes a microsecond, and measuring must not cost 2 % of that. So the measured loop
/// counts in ticks, which are converted to nanoseconds afterwards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started: Instant,
    /// Whether the processor's counter is read instead of the system's clock.
    reads_counter: bool,
    ns_per_tick: f64,
}

impl Clock {
    /// Takes two milliseconds to learn the rate of the counter.
    pub(crate) fn start() -> Self {
        let without = Self { started: Instant::now(), reads_counter: false, ns_per_tick: 1.0 };
        if counter().is_none() || !kernel_trusts_counter() {
            return without;
        }
        let read = || counter().unwrap_or(0);
        let (started, start) = at_once(read);
        std::thread::sleep(CALIBRATION);
        let (ended, end) = at_once(read);
        match end.checked_sub(start) {
            Some(ticks) if ticks > 0 => {
                let ns_per_tick = (ended - started).as_nanos() as f64 / ticks as f64;
                Self { started, reads_counter: true, ns_per_tick }
            }
            _ => without,
        }
    }

    /// Returns the time in ticks since a fixed moment.
    #[inline]
    pub(crate) fn ticks(&self) -> u64 {
        if self.reads_counter
            && let Some(ticks) = counter()
        {
            return ticks;
        }
        self.started.elapsed().as_nanos() as u64
    }

    /// Converts ticks to nanoseconds.
    pub(crate) fn to_ns(self, ticks: u64) -> u64 {
        (ticks as f64 * self.ns_per_tick) as u64
    }

    /// Converts nanoseconds to ticks.
    pub(crate) fn in_ticks(self, ns: f64) -> u64 {
        (ns / self.ns_per_tick) as u64
    }
}

/// Reads the system's clock and the ticks at the same moment. A thread may lose the processor between
/// the two, so the closest of several pairs is returned.
fn at_once(ticks: impl Fn() -> u64) -> (Instant, u64) {
    let look = || {
        let (before, now, after) = (ticks(), Instant::now(), ticks());
        let apart = after.saturating_sub(before);
        (apart, now, before + apart / 2)
    };
    let (_, now, ticks) =
        (0..16).map(|_| look()).min_by_key(|(apart, ..)| *apart).unwrap_or_else(look);
    (now, ticks)
}

/// Returns whether the kernel itself keeps time by the counter: then it ticks evenly and is the same
/// on every core.
fn kernel_trusts_counter() -> bool {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    std::fs::read_to_string(path).is_ok_and(|name| name.trim() == "tsc")
}

/// Reads the processor's counter, if it has one.
#[cfg(target_arch = "x86_64")]
#[inline]
#[allow(unsafe_code)]
fn counter() -> Option<u64> {
    // SAFETY: every x86-64 processor has the instruction, and it touches no memory. A system that
    // forbids it to programs does not keep time by it in `clock_gettime` either.
    Some(unsafe { std::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn counter() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_keeps_time_and_never_runs_back() {
        let clock = Clock::start();
        let (started, start) = at_once(|| clock.ticks());
        let mut last = start;
        while started.elapsed() < Duration::from_millis(50) {
            let now = clock.ticks();
            assert!(now >= last, "{now} after {last}");
            last = now;
        }
        let (ended, end) = at_once(|| clock.ticks());
        let exact_ns = (ended - started).as_nanos() as f64;
        let found_ns = clock.to_ns(end - start) as f64;
        assert!((found_ns / exact_ns - 1.0).abs() < 0.01, "{found_ns} ns for {exact_ns}");
        assert!(clock.to_ns(clock.in_ticks(1e9)).abs_diff(1_000_000_000) < 10);
    }

    #[test]
    fn the_clock_works_without_the_counter() {
        let clock = Clock { started: Instant::now(), reads_counter: false, ns_per_tick: 1.0 };
        std::thread::sleep(Duration::from_millis(5));
        assert!((5_000_000..120_000_000_000).contains(&clock.to_ns(clock.ticks())));
    }
}
