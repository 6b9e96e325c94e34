//! How often and how soon a program reads the same bytes again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;

use serde::Serialize;

use super::{Trace, TraceRead};
use crate::text::format::percent;

/// The share of the blocks that were read that a cache of a size would have held, if it drops the block that was
/// unused for longest (LRU).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct CacheShare {
    pub(crate) cache_bytes: u64,
    pub(crate) found_share: f64,
}

/// The shares of the blocks that were read for the first time, again in the same pass over their file, and again in a
/// later pass; and how much other data was read between two reads of a block.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Reuse {
    #[serde(rename = "first_use_share")]
    pub(crate) first_share: f64,
    pub(crate) within_passes_share: f64,
    pub(crate) between_passes_share: f64,
    /// The reads of blocks that were read before, in powers of four.
    #[serde(rename = "reuse_distances")]
    pub(crate) distances: Vec<ReuseDistance>,
}

/// The share of the blocks that were read again after other blocks of this size together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct ReuseDistance {
    pub(crate) from_bytes: u64,
    pub(crate) below_bytes: u64,
    pub(crate) share: f64,
}

impl Reuse {
    /// Returns `None` if no block is read again.
    pub(crate) fn sentence(&self) -> Option<String> {
        let is_read_again = self.within_passes_share + self.between_passes_share > 0.0;
        is_read_again.then(|| {
            format!(
                "{} of the blocks are read for the first time, {} again in the same pass over their file, {} in a later \
                 pass",
                percent(self.first_share),
                percent(self.within_passes_share),
                percent(self.between_passes_share),
            )
        })
    }
}

/// The uses of the blocks of a trace: a read uses every block that it touches.
pub(super) struct Uses {
    block_bytes: u64,
    /// How many uses had how many other blocks since the last use of their block; `None` for a first use.
    by_distance: HashMap<Option<u64>, u64>,
    pub(super) reuse: Reuse,
    /// The passes over each file.
    pub(super) passes: Vec<u32>,
}

impl Uses {
    pub(super) fn of(trace: &Trace) -> Self {
        let block_bytes = block_bytes(trace);
        let by_distance = reuse_distances(trace, block_bytes);
        let (pass_of_read, passes) = passes(trace);
        let mut reuse = count_reuse(trace, block_bytes, &pass_of_read);
        reuse.distances = distances_by_size(&by_distance, block_bytes);
        Self { block_bytes, by_distance, reuse, passes }
    }

    /// Returns the share of the blocks that caches of several sizes would have had, up to the first cache that holds the
    /// whole working set.
    pub(super) fn cache_shares(&self) -> Vec<CacheShare> {
        let (block_bytes, distances) = (self.block_bytes, &self.by_distance);
        let uses = distances.values().sum::<u64>().max(1);
        let first_uses = distances.get(&None).copied().unwrap_or(0);
        let working_set_bytes = first_uses.saturating_mul(block_bytes);
        let mut shares = Vec::new();
        let mut cache_bytes = (16 << 20).max(block_bytes);
        loop {
            // A block is found if the cache holds it and every other that was used since.
            let blocks = cache_bytes / block_bytes;
            let found =
                distances.iter().filter(|(distance, _)| distance.is_some_and(|d| d < blocks));
            let found: u64 = found.map(|(_, uses)| uses).sum();
            shares.push(CacheShare { cache_bytes, found_share: found as f64 / uses as f64 });
            if cache_bytes >= working_set_bytes || shares.len() == 12 {
                return shares;
            }
            cache_bytes = cache_bytes.saturating_mul(4);
        }
    }
}

/// The pass of each read, and the number of passes over each file.
///
/// A pass ends when a read comes again that the pass has already made, if it has made at least half of the different reads
/// of the file by then. So shuffled epochs are passes too. A read that comes again before that, such as that of a header,
/// ends no pass.
fn passes(trace: &Trace) -> (Vec<u32>, Vec<u32>) {
    let mut different = vec![HashSet::new(); trace.files.len()];
    for read in trace.reads() {
        different[read.file as usize].insert((read.offset, read.bytes));
    }
    let needed: Vec<usize> = different.iter().map(|reads| reads.len().div_ceil(2)).collect();
    let mut made = vec![HashSet::new(); trace.files.len()];
    let mut often = HashSet::new();
    let mut passes: Vec<u32> = vec![1; trace.files.len()];
    let pass_of = |read: &TraceRead| {
        let file = read.file as usize;
        if !made[file].insert((read.offset, read.bytes)) {
            if made[file].len() < needed[file].max(2) {
                often.insert((read.file, read.offset, read.bytes));
            } else if !often.contains(&(read.file, read.offset, read.bytes)) {
                made[file].clear();
                made[file].insert((read.offset, read.bytes));
                passes[file] += 1;
            }
        }
        passes[file]
    };
    (trace.reads().iter().map(pass_of).collect(), passes)
}

