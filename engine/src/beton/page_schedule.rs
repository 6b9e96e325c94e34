//! Which pages are in memory when, decided before an epoch begins. Pure: it knows no file.
//!
//! A batch needs some pages, at most so many of which are in memory at once. It is made in rounds:
//! in each some pages are loaded, all samples that lie in the pages of the round are copied, and
//! pages are freed: those that no later batch needs, and, where others must have their place, those
//! whose next use is farthest (Belady's rule, which the known order makes possible).
//!
//! Worked example, two pages at once: batches need {1, 2}, {2, 3}, {1}. The first batch loads both of
//! its pages. The second has 2, which is freed, as nobody needs it again; in another round 3 has its
//! place, and is freed too. The third still has 1.

use std::collections::HashMap;
use std::ops::Range;

/// The rounds of an epoch.
#[derive(Debug, Default)]
pub(super) struct PageSchedule {
    rounds: Vec<Round>,
    /// The first round of each batch, and one past the last.
    batch_starts: Vec<usize>,
    uses: Vec<u64>,
    frees: Vec<u64>,
}

#[derive(Debug)]
struct Round {
    uses: Range<usize>,
    frees: Range<usize>,
}

/// A round of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageRound<'a> {
    /// The pages that samples are copied from. Those that are not in memory are loaded before.
    pub(super) uses: &'a [u64],
    /// The pages that are freed after it.
    pub(super) frees: &'a [u64],
}

/// A page that is in memory, and the next batch that needs it.
#[derive(Clone, Copy, Debug)]
struct Resident {
    page: u64,
    next_use: usize,
}

/// For what is not needed again.
const NEVER: usize = usize::MAX;

impl PageSchedule {
    /// For batches that need these pages, each page named once, and so many pages at once.
    pub(super) fn new(batches: &[Vec<u64>], slots: usize) -> Self {
        let slots = slots.max(1);
        let next_uses = next_uses(batches);
        let mut schedule = Self::default();
        let mut resident: Vec<Resident> = Vec::new();
        for (pages, next_uses) in batches.iter().zip(&next_uses) {
            schedule.batch_starts.push(schedule.rounds.len());
            let mut left: Vec<Resident> = Vec::new();
            let uses_at = schedule.uses.len();
            for (page, next_use) in pages.iter().zip(next_uses) {
                let (page, next_use) = (*page, *next_use);
                match resident.iter_mut().find(|resident| resident.page == page) {
                    Some(found) => {
                        found.next_use = next_use;
                        schedule.uses.push(page);
                    }
                    None => left.push(Resident { page, next_use }),
                }
            }
            schedule.add_rounds(&mut resident, left, uses_at, slots);
        }
        schedule.batch_starts.push(schedule.rounds.len());
        schedule
    }

    /// The rounds of one batch: of what is there, the uses are listed from `uses_at` on; `left` is
    /// to be loaded.
    fn add_rounds(
        &mut self,
        resident: &mut Vec<Resident>,
        mut left: Vec<Resident>,
        mut uses_at: usize,
        slots: usize,
    ) {
        loop {
            for loaded in left.drain(..left.len().min(slots - resident.len())) {
                resident.push(loaded);
                self.uses.push(loaded.page);
            }
            let frees_at = self.frees.len();
            self.free(resident, |resident| resident.next_use == NEVER);
            // Half of the places at a time: many pages are loaded at once, few are loaded again.
            let wanted = left.len().min((slots / 2).max(1));
            let lacking = (resident.len() + wanted).saturating_sub(slots);
            if lacking > 0 {
                resident.sort_unstable_by_key(|resident| (resident.next_use, resident.page));
                let kept = resident.len() - lacking;
                self.frees.extend(resident.drain(kept..).map(|resident| resident.page));
            }
            let (uses, frees) = (uses_at..self.uses.len(), frees_at..self.frees.len());
            self.rounds.push(Round { uses, frees });
            uses_at = self.uses.len();
            if left.is_empty() {
                return;
            }
        }
    }

    fn free(&mut self, resident: &mut Vec<Resident>, is_done: impl Fn(&Resident) -> bool) {
        self.frees.extend(resident.iter().filter(|one| is_done(one)).map(|one| one.page));
        resident.retain(|one| !is_done(one));
    }

