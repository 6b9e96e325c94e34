//! The counters of a cache.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use ringmain_backends::Traffic;

/// Counters of a cache in this process: the result of [`DiskCache::stats`](super::DiskCache::stats).
///
/// A read that crosses the end of a block counts once for each block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskCacheStats {
    /// Parts of reads that came from cached blocks.
    pub hits: Traffic,
    /// Parts of reads that did not.
    pub misses: Traffic,
    /// Reads of the store: whole blocks, and parts of reads whose blocks were not cached.
    pub store: Traffic,
    /// Blocks that were written to the folder.
    pub stored: Traffic,
    /// Blocks that were removed to make room.
    pub evicted: Traffic,
    /// Parts of reads whose blocks were not cached because the cache is full of blocks that are in use.
    pub not_admitted: u64,
    /// Blocks that were damaged: a checksum or the length was wrong, or the device failed. They were removed.
    pub damaged: u64,
    /// Blocks that another process removed or replaced while they were about to be read.
    pub vanished: u64,
    /// Why blocks are not stored or not read now; `None` if all is well. Ten seconds after a failure they may be again, so it
    /// is no longer reported unless another one followed.
    pub degraded: Option<String>,
}

/// A sentence for people.
impl fmt::Display for DiskCacheStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hits, misses, store, stored, evicted, .. } = self;
        let amount = |f: &mut fmt::Formatter<'_>, what, traffic: &Traffic| {
            write!(f, "{what}: {}, {:.1} MB", traffic.reads, traffic.bytes as f64 / 1e6)
        };
        amount(f, "from the cache", hits)?;
        amount(f, "; not in the cache", misses)?;
        amount(f, "; read from the store", store)?;
        amount(f, "; stored blocks", stored)?;
        amount(f, "; evicted", evicted)?;
        let rest = [
            ("not admitted", self.not_admitted),
            ("damaged", self.damaged),
            ("vanished", self.vanished),
        ];
        for (what, count) in rest.into_iter().filter(|(_, count)| *count > 0) {
            write!(f, "; {what}: {count}")?;
        }
        match &self.degraded {
            Some(reason) => write!(f, "; {reason}"),
            None => Ok(()),
        }
    }
}

/// Reads or blocks, and their bytes.
#[derive(Debug, Default)]
pub(super) struct Count {
    reads: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    pub(super) fn add(&self, bytes: u64) {
        self.add_many(1, bytes);
    }

    pub(super) fn add_many(&self, reads: u64, bytes: u64) {
        self.reads.fetch_add(reads, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn get(&self) -> Traffic {
        let [reads, bytes] = [&self.reads, &self.bytes].map(|it| it.load(Ordering::Relaxed));
        Traffic { reads, bytes }
    }
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) hits: Count,
    pub(super) misses: Count,
    pub(super) store: Count,
    pub(super) stored: Count,
    pub(super) evicted: Count,
    pub(super) not_admitted: AtomicU64,
    pub(super) damaged: AtomicU64,
    pub(super) vanished: AtomicU64,
}

impl Counters {
    pub(super) fn get(&self, degraded: Option<String>) -> DiskCacheStats {
        let [not_admitted, damaged, vanished] = [&self.not_admitted, &self.damaged, &self.vanished]
            .map(|it| it.load(Ordering::Relaxed));
        DiskCacheStats {
            hits: self.hits.get(),
            misses: self.misses.get(),
            store: self.store.get(),
            stored: self.stored.get(),
            evicted: self.evicted.get(),
            not_admitted,
            damaged,
            vanished,
            degraded,
        }
    }
}
