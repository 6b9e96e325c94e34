//! Figures about the reads of a trace: their number and sizes, whether they are in order, and how often the same
//! bytes are read.

use std::collections::{BTreeSet, HashMap};

use ringmain::ReadBy;
use serde::Serialize;

use super::reuse::{CacheShare, Reuse, Uses};
use super::{Trace, each_new_part};
use crate::text::format::{counted, percent, seconds};
use crate::text::size::format_bytes_short;

/// The figures of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Pattern {
    pub(crate) processes: usize,
    pub(crate) threads: usize,
    pub(crate) reads: usize,
    /// Those that were page faults of mappings.
    pub(crate) page_faults: usize,
    pub(crate) read_bytes: u64,
    /// Bytes that were read at least once: the working set.
    pub(crate) distinct_bytes: u64,
    /// `read_bytes` / `distinct_bytes`.
    pub(crate) times_read: f64,
    /// The share of reads that begin where the thread's last read of the file ended.
    pub(crate) sequential_share: f64,
    pub(crate) size_bytes_median: u64,
    pub(crate) size_bytes_p90: u64,
    pub(crate) size_bytes_max: u64,
    /// From the start of the trace to the end of the last read.
    pub(crate) seconds: f64,
    /// The time that all threads together spent in reads; `None` if the trace does not say.
    pub(crate) reading_seconds: Option<f64>,
    pub(crate) cache: Vec<CacheShare>,
    #[serde(flatten)]
    pub(crate) reuse: Reuse,
    pub(crate) by_file: Vec<FilePattern>,
}

/// The figures of one file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FilePattern {
    /// Its index in [`Trace::files`].
    #[serde(skip)]
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) reads: usize,
    pub(crate) bytes: u64,
    pub(crate) times_read: f64,
    pub(crate) sequential_share: f64,
    /// How often the program went through the file, from a read of everything or much of it to the next.
    pub(crate) passes: u32,
}

/// Figures that are added up, for the whole trace or for a file.
#[derive(Clone, Debug, Default)]
struct Sums {
    reads: usize,
    sequential: usize,
    bytes: u64,
    distinct_bytes: u64,
}

impl Sums {
    fn times_read(&self) -> f64 {
        self.bytes as f64 / self.distinct_bytes.max(1) as f64
    }

    fn sequential_share(&self) -> f64 {
        self.sequential as f64 / self.reads.max(1) as f64
    }
}

impl Pattern {
    pub(crate) fn of(trace: &Trace) -> Self {
        let (by_file, uses) = (sum_by_file(trace), Uses::of(trace));
        let all = by_file.iter().fold(Sums::default(), |all, file| Sums {
            reads: all.reads + file.reads,
            sequential: all.sequential + file.sequential,
            bytes: all.bytes.saturating_add(file.bytes),
            distinct_bytes: all.distinct_bytes.saturating_add(file.distinct_bytes),
        });
        let mut sizes: Vec<u64> = trace.reads().iter().map(|read| read.bytes).collect();
        sizes.sort_unstable();
        let size_at = |share: f64| {
            let at = (sizes.len() as f64 * share).ceil() as usize;
            sizes.get(at.saturating_sub(1)).copied().unwrap_or(0)
        };
        let heads = || trace.batches().map(|batch| batch.head);
        let threads: BTreeSet<u32> = heads().map(|head| head.thread).collect();
        let process_of = |thread: &u32| trace.process_of(*thread).ok_or(*thread);
        let processes: BTreeSet<_> = threads.iter().map(process_of).collect();
        let is_known = |process: &Result<u32, u32>| process.is_ok();
        let end_us = heads().map(|head| head.at_us.saturating_add(head.took_us)).max().unwrap_or(0);
        let took_us = heads().fold(0_u64, |sum, head| sum.saturating_add(head.took_us));
        let faults = trace.batches().filter(|batch| batch.head.by == ReadBy::Fault);
        Self {
            processes: if processes.iter().all(is_known) { processes.len() } else { 1 },
            threads: threads.len(),
            reads: all.reads,
            page_faults: faults.map(|batch| batch.reads.len()).sum(),
            read_bytes: all.bytes,
            distinct_bytes: all.distinct_bytes,
            times_read: all.times_read(),
            sequential_share: all.sequential_share(),
            size_bytes_median: size_at(0.5),
            size_bytes_p90: size_at(0.9),
            size_bytes_max: size_at(1.0),
            seconds: end_us as f64 / 1e6,
            reading_seconds: (took_us > 0).then_some(took_us as f64 / 1e6),
            cache: uses.cache_shares(),
            by_file: file_patterns(trace, &by_file, &uses.passes),
            reuse: uses.reuse,
        }
    }
}