    /// The rounds of a batch; none if there is no such batch.
    pub(super) fn rounds(&self, batch: usize) -> impl Iterator<Item = PageRound<'_>> {
        let start = self.batch_starts.get(batch).copied().unwrap_or(0);
        let end = self.batch_starts.get(batch + 1).copied().unwrap_or(start);
        self.rounds[start..end].iter().map(|round| PageRound {
            uses: &self.uses[round.uses.clone()],
            frees: &self.frees[round.frees.clone()],
        })
    }
}

/// For each page of each batch, which batch needs it next.
fn next_uses(batches: &[Vec<u64>]) -> Vec<Vec<usize>> {
    let mut seen: HashMap<u64, usize> = HashMap::new();
    let of_batch = |(at, pages): (usize, &Vec<u64>)| {
        pages.iter().map(|page| seen.insert(*page, at).unwrap_or(NEVER)).collect()
    };
    let mut next_uses: Vec<Vec<usize>> = batches.iter().enumerate().rev().map(of_batch).collect();
    next_uses.reverse();
    next_uses
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn rounds(schedule: &PageSchedule, batch: usize) -> Vec<(Vec<u64>, Vec<u64>)> {
        schedule.rounds(batch).map(|round| (round.uses.to_vec(), round.frees.to_vec())).collect()
    }

    #[test]
    fn the_example_of_the_documentation() {
        let schedule = PageSchedule::new(&[vec![1, 2], vec![2, 3], vec![1]], 2);
        assert_eq!(rounds(&schedule, 0), [(vec![1, 2], vec![])]);
        assert_eq!(rounds(&schedule, 1), [(vec![2], vec![2]), (vec![3], vec![3])]);
        assert_eq!(rounds(&schedule, 2), [(vec![1], vec![1])]);
        assert_eq!(rounds(&schedule, 3), []);
    }

    #[test]
    fn the_page_whose_next_use_is_farthest_makes_room() {
        let schedule = PageSchedule::new(&[vec![1, 2], vec![3], vec![1], vec![2]], 2);
        assert_eq!(rounds(&schedule, 1), [(vec![], vec![2]), (vec![3], vec![3])]);
        assert_eq!(rounds(&schedule, 3), [(vec![2], vec![2])]);
    }

    /// Runs a schedule and says how often pages were loaded.
    fn simulate(batches: &[Vec<u64>], slots: usize) -> usize {
        let schedule = PageSchedule::new(batches, slots);
        let (mut resident, mut loads) = (BTreeSet::new(), 0);
        for (batch, pages) in batches.iter().enumerate() {
            let mut used = Vec::new();
            for round in schedule.rounds(batch) {
                for page in round.uses {
                    loads += usize::from(resident.insert(*page));
                    used.push(*page);
                }
                assert!(resident.len() <= slots, "{} pages in {slots} places", resident.len());
                for page in round.frees {
                    assert!(resident.remove(page), "page {page} is freed, but not there");
                }
            }
            used.sort_unstable();
            assert_eq!(used, *pages, "batch {batch}: every page is used once");
            let later: BTreeSet<u64> = batches[batch + 1..].iter().flatten().copied().collect();
            assert!(resident.is_subset(&later), "kept though nobody needs it");
        }
        assert!(resident.is_empty());
        loads
    }

    proptest! {
        #[test]
        fn pages_are_there_when_used_and_freed_after_their_last_use(
            batches in proptest::collection::vec(proptest::collection::btree_set(0u64..20, 0..12), 0..30),
            slots in 1usize..25,
        ) {
            let batches: Vec<Vec<u64>> =
                batches.into_iter().map(|pages| pages.into_iter().collect()).collect();
            let loads = simulate(&batches, slots);
            let distinct: BTreeSet<u64> = batches.iter().flatten().copied().collect();
            prop_assert!(loads >= distinct.len());
            if slots >= 20 {
                prop_assert_eq!(loads, distinct.len(), "there was room for all");
            }
        }

        /// As quasi-random order has it: groups of pages, and batches that lie across two groups.
        #[test]
        fn with_room_for_two_groups_every_page_is_loaded_once(
            groups in 1u64..12, open_pages in 1u64..6, batches_of_group in 1u64..5,
        ) {
            let mut batches: Vec<Vec<u64>> = Vec::new();
            for group in 0..groups {
                for at in 0..batches_of_group {
                    let first = if at == 0 { group.saturating_sub(1) } else { group };
                    batches.push((first * open_pages..(group + 1) * open_pages).collect());
                }
            }
            let loads = simulate(&batches, 2 * open_pages as usize);
            prop_assert_eq!(loads as u64, groups * open_pages);
        }
    }
}