/// Counts first uses, and repeated ones in the pass of the last use and in another.
fn count_reuse(trace: &Trace, block_bytes: u64, pass_of_read: &[u32]) -> Reuse {
    let mut last_pass: HashMap<(u32, u64), u32> = HashMap::new();
    let (mut first, mut within, mut between) = (0_u64, 0_u64, 0_u64);
    for (read, pass) in trace.reads().iter().zip(pass_of_read) {
        for block in blocks_of(read, block_bytes) {
            match last_pass.insert((read.file, block), *pass) {
                None => first += 1,
                Some(before) if before == *pass => within += 1,
                Some(_) => between += 1,
            }
        }
    }
    let share = |count: u64| count as f64 / (first + within + between).max(1) as f64;
    Reuse {
        first_share: share(first),
        within_passes_share: share(within),
        between_passes_share: share(between),
        distances: Vec::new(),
    }
}

/// The smallest group of distances ends here.
const DISTANCE_BYTES_MIN: u64 = 1 << 20;

fn distances_by_size(
    by_distance: &HashMap<Option<u64>, u64>,
    block_bytes: u64,
) -> Vec<ReuseDistance> {
    let all: u64 = by_distance.values().sum();
    let mut by_size: BTreeMap<u64, u64> = BTreeMap::new();
    for (distance, uses) in by_distance {
        if let Some(distance) = distance {
            let bytes = distance.saturating_mul(block_bytes);
            let mut below = DISTANCE_BYTES_MIN;
            while below <= bytes && below < 1 << 62 {
                below *= 4;
            }
            *by_size.entry(below).or_default() += uses;
        }
    }
    let group = |(below_bytes, uses): (u64, u64)| ReuseDistance {
        from_bytes: if below_bytes == DISTANCE_BYTES_MIN { 0 } else { below_bytes / 4 },
        below_bytes,
        share: uses as f64 / all.max(1) as f64,
    };
    by_size.into_iter().map(group).collect()
}

/// The uses of blocks that are looked at, for each read and in all. Larger blocks make fewer of them. So the work and
/// the memory depend on the number of reads, and not on their bytes.
const USES_PER_READ: u64 = 8;
const USES_MIN: u64 = 4096;
const USES_MAX: u64 = 4 << 20;

const BLOCK_BYTES_MIN: u64 = 4096;

/// The smallest size of blocks for which there are not too many uses.
fn block_bytes(trace: &Trace) -> u64 {
    let mut block_bytes = BLOCK_BYTES_MIN;
    let uses = |block_bytes: u64| {
        let blocks = |read: &TraceRead| read.bytes / block_bytes + 1;
        trace.reads().iter().map(blocks).fold(0_u64, u64::saturating_add)
    };
    let reads = trace.reads().len() as u64;
    let uses_max = (USES_PER_READ * reads).clamp(USES_MIN, USES_MAX).max(2 * reads);
    while uses(block_bytes) > uses_max {
        block_bytes *= 2;
    }
    block_bytes
}

fn blocks_of(read: &TraceRead, block_bytes: u64) -> RangeInclusive<u64> {
    let last = read.offset.saturating_add(read.bytes.saturating_sub(1)) / block_bytes;
    (read.offset / block_bytes)..=last
}

/// How many uses had how many other blocks since the last use of their block; `None` for a first use.
/// Mattson's stack distances: each block counts at the time of its last use, in a tree of sums.
fn reuse_distances(trace: &Trace, block_bytes: u64) -> HashMap<Option<u64>, u64> {
    let uses: usize = trace.reads().iter().map(|read| blocks_of(read, block_bytes).count()).sum();
    let mut last_uses = SumTree::new(uses);
    let mut last_use: HashMap<(u32, u64), usize> = HashMap::new();
    let mut distances: HashMap<Option<u64>, u64> = HashMap::new();
    let mut now = 0;
    for read in trace.reads() {
        for block in blocks_of(read, block_bytes) {
            let before = last_use.insert((read.file, block), now);
            let distance = before.map(|before| {
                last_uses.add(before, -1);
                last_uses.sum(now) - last_uses.sum(before)
            });
            *distances.entry(distance.and_then(|d| u64::try_from(d).ok())).or_default() += 1;
            last_uses.add(now, 1);
            now += 1;
        }
    }
    distances
}