impl Pattern {
    /// The most important figures in sentences.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let bytes = |bytes: u64| format_bytes_short(bytes as f64);
        let found = self.cache.iter().map(|CacheShare { cache_bytes, found_share }| {
            format!("{} {}", bytes(*cache_bytes), percent(*found_share))
        });
        let mut sentences = vec![
            format!(
                "{} of {}, {} in {}, by {} of {}",
                counted(self.reads, "read"),
                counted(self.by_file.len(), "file"),
                bytes(self.read_bytes),
                seconds(self.seconds),
                counted(self.threads, "thread"),
                match self.processes {
                    1 => "1 process".to_owned(),
                    processes => format!("{processes} processes"),
                },
            ),
            format!(
                "{} of the reads begin where the last one ended",
                percent(self.sequential_share)
            ),
            format!(
                "half of the reads have at most {}, the largest has {}",
                bytes(self.size_bytes_median),
                bytes(self.size_bytes_max),
            ),
            format!(
                "{} are read at least once, and {:.1} times on average",
                bytes(self.distinct_bytes),
                self.times_read,
            ),
            format!(
                "the share of blocks that a cache would have had, by its size: {}",
                found.collect::<Vec<_>>().join(", ")
            ),
        ];
        if let Some(sentence) = self.reuse.sentence() {
            sentences.push(sentence);
        }
        if self.page_faults > 0 {
            sentences.push(format!(
                "{} by page faults of mappings, each counted as one page; the kernel may have read more",
                counted(self.page_faults, "read"),
            ));
        }
        if let Some(reading_seconds) = self.reading_seconds {
            sentences.push(format!(
                "all threads together spent {} in these reads",
                seconds(reading_seconds)
            ));
        }
        sentences
    }
}

/// The files with the most bytes come first.
fn file_patterns(trace: &Trace, sums: &[Sums], passes: &[u32]) -> Vec<FilePattern> {
    let patterns =
        trace.files.iter().zip(sums).enumerate().map(|(index, (file, sums))| FilePattern {
            index,
            name: file.path.display().to_string(),
            reads: sums.reads,
            bytes: sums.bytes,
            times_read: sums.times_read(),
            sequential_share: sums.sequential_share(),
            passes: passes[index],
        });
    let mut patterns: Vec<_> = patterns.collect();
    patterns.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    patterns
}

fn sum_by_file(trace: &Trace) -> Vec<Sums> {
    let mut sums = vec![Sums::default(); trace.files.len()];
    let mut ends: HashMap<(u32, u32), u64> = HashMap::new();
    for batch in trace.batches() {
        for read in batch.reads {
            let end = read.offset.saturating_add(read.bytes);
            let before = ends.insert((batch.head.thread, read.file), end);
            let sum = &mut sums[read.file as usize];
            sum.reads += 1;
            sum.bytes = sum.bytes.saturating_add(read.bytes);
            sum.sequential += usize::from(before == Some(read.offset));
        }
    }
    each_new_part(trace.reads(), |file, bytes| sums[file as usize].distinct_bytes += bytes);
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::of(&Trace::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn two_epochs_of_a_file_in_order() {
        let mut text = "ringmain recording 2\nf 0 /a\nt 0 50\n".to_owned();
        for at in 0..200_u64 {
            let offset = (at % 100) << 20;
            text += &format!("b {} 7 0 0 {offset} 1048576\n", at * 10);
        }
        let found = pattern(&text);
        assert_eq!((found.processes, found.threads, found.reads), (1, 1, 200));
        assert_eq!((found.read_bytes, found.distinct_bytes), (200 << 20, 100 << 20));
        assert_eq!((found.times_read, found.sequential_share), (2.0, 198.0 / 200.0));
        assert_eq!((found.seconds, found.reading_seconds), (0.001_997, Some(0.0014)));
        // In a loop over more than it holds, such a cache has nothing.
        let shares: Vec<_> =
            found.cache.iter().map(|s| (s.cache_bytes >> 20, s.found_share)).collect();
        assert_eq!(shares, [(16, 0.0), (64, 0.0), (256, 0.5)]);
    }

    #[test]
    fn overlapping_reads_of_two_files() {
        let text = "ringmain recording 1\nf 0 /a\nf 1 /b\n\
                    b 0 0 0 0 100 1 0 10\nb 5 1 0 50 100\nb 9 1 0 10 20\n";
        let found = pattern(text);
        assert_eq!((found.read_bytes, found.distinct_bytes), (230, 160));
        assert_eq!((found.processes, found.threads), (1, 2));
        assert_eq!(found.reading_seconds, None);
        assert_eq!(
            (found.size_bytes_median, found.size_bytes_p90, found.size_bytes_max),
            (20, 100, 100)
        );
        assert_eq!(found.by_file[0].name, "/a");
        assert_eq!((found.by_file[0].reads, found.by_file[1].bytes), (3, 10));
    }

    /// The blocks around small reads are more than the bytes of the reads.
    #[test]
    fn caches_are_listed_up_to_one_that_holds_every_block() {
        let mut text = "ringmain recording 1\nf 0 /a\n".to_owned();
        for at in 0..20_000_u64 {
            text += &format!("b 0 0 0 {} 100\n", (at % 10_000) * 4096);
        }
        let last = pattern(&text).cache.pop().unwrap();
        assert_eq!((last.cache_bytes >> 20, last.found_share), (64, 0.5));
    }
}
