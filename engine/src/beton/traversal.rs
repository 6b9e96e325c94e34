//! The order in which an epoch takes samples.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::dataset::Dataset;
use crate::permutation::{Permutation, mix};

/// In which order samples are delivered. The same seed and epoch give the same order on every
/// backend and machine, and in every version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Traversal {
    /// By their ids.
    #[default]
    Sequential,
    /// All samples in random order, another one for each seed and epoch. A batch is one batched
    /// read: for devices that take many requests at once.
    Random {
        /// Which of the orders.
        seed: u64,
        /// Counts the passes over the dataset.
        epoch: u64,
    },
    /// Pages in random order, so many at a time, and the samples of these in random order: for
    /// disks where it matters what is near what.
    QuasiRandom {
        /// Which of the orders.
        seed: u64,
        /// Counts the passes over the dataset.
        epoch: u64,
        /// How many pages samples are drawn from at a time.
        open_pages: NonZeroU64,
    },
}

impl Traversal {
    /// Which pass it is; 0 in sequential order, where all are the same.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        match self {
            Self::Sequential => 0,
            Self::Random { epoch, .. } | Self::QuasiRandom { epoch, .. } => *epoch,
        }
    }

    /// The same order for another pass.
    #[must_use]
    pub fn with_epoch(mut self, new: u64) -> Self {
        if let Self::Random { epoch, .. } | Self::QuasiRandom { epoch, .. } = &mut self {
            *epoch = new;
        }
        self
    }

    /// Differs for other orders, but not for another pass.
    pub(super) fn words(&self) -> [u64; 3] {
        match self {
            Self::Sequential => [0, 0, 0],
            Self::Random { seed, .. } => [1, *seed, 0],
            Self::QuasiRandom { seed, open_pages, .. } => [2, *seed, open_pages.get()],
        }
    }
}

/// An order of so many samples.
#[derive(Clone, Debug)]
pub(super) enum Sequence {
    Straight,
    Random(Permutation),
    Quasi(Arc<Quasi>),
}

impl Sequence {
    pub(super) fn new(traversal: Traversal, dataset: &Dataset) -> Self {
        let len = dataset.header.samples;
        match traversal {
            Traversal::Sequential => Self::Straight,
            Traversal::Random { seed, epoch } => Self::Random(Permutation::new(len, seed, epoch)),
            Traversal::QuasiRandom { seed, epoch, open_pages } => {
                let by_page = Arc::new(ByPage::of(dataset));
                Self::Quasi(Arc::new(Quasi::new(by_page, seed, epoch, open_pages.get())))
            }
        }
    }

    /// The order of another pass over the same dataset, with what this one knows of it.
    pub(super) fn for_epoch(&self, traversal: Traversal, dataset: &Dataset) -> Self {
        match (self, traversal) {
            (Self::Quasi(quasi), Traversal::QuasiRandom { seed, epoch, open_pages }) => {
                let by_page = Arc::clone(&quasi.by_page);
                Self::Quasi(Arc::new(Quasi::new(by_page, seed, epoch, open_pages.get())))
            }
            _ => Self::new(traversal, dataset),
        }
    }

    /// The samples at the positions from `position` on, of which there must be as many.
    pub(super) fn fill(&self, position: u64, out: &mut [u64]) {
        match self {
            Self::Straight => out.iter_mut().zip(position..).for_each(|(out, at)| *out = at),
            Self::Random(permutation) => {
                out.iter_mut().zip(position..).for_each(|(out, at)| *out = permutation.at(at));
            }
            Self::Quasi(quasi) => quasi.fill(position, out),
        }
    }
}

/// The samples by the page they are in.
#[derive(Debug)]
pub(super) struct ByPage {
    samples: Vec<u64>,
    /// Where each page's begin, and where the last one's end. Pages without samples are not counted.
    starts: Vec<u64>,
}

impl ByPage {
    fn of(dataset: &Dataset) -> Self {
        Self::new((0..dataset.header.samples).map(|sample| {
            let pointers = dataset.paged.iter().filter_map(|field| dataset.pointer(sample, *field));
            // Those without a page are taken for one.
            pointers.filter_map(|ptr| dataset.pages.page_of(ptr)).next().unwrap_or(u64::MAX)
        }))
    }

    /// From the page of each sample.
    fn new(pages: impl Iterator<Item = u64>) -> Self {
        let mut sorted: Vec<(u64, u64)> = pages.zip(0..).collect();
        sorted.sort_unstable();
        let mut starts = vec![0];
        for (at, pair) in sorted.windows(2).enumerate() {
            if pair[0].0 != pair[1].0 {
                starts.push(at as u64 + 1);
            }
        }
        starts.push(sorted.len() as u64);
        Self { samples: sorted.into_iter().map(|(_, sample)| sample).collect(), starts }
    }
}

