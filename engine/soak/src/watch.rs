//! Watches the crews: their memory, descriptors and threads, and whether all of them make progress.

use std::fs;
use std::time::Duration;

use crate::board::Board;
use crate::readers::{JOBS, name};

/// Five minutes of samples. A crew is still opening files and starting threads in the first minutes, above
/// all on a busy machine, so a shorter run cannot tell growth from that.
const SAMPLES_MIN: usize = 600;

/// The resources of a crew at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) anonymous_kib: u64,
    pub(crate) descriptors: u64,
    pub(crate) threads: u64,
}

impl Sample {
    /// The resources of a process; `None` if it has ended.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let number = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name))?;
            value.trim_start_matches(':').trim().trim_end_matches(" kB").parse().ok()
        };
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64;
        Some(Self { anonymous_kib: number("RssAnon")?, descriptors, threads: number("Threads")? })
    }
}

/// A resource that must not grow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resource {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    get: fn(&Sample) -> u64,
    /// How far the second half may be above the first, beside a tenth of it.
    slack: u64,
}

/// The resources that are watched.
pub(crate) const RESOURCES: [Resource; 3] = [
    Resource {
        name: "anonymous memory",
        unit: "MiB",
        get: |sample| sample.anonymous_kib >> 10,
        slack: 16,
    },
    Resource { name: "descriptors", unit: "", get: |sample| sample.descriptors, slack: 12 },
    Resource { name: "threads", unit: "", get: |sample| sample.threads, slack: 16 },
];

/// A resource in one half of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Half {
    pub(crate) median: u64,
    pub(crate) peak: u64,
}

/// A resource in both halves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Halves {
    pub(crate) resource: Resource,
    pub(crate) first: Half,
    pub(crate) second: Half,
}

impl Halves {
    /// Compares the halves of a run. The first tenth is left out, in which caches fill up. `None` for a run
    /// that is too short to compare.
    pub(crate) fn of(samples: &[Sample], resource: Resource) -> Option<Self> {
        let steady = samples.get(samples.len() / 10..).filter(|_| samples.len() >= SAMPLES_MIN)?;
        let (first, second) = steady.split_at(steady.len() / 2);
        Some(Self { resource, first: half(first, resource)?, second: half(second, resource)? })
    }

    /// The middle of the second half is above that of the first. Peaks are left out of the comparison: a
    /// short one says nothing, and one that stays moves the middle.
    pub(crate) fn has_grown(&self) -> bool {
        let limit = self.first.median + self.first.median / 10 + self.resource.slack;
        self.second.median > limit
    }
}

fn half(samples: &[Sample], resource: Resource) -> Option<Half> {
    let mut values: Vec<u64> = samples.iter().map(resource.get).collect();
    values.sort_unstable();
    let median = *values.get(values.len() / 2)?;
    Some(Half { median, peak: *values.last()? })
}

/// Describes the threads that have made no progress for this long.
pub(crate) fn hung(board: &Board, limit: Duration) -> Vec<String> {
    let mut texts = Vec::new();
    for beat in &board.beats {
        let Some((pid, tid)) = beat.owner() else { continue };
        let age = beat.age();
        // A process that has ended without a word is found by its parent.
        if age < limit || !fs::exists(format!("/proc/{pid}")).unwrap_or(false) {
            continue;
        }
        let (job, way) = beat.work();
        let job = JOBS.get(job).map_or("?", |(name, _)| name);
        let of_thread = |what: &str| {
            let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/{what}"));
            text.unwrap_or_default().trim().replace('\n', " < ")
        };
        texts.push(format!(
            "HANG: process {pid}, thread {tid} has made no progress for {} s; it reads {job} with {}; it \
             waits in {} (system call {}; {})",
            age.as_secs(),
            name(way),
            of_thread("wchan"),
            of_thread("syscall"),
            of_thread("stack"),
        ));
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(descriptors: impl Fn(u64) -> u64) -> Vec<Sample> {
        (0..SAMPLES_MIN as u64)
            .map(|at| Sample { descriptors: descriptors(at), ..Sample::default() })
            .collect()
    }

    #[test]
    fn a_leak_is_growth_and_a_peak_is_not() {
        let descriptors = RESOURCES[1];
        let grown = |samples: &[Sample]| Halves::of(samples, descriptors).unwrap().has_grown();
        assert!(grown(&samples(|at| 50 + at)));
        assert!(!grown(&samples(|at| 50 + at % 20)));
        assert!(!grown(&samples(|at| if at == 450 { 400 } else { 50 })));
        assert!(Halves::of(&samples(|at| at)[1..], descriptors).is_none());
    }
}
