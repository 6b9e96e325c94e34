//! Decides before an epoch which pages are in memory when. The schedule is pure: it touches no
//! file.
//!
//! A batch needs some pages, and at most `slots` pages are in memory at once. A batch is made in
//! rounds. Each round loads pages, copies all samples that lie in them, and frees pages: those that
//! no later batch needs, and, if others need their slots, those whose next use is farthest away
//! (Belady's rule, which the known order makes possible). Slots that the batch does not need are
//! filled ahead with the pages that are needed next, so no slot is idle while a page is missing. A
//! page that was read ahead is needed before all pages that are still missing, so it is never in
//! the way.
//!
//! Example with two slots: the batches need {1, 2}, {2, 3}, {1}, {4}. The first batch loads 1 and
//! 2. The second batch uses 2 and frees it, as no later batch needs it; another round loads 3 into
//! its slot, and frees it too. The third batch still has 1, and 4 is loaded ahead beside it.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// The rounds of an epoch.
#[derive(Debug, Default)]
pub(super) struct PageSchedule {
    rounds: Vec<Round>,
    /// The first round of each batch, then the number of rounds.
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
    /// The pages to load before the round: first those that it needs, then those that later rounds
    /// need.
    pub(super) loads: &'a [u64],
    /// The pages to copy samples from.
    pub(super) uses: &'a [u64],
    /// The pages to free after the round.
    pub(super) frees: &'a [u64],
}

/// A page and the next batch that needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PageNeed {
    batch: usize,
    page: u64,
}

/// Marks a page that no later batch needs.
const NEVER: usize = usize::MAX;

/// The pages in memory, and those that are still needed but missing.
struct PageSlots {
    slots: usize,
    resident: Vec<PageNeed>,
    /// Pages that are needed earlier come first.
    missing: BTreeSet<PageNeed>,
}

impl PageSchedule {
    /// Makes the schedule of batches that need these pages, with at most `slots` pages in memory. A
    /// batch names each of its pages once, in ascending order.
    pub(super) fn new(batches: &[Vec<u64>], slots: usize) -> Self {
        let (missing, next_uses) = needs(batches);
        let mut places = PageSlots { slots: slots.max(1), resident: Vec::new(), missing };
        let mut schedule = Self::default();
        for (batch, (pages, next_uses)) in batches.iter().zip(&next_uses).enumerate() {
            schedule.batch_starts.push(schedule.rounds.len());
            let next_use = |page| pages.binary_search(&page).map_or(NEVER, |at| next_uses[at]);
            while !schedule.add_round(&mut places, batch, next_use) {}
        }
        schedule.batch_starts.push(schedule.rounds.len());
        schedule
    }

    /// Adds a round of a batch. Returns `true` if it was the batch's last.
    fn add_round(
        &mut self,
        places: &mut PageSlots,
        batch: usize,
        next_use: impl Fn(u64) -> usize,
    ) -> bool {
        let starts = (self.loads.len(), self.uses.len(), self.frees.len());
        while places.resident.len() < places.slots {
            let Some(first) = places.missing.pop_first() else { break };
            places.resident.push(first);
            self.loads.push(first.page);
        }
        for used in places.resident.iter_mut().filter(|resident| resident.batch == batch) {
            self.uses.push(used.page);
            used.batch = next_use(used.page);
        }
        places.resident.retain(|resident| {
            let is_done = resident.batch == NEVER;
            if is_done {
                self.frees.push(resident.page);
            }
            !is_done
        });
        // Replacing half of the slots at a time loads many pages at once and few pages twice.
        let half = (places.slots / 2).max(1);
        let is_needed = |missing: &&PageNeed| missing.batch == batch;
        let wanted = places.missing.iter().take(half).take_while(is_needed).count();
        self.frees.extend(places.make_room(wanted));
        self.rounds.push(Round {
            loads: starts.0..self.loads.len(),
            uses: starts.1..self.uses.len(),
            frees: starts.2..self.frees.len(),
        });
        wanted == 0
    }

    /// Returns the rounds of a batch; none if there is no such batch.
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

impl PageSlots {
    /// Frees the pages whose next use is farthest away, until `wanted` pages fit.
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

/// Returns the first need of every page, and for each page of each batch the next batch that needs
/// it.
fn needs(batches: &[Vec<u64>]) -> (BTreeSet<PageNeed>, Vec<Vec<usize>>) {
    let mut seen: HashMap<u64, usize> = HashMap::new();
    let of_batch = |(at, pages): (usize, &Vec<u64>)| {
        pages.iter().map(|page| seen.insert(*page, at).unwrap_or(NEVER)).collect()
    };
    let mut next_uses: Vec<Vec<usize>> = batches.iter().enumerate().rev().map(of_batch).collect();
    next_uses.reverse();
    (seen.into_iter().map(|(page, batch)| PageNeed { batch, page }).collect(), next_uses)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rounds(schedule: &PageSchedule, batch: usize) -> Vec<(Vec<u64>, Vec<u64>)> {
        schedule.rounds(batch).map(|round| (round.uses.to_vec(), round.frees.to_vec())).collect()
    }

    #[test]
    fn the_documented_example_holds() {
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

    /// Runs a schedule and returns the number of page loads.
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
                    assert!(resident.insert(*page), "page {page} is loaded twice");
                    loads += 1;
                }
                assert!(round.uses.iter().all(|page| resident.contains(page)));
                used.extend_from_slice(round.uses);
                assert!(resident.len() <= slots, "{} pages in {slots} slots", resident.len());
                let is_idle = resident.len() < slots;
                let is_missing = |page: &u64| {
                    let is_needed = later.contains(page) || !used.contains(page);
                    is_needed && !resident.contains(page)
                };
                assert!(!is_idle || !now.iter().any(is_missing), "a slot is idle");
                for page in round.frees {
                    assert!(resident.remove(page), "page {page} is freed, but not in memory");
                }
            }
            used.sort_unstable();
            assert_eq!(used, *pages, "batch {batch}: every page is used once");
            assert!(resident.is_subset(&later), "a page is kept that no batch needs");
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

        /// Page-shuffled order has this form: groups of pages, and batches that span two groups.
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