/// Pages in random order, and the samples of each group of pages in random order.
#[derive(Debug)]
pub(super) struct Quasi {
    by_page: Arc<ByPage>,
    pages: Permutation,
    /// Where the samples of each page would begin, were they in the order of the pages.
    starts: Vec<u64>,
    open_pages: usize,
    seed: u64,
    epoch: u64,
}

impl Quasi {
    fn new(by_page: Arc<ByPage>, seed: u64, epoch: u64, open_pages: u64) -> Self {
        let count = by_page.starts.len() as u64 - 1;
        let pages = Permutation::new(count, seed, epoch);
        let mut starts = vec![0];
        let mut end = 0;
        for slot in 0..count {
            let page = pages.at(slot) as usize;
            end += by_page.starts[page + 1] - by_page.starts[page];
            starts.push(end);
        }
        let open_pages = usize::try_from(open_pages).unwrap_or(usize::MAX).max(1);
        Self { by_page, pages, starts, open_pages, seed, epoch }
    }

    fn fill(&self, mut position: u64, mut out: &mut [u64]) {
        while !out.is_empty() {
            let group = self.slot_of(position) / self.open_pages;
            let first = group * self.open_pages;
            let last = first.saturating_add(self.open_pages).min(self.starts.len() - 1);
            let (start, end) = (self.starts[first], self.starts[last]);
            let seed = mix(self.seed ^ mix(group as u64 + 1));
            let inside = Permutation::new(end - start, seed, self.epoch);
            let count = usize::try_from(end - position).unwrap_or(usize::MAX).clamp(1, out.len());
            let (part, rest) = out.split_at_mut(count);
            for (out, at) in part.iter_mut().zip(position..) {
                *out = self.sample_at(start + inside.at(at - start));
            }
            (position, out) = (position + count as u64, rest);
        }
    }

    /// The sample at a place of the order by pages.
    fn sample_at(&self, place: u64) -> u64 {
        let slot = self.slot_of(place);
        let page = self.pages.at(slot as u64) as usize;
        self.by_page.samples[(self.by_page.starts[page] + place - self.starts[slot]) as usize]
    }

    /// Which page, in their random order, a place is in. None is without samples.
    fn slot_of(&self, place: u64) -> usize {
        let after = self.starts.partition_point(|start| *start <= place);
        after.saturating_sub(1).min(self.starts.len() - 2)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn quasi(pages: &[u64], seed: u64, epoch: u64, open_pages: u64) -> Vec<u64> {
        let quasi =
            Quasi::new(Arc::new(ByPage::new(pages.iter().copied())), seed, epoch, open_pages);
        let mut out = vec![0; pages.len()];
        quasi.fill(0, &mut out);
        out
    }

    /// An epoch must be the same on every machine and in every version: never change these.
    #[test]
    fn the_orders_are_pinned() {
        let pages: Vec<u64> = (0..12).map(|sample| sample / 3).collect();
        assert_eq!(quasi(&pages, 7, 3, 2), PINNED);
    }

    const PINNED: [u64; 12] = [8, 3, 5, 4, 7, 6, 11, 2, 0, 10, 9, 1];

    proptest! {
        #[test]
        fn every_sample_comes_once_and_few_pages_are_open(
            pages in proptest::collection::vec(0u64..9, 1..200), seed: u64, epoch: u64,
            open_pages in 1u64..6, from in 0usize..200,
        ) {
            let all = quasi(&pages, seed, epoch, open_pages);
            let mut sorted = all.clone();
            sorted.sort_unstable();
            prop_assert!(sorted.iter().copied().eq(0..pages.len() as u64));
            // A page is done with before one of the next group begins.
            let mut groups: Vec<Vec<u64>> = vec![Vec::new()];
            for sample in &all {
                let page = pages[*sample as usize];
                let now = groups.last_mut().unwrap();
                if !now.contains(&page) {
                    if now.len() as u64 == open_pages {
                        groups.push(vec![page]);
                    } else {
                        now.push(page);
                    }
                }
            }
            let mut seen: Vec<u64> = groups.concat();
            seen.sort_unstable();
            let mut distinct = pages.clone();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(seen, distinct, "a page was opened twice");
            let from = from % all.len();
            let order = Quasi::new(Arc::new(ByPage::new(pages.iter().copied())), seed, epoch, open_pages);
            let mut rest = vec![0; all.len() - from];
            order.fill(from as u64, &mut rest);
            prop_assert_eq!(&rest[..], &all[from..]);
        }
    }
}
