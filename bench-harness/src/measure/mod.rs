//! What is measured of a process, one instrument a file.

pub(crate) mod cache;
mod latency;
mod process;
mod rss;
mod tlb;

pub(crate) use latency::Latencies;
pub(crate) use process::Usage;
pub(crate) use rss::RssSampler;
pub(crate) use tlb::TlbMisses;