/// Sums of the first elements, each in logarithmic time: a Fenwick tree.
struct SumTree(Vec<i32>);

impl SumTree {
    fn new(len: usize) -> Self {
        Self(vec![0; len + 1])
    }

    fn add(&mut self, at: usize, change: i32) {
        let mut at = at + 1;
        while at < self.0.len() {
            self.0[at] += change;
            at += at & at.wrapping_neg();
        }
    }

    /// The sum of the elements before `end`.
    fn sum(&self, end: usize) -> i64 {
        let (mut at, mut sum) = (end.min(self.0.len() - 1), 0);
        while at > 0 {
            sum += i64::from(self.0[at]);
            at -= at & at.wrapping_neg();
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A trace of single reads: file, block.
    fn trace(reads: impl Iterator<Item = (u32, u64)>) -> Trace {
        let mut text = "ringmain recording 1\nf 0 /a\nf 1 /b\n".to_owned();
        reads.for_each(|(file, block)| text += &format!("b 0 0 {file} {} 4096\n", block * 4096));
        Trace::parse(text.as_bytes()).unwrap()
    }

    /// The tree against the definition.
    #[test]
    fn reuse_distances_count_the_blocks_in_between() {
        let order = [0, 1, 2, 0, 0, 3, 1, 2, 2, 0_u64];
        let mut text = "ringmain recording 1\nf 0 /a\n".to_owned();
        order.iter().for_each(|block| text += &format!("b 0 0 0 {} 4096\n", block * 4096));
        let trace = Trace::parse(text.as_bytes()).unwrap();
        let mut expected: HashMap<Option<u64>, u64> = HashMap::new();
        for (at, block) in order.iter().enumerate() {
            let before = order[..at].iter().rposition(|other| other == block);
            let between =
                before.map(|b| order[b + 1..at].iter().collect::<BTreeSet<_>>().len() as u64);
            *expected.entry(between).or_default() += 1;
        }
        assert_eq!(reuse_distances(&trace, 4096), expected);
    }

    /// Three epochs in different orders, each without a few items, and a file whose header is read before each item.
    #[test]
    fn passes_are_recognised_in_any_order() {
        let epoch = |seed: u64| (0..97_u64).map(move |at| (0, (at * (seed * 7 + 5) + seed) % 101));
        let header = (0..50).flat_map(|at| [(1, 0), (1, 1 + at)]);
        let uses = Uses::of(&trace((0..3).flat_map(epoch).chain(header)));
        assert_eq!(uses.passes, [3, 1]);
        let all = 3.0 * 97.0 + 100.0;
        assert_eq!((uses.reuse.within_passes_share * all).round(), 49.0);
        let between = (uses.reuse.between_passes_share * all).round();
        assert_eq!((uses.reuse.first_share * all).round() + between, all - 49.0);
        assert!((180.0..=194.0).contains(&between), "{between}");
        let sentence = uses.reuse.sentence().unwrap();
        assert!(sentence.contains("13 % again in the same pass"), "{sentence}");
    }

    #[test]
    fn a_file_that_is_read_once_has_no_reuse() {
        let uses = Uses::of(&trace((0..100).map(|block| (0, block))));
        assert_eq!((uses.passes, uses.reuse.first_share), (vec![1], 1.0));
        assert_eq!((uses.reuse.distances, uses.reuse.between_passes_share), (Vec::new(), 0.0));
    }

    /// 4 MiB in order, twice: each block comes again after the others.
    #[test]
    fn distances_are_grouped_by_the_bytes_in_between() {
        let uses = Uses::of(&trace((0..2048).map(|at| (0, at % 1024))));
        let (from_bytes, below_bytes) = (1 << 20, 4 << 20);
        assert_eq!(uses.reuse.distances, [ReuseDistance { from_bytes, below_bytes, share: 0.5 }]);
        assert_eq!((uses.reuse.between_passes_share, uses.passes[0]), (0.5, 2));
    }
}
