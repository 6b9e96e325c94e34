//! Which pages are in memory when, decided before an epoch begins. Pure: it knows no file.
//!
//! A batch needs some pages, at most so many of which are in memory at once. It is made in rounds:
//! in each some pages are loaded, all samples that lie in the pages of the round are copied, and
//! pages are freed: those that no later batch needs, and, where others must have their place, those
//! whose next use is farthest (Belady's rule, which the known order makes possible). Places that the
//! batch leaves are filled ahead, with what is needed next: no place is idle while a page is missing.
//! What is read ahead is needed before all that is still missing, so it is never in the way.
//!
//! Worked example, two pages at once: batches need {1, 2}, {2, 3}, {1}, {4}. The first batch loads
//! both of its pages. The second has 2, which is freed, as nobody needs it again; in another round 3
//! has its place, and is freed too. The third still has 1, and 4 is loaded ahead beside it.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// The rounds of an epoch.
#[derive(Debug, Default)]
pub(super) struct PageSchedule {
    rounds: Vec<Round>,
    /// The first round of each batch, and one past the last.
    batch_starts: Vec<usize>,
    loads: Vec<u64>,
    uses: Vec<u64>,
    frees: Vec<u64>,
}

#[derive(Debug)]
struct Round {
    loads: Range<usize>,
    uses: Range<usize>,
    frees: Range<usize>,
}

/// A round of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageRound<'a> {
    /// The pages that are loaded before it: those it needs, and then those that later ones need.
    pub(super) loads: &'a [u64],
    /// The pages that samples are copied from.
    pub(super) uses: &'a [u64],
    /// The pages that are freed after it.
    pub(super) frees: &'a [u64],
}

/// A page and the next batch that needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Need {
    batch: usize,
    page: u64,
}

/// For what is not needed again.
const NEVER: usize = usize::MAX;

/// Where every page is that is still needed.
struct Places {
    slots: usize,
    resident: Vec<Need>,
    /// Those that are needed first come first.
    missing: BTreeSet<Need>,
}

impl PageSchedule {
    /// For batches that need these pages, each page named once and in ascending order, and so many
    /// pages at once.
    pub(super) fn new(batches: &[Vec<u64>], slots: usize) -> Self {
        let (missing, next_uses) = needs(batches);
        let mut places = Places { slots: slots.max(1), resident: Vec::new(), missing };
        let mut schedule = Self::default();
        for (batch, (pages, next_uses)) in batches.iter().zip(&next_uses).enumerate() {
            schedule.batch_starts.push(schedule.rounds.len());
            let next_use = |page| pages.binary_search(&page).map_or(NEVER, |at| next_uses[at]);
            while !schedule.add_round(&mut places, batch, next_use) {}
        }
        schedule.batch_starts.push(schedule.rounds.len());
        schedule
    }

    /// Adds a round of a batch, and says whether it was the last.
    fn add_round(
        &mut self,
        places: &mut Places,
        batch: usize,
        next_use: impl Fn(u64) -> usize,
    ) -> bool {
        let starts = (self.loads.len(), self.uses.len(), self.frees.len());
        while places.resident.len() < places.slots
            && let Some(first) = places.missing.pop_first()
        {
            places.resident.push(first);
            self.loads.push(first.page);
        }
        for used in places.resident.iter_mut().filter(|resident| resident.batch == batch) {
            self.uses.push(used.page);
            used.batch = next_use(used.page);
        }
        let done = places.resident.extract_if(.., |resident| resident.batch == NEVER);
        self.frees.extend(done.map(|resident| resident.page));
        // Half of the places at a time: many pages are loaded at once, few are loaded again.
        let half = (places.slots / 2).max(1);
        let is_needed = |missing: &&Need| missing.batch == batch;
        let wanted = places.missing.iter().take(half).take_while(is_needed).count();
        self.frees.extend(places.make_room(wanted));
        self.rounds.push(Round {
            loads: starts.0..self.loads.len(),
            uses: starts.1..self.uses.len(),
            frees: starts.2..self.frees.len(),
        });
        wanted == 0
    }

