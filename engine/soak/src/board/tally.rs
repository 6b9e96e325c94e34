//! The counters of a run.

use std::sync::atomic::{AtomicU64, Ordering};

/// The ways to read that the counters have room for.
pub(crate) const WAYS_MAX: usize = 16;

/// The kinds of sessions that the counters have room for.
const JOBS_MAX: usize = 8;

/// Things that are counted once for the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Truncations,
    Replacements,
    Appends,
    Deletions,
    Overwrites,
    CacheDrops,
    Forks,
    NestedForks,
    WorkersKilled,
    WorkersWithFewDescriptors,
    WorkersWithoutLockedMemory,
    WorkersWithoutRings,
    WorkersThatDropEverything,
    Signals,
    Sessions,
    Opens,
    TruncationsDuringReads,
    Unjudged,
}

impl Event {
    pub(crate) const ALL: [(Self, &'static str); 18] = [
        (Self::Truncations, "truncations"),
        (Self::Replacements, "replacements"),
        (Self::Appends, "appends"),
        (Self::Deletions, "deletions"),
        (Self::Overwrites, "overwritten in place"),
        (Self::CacheDrops, "files dropped from the page cache"),
        (Self::Forks, "forks of workers"),
        (Self::NestedForks, "forks by workers"),
        (Self::WorkersKilled, "workers killed"),
        (Self::WorkersWithFewDescriptors, "workers with few descriptors"),
        (Self::WorkersWithoutLockedMemory, "workers without locked memory"),
        (Self::WorkersWithoutRings, "workers that were refused io_uring"),
        (Self::WorkersThatDropEverything, "workers that dropped everything"),
        (Self::Signals, "signals"),
        (Self::Sessions, "sessions"),
        (Self::Opens, "opens"),
        (Self::TruncationsDuringReads, "reads during a truncation"),
        (Self::Unjudged, "reads not judged"),
    ];
}

/// The kinds of errors that readers got, and that the state of the files explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    PastEnd,
    UnexpectedEnd,
    Replaced,
    NotFound,
    Truncated,
    Changed,
    Format,
    OutsideFile,
    NoDescriptors,
    NoLockedMemory,
    RefusedRing,
}

impl Fault {
    pub(crate) const ALL: [(Self, &'static str); 11] = [
        (Self::PastEnd, "past the end"),
        (Self::UnexpectedEnd, "unexpected end"),
        (Self::Replaced, "replaced"),
        (Self::NotFound, "not found"),
        (Self::Truncated, "truncated"),
        (Self::Changed, "changed"),
        (Self::Format, "damaged"),
        (Self::OutsideFile, "outside the file"),
        (Self::NoDescriptors, "no descriptors"),
        (Self::NoLockedMemory, "no memory for a ring"),
        (Self::RefusedRing, "io_uring refused"),
    ];
}

/// The counters of one way to read.
#[repr(C)]
pub(crate) struct OfWay {
    reads: AtomicU64,
    bytes: AtomicU64,
    faults: [AtomicU64; Fault::ALL.len()],
}

/// All counters.
#[repr(C)]
pub(crate) struct Tally {
    events: [AtomicU64; Event::ALL.len()],
    ways: [OfWay; WAYS_MAX],
    /// Reads by the kind of session.
    jobs: [AtomicU64; JOBS_MAX],
}

impl Tally {
    pub(crate) fn count(&self, event: Event) {
        self.events[event as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The counter itself, for a signal handler.
    pub(crate) fn counter(&self, event: Event) -> &AtomicU64 {
        &self.events[event as usize]
    }

    pub(crate) fn events(&self, event: Event) -> u64 {
        self.events[event as usize].load(Ordering::Relaxed)
    }

    /// Counts reads whose bytes were right.
    pub(crate) fn count_reads(&self, way: usize, job: usize, reads: u64, bytes: u64) {
        self.jobs[job].fetch_add(reads, Ordering::Relaxed);
        self.ways[way].reads.fetch_add(reads, Ordering::Relaxed);
        self.ways[way].bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_fault(&self, way: usize, fault: Fault) {
        self.ways[way].faults[fault as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Reads and bytes of a way.
    pub(crate) fn reads(&self, way: usize) -> (u64, u64) {
        let OfWay { reads, bytes, .. } = &self.ways[way];
        (reads.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed))
    }

    /// Reads of one kind of sessions.
    pub(crate) fn reads_of_job(&self, job: usize) -> u64 {
        self.jobs[job].load(Ordering::Relaxed)
    }

    pub(crate) fn faults(&self, way: usize, fault: Fault) -> u64 {
        self.ways[way].faults[fault as usize].load(Ordering::Relaxed)
    }

    /// Reads and bytes of all ways.
    pub(crate) fn total(&self) -> (u64, u64) {
        let add = |sum: (u64, u64), way| {
            let (reads, bytes) = self.reads(way);
            (sum.0 + reads, sum.1 + bytes)
        };
        (0..WAYS_MAX).fold((0, 0), add)
    }
}
