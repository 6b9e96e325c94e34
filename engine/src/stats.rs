//! Counters of an engine's reads.

use std::fmt;

use ringmain_backends::{BackendStats, LatencyHistogram, PoolStats, Traffic};

/// The result of [`Engine::stats`](crate::Engine::stats).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineStats {
    /// The number of batches; a single read counts as one.
    pub batches: u64,
    /// The number and size of all reads.
    pub total: Traffic,
    /// The latency of batches: all with eight reads or more, and one in sixteen of the smaller
    /// ones.
    pub latency: LatencyHistogram,
    /// The number of reads that each way of reading served.
    pub ways: BackendStats,
    /// The use of the pool of the caller's buffers.
    pub pool: PoolStats,
}

impl fmt::Display for EngineStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { batches, total, latency, ways, pool } = self;
        write!(f, "{} in {batches} batches", Amount(total))?;
        write!(f, "; page cache: {}; device: {}", Amount(&ways.cache), Amount(&ways.device))?;
        if ways.bounced.reads > 0 {
            write!(f, ", of which through aligned memory: {}", Amount(&ways.bounced))?;
        }
        for (name, count) in [
            ("page cache queries", ways.questions),
            ("wrong estimates", ways.wrong_estimates),
            ("retries", ways.retries),
            ("files read through the page cache alone", ways.fallbacks),
        ] {
            if count > 0 {
                write!(f, "; {name}: {count}")?;
            }
        }
        if let (Some(half), Some(most)) = (latency.quantile(0.5), latency.quantile(0.99)) {
            write!(f, "; a batch takes {half:.1?} (median), {most:.1?} (99 %)")?;
        }
        write!(f, "; {} files open", ways.handles.open)?;
        write!(f, "; {} KiB of buffers in use", pool.in_use_bytes >> 10)
    }
}

struct Amount<'a>(&'a Traffic);

impl fmt::Display for Amount<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} reads, {:.1} MB", self.0.reads, self.0.bytes as f64 / 1e6)
    }
}
