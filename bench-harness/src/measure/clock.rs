//! The clock of the measured loop: nanoseconds since it was made.

use std::time::{Duration, Instant};

/// How long two clocks are compared for at least. Reading them takes some 50 ns, so the rate is
/// known to a few parts in 100 000.
const CALIBRATION: Duration = Duration::from_millis(2);

/// A clock that costs some 10 ns to read where the processor's counter can be used, 25 elsewhere.
/// A warm read of 4 KiB takes a microsecond, and measuring must not cost two hundredths of that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started: Instant,
    counter: Option<Counter>,
}

/// The processor's time-stamp counter at the start, and what one tick is worth.
#[derive(Clone, Copy, Debug)]
struct Counter {
    start: u64,
    /// Nanoseconds a tick, times 2³².
    scale: u64,
}

impl Clock {
    /// Takes two milliseconds to learn the rate of the counter.
    pub(crate) fn start() -> Self {
        let (started, start) = (Instant::now(), ticks());
        let counter = start.filter(|_| kernel_trusts_counter()).and_then(|start| {
            std::thread::sleep(CALIBRATION);
            let elapsed_ns = started.elapsed().as_nanos();
            let elapsed_ticks = ticks()?.checked_sub(start)?;
            let scale = (elapsed_ns << 32).checked_div(u128::from(elapsed_ticks))?;
            Some(Counter { start, scale: u64::try_from(scale).ok()? })
        });
        Self { started, counter }
    }

    /// Nanoseconds since the start.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        if let Some(Counter { start, scale }) = self.counter
            && let Some(now) = ticks()
        {
            let elapsed = u128::from(now.wrapping_sub(start));
            return ((elapsed * u128::from(scale)) >> 32) as u64;
        }
        self.started.elapsed().as_nanos() as u64
    }
}

/// Whether the kernel itself keeps time by the counter: then it ticks evenly and is the same on
/// every core.
fn kernel_trusts_counter() -> bool {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    std::fs::read_to_string(path).is_ok_and(|name| name.trim() == "tsc")
}

/// The processor's counter, where it has one that can be read from here.
#[cfg(target_arch = "x86_64")]
#[inline]
#[allow(unsafe_code)]
fn ticks() -> Option<u64> {
    // SAFETY: every x86-64 processor has the instruction, and it touches no memory. A system that
    // forbids it to programs does not keep time by it in `clock_gettime` either.
    Some(unsafe { std::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn ticks() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_time_and_never_runs_back() {
        let clock = Clock::start();
        let (started, started_ns) = (Instant::now(), clock.now_ns());
        let mut last_ns = started_ns;
        while started.elapsed() < Duration::from_millis(50) {
            let now_ns = clock.now_ns();
            assert!(now_ns >= last_ns, "{now_ns} after {last_ns}");
            last_ns = now_ns;
        }
        let exact_ns = started.elapsed().as_nanos() as f64;
        let found_ns = (clock.now_ns() - started_ns) as f64;
        assert!((found_ns / exact_ns - 1.0).abs() < 0.01, "{found_ns} ns for {exact_ns}");
    }

    #[test]
    fn without_the_counter_it_works_too() {
        let clock = Clock { started: Instant::now(), counter: None };
        std::thread::sleep(Duration::from_millis(5));
        assert!((5_000_000..5_000_000_000).contains(&clock.now_ns()));
    }
}