    /// The rounds of a batch; none if there is no such batch.
    pub(super) fn rounds(&self, batch: usize) -> impl Iterator<Item = PageRound<'_>> {
        let start = self.batch_starts.get(batch).copied().unwrap_or(0);
        let end = self.batch_starts.get(batch.saturating_add(1)).copied().unwrap_or(start);
        self.rounds[start..end].iter().map(|round| PageRound {
            loads: &self.loads[round.loads.clone()],
            uses: &self.uses[round.uses.clone()],
            frees: &self.frees[round.frees.clone()],
        })
    }
}

impl Places {
    /// Gives up the pages whose next use is farthest, so that so many others have a place.
    fn make_room(&mut self, wanted: usize) -> impl Iterator<Item = u64> {
        let lacking = (self.resident.len() + wanted).saturating_sub(self.slots);
        if lacking > 0 {
            self.resident.sort_unstable();
        }
        let given_up = self.resident.split_off(self.resident.len() - lacking);
        self.missing.extend(&given_up);
        given_up.into_iter().map(|need| need.page)
    }
}

/// The first need of every page; and for each page of each batch, which batch needs it next.
fn needs(batches: &[Vec<u64>]) -> (BTreeSet<Need>, Vec<Vec<usize>>) {
    let mut seen: HashMap<u64, usize> = HashMap::new();
    let of_batch = |(at, pages): (usize, &Vec<u64>)| {
        pages.iter().map(|page| seen.insert(*page, at).unwrap_or(NEVER)).collect()
    };
    let mut next_uses: Vec<Vec<usize>> = batches.iter().enumerate().rev().map(of_batch).collect();
    next_uses.reverse();
    (seen.into_iter().map(|(page, batch)| Need { batch, page }).collect(), next_uses)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rounds(schedule: &PageSchedule, batch: usize) -> Vec<(Vec<u64>, Vec<u64>)> {
        schedule.rounds(batch).map(|round| (round.uses.to_vec(), round.frees.to_vec())).collect()
    }

    #[test]
    fn the_example_of_the_documentation() {
        let schedule = PageSchedule::new(&[vec![1, 2], vec![2, 3], vec![1], vec![4]], 2);
        assert_eq!(rounds(&schedule, 0), [(vec![1, 2], vec![])]);
        assert_eq!(rounds(&schedule, 1), [(vec![2], vec![2]), (vec![3], vec![3])]);
        assert_eq!(rounds(&schedule, 2), [(vec![1], vec![1])]);
        assert_eq!(schedule.rounds(2).next().unwrap().loads, [4]);
        assert_eq!(rounds(&schedule, 3), [(vec![4], vec![4])]);
        assert!(schedule.rounds(3).next().unwrap().loads.is_empty());
        assert_eq!(rounds(&schedule, 4), []);
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
            let needed_from = |first: usize| -> BTreeSet<u64> {
                batches[first..].iter().flatten().copied().collect()
            };
            let (now, later) = (needed_from(batch), needed_from(batch + 1));
            let mut used = Vec::new();
            for round in schedule.rounds(batch) {
                for page in round.loads {
                    assert!(resident.insert(*page), "page {page} is loaded, but there");
                    loads += 1;
                }
                assert!(round.uses.iter().all(|page| resident.contains(page)));
                used.extend_from_slice(round.uses);
                assert!(resident.len() <= slots, "{} pages in {slots} places", resident.len());
                let is_idle = resident.len() < slots;
                let is_missing = |page: &u64| {
                    let is_needed = later.contains(page) || !used.contains(page);
                    is_needed && !resident.contains(page)
                };
                assert!(!is_idle || !now.iter().any(is_missing), "a place is idle");
                for page in round.frees {
                    assert!(resident.remove(page), "page {page} is freed, but not there");
                }
            }
            used.sort_unstable();
            assert_eq!(used, *pages, "batch {batch}: every page is used once");
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
