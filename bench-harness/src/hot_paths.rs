//! The private parts that `benches/hot_paths.rs` measures. They are not part of the public interface and may change.

use crate::measure::{Clock, Latencies};

/// The work of the measured loop after each operation.
#[derive(Debug)]
pub struct Instruments {
    clock: Clock,
    latencies: Latencies,
}

impl Instruments {
    /// Starts a clock, and a histogram without latencies.
    pub fn start() -> Self {
        Self { clock: Clock::start(), latencies: Latencies::new() }
    }

    /// Reads the clock.
    #[inline]
    pub fn ticks(&self) -> u64 {
        self.clock.ticks()
    }

    /// Counts a latency.
    #[inline]
    pub fn record(&mut self, ticks: u64) {
        self.latencies.record(ticks);
    }
}
