//! Instruments: what is measured of a process and of the machine, one file each.

pub(crate) mod cache;
mod clock;
pub(crate) mod host;
mod latency;
mod memory;
mod process;
mod sample;
mod tlb;

pub(crate) use clock::Clock;
pub(crate) use latency::{Latencies, percentiles};
pub(crate) use memory::MemorySampler;
pub(crate) use process::Usage;
pub(crate) use tlb::TlbMisses;
