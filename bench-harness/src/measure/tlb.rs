//! Data-TLB load misses, by perf events.

use perf_event::events::{Cache, CacheId, CacheOp, CacheResult};
use perf_event::{Builder, Counter};

/// A running count for this thread and the threads it starts; `None` if the machine does not count.
#[derive(Debug)]
pub(crate) struct TlbMisses(Option<Counter>);

impl TlbMisses {
    /// Starts to count.
    pub(crate) fn start() -> Self {
        let event =
            Cache { which: CacheId::DTLB, operation: CacheOp::READ, result: CacheResult::MISS };
        // Count in the kernel too if that is allowed: `pread` copies there, `mmap` does not.
        let open =
            |excluded| Builder::new(event.clone()).inherit(true).exclude_kernel(excluded).build();
        let mut counter = open(false).or_else(|_| open(true)).ok();
        // Virtual machines often let a counter be made and refuse to run it.
        if counter.as_mut().is_some_and(|counter| counter.enable().is_err()) {
            counter = None;
        }
        Self(counter)
    }

    /// Returns the count; `None` if the counter never ran, which reads as 0.
    pub(crate) fn finish(self) -> Option<u64> {
        let mut counter = self.0?;
        counter.disable().ok()?;
        counter.read().ok().filter(|misses| *misses > 0)
    }
}
