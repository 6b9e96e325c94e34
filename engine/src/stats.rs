//! What an engine has done so far.

use std::fmt;

use ringmain_backends::{BackendStats, LatencyHistogram, PoolStats, Traffic};

/// What [`Engine::stats`](crate::Engine::stats) tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineStats {
    /// Batches; a read by itself is one.
    pub batches: u64,
    /// All reads and their bytes.
    pub total: Traffic,
    /// How long batches took: all with eight reads and more, and one in sixteen of the smaller ones.
    pub latency: LatencyHistogram,
    /// The ways that the reads went.
    pub ways: BackendStats,
    /// The pool that buffers are handed out from.
    pub pool: PoolStats,
}

impl fmt::Display for EngineStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { batches, total, latency, ways, pool } = self;
        write!(f, "{} in {batches} batches", Amount(total))?;
        write!(f, "; page cache: {}; device: {}", Amount(&ways.cache), Amount(&ways.device))?;
        if ways.bounced.reads > 0 {
            write!(f, ", of these through aligned memory: {}", Amount(&ways.bounced))?;
        }
        for (name, count) in [
            ("questions about the page cache", ways.questions),
            ("wrong estimates", ways.wrong_estimates),
            ("retries", ways.retries),
            ("files that refuse direct reads", ways.fallbacks),
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
