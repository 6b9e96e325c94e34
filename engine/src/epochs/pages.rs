//! Pages in random order, and the items of a few pages at a time in random order.

use std::sync::Arc;

use ringmain_backends::mix;

use super::permutation::Permutation;

/// The items of a data set, sorted by the page they lie in.
#[derive(Debug)]
pub(crate) struct ItemsByPage {
    items: Vec<u64>,
    /// The index of each page's first item, and at the end the number of items. Pages without items
    /// are left out.
    starts: Vec<u64>,
}

impl ItemsByPage {
    /// `pages` is the page of item 0, of item 1, and so on.
    #[cfg_attr(not(feature = "beton"), allow(dead_code, reason = "only datasets have pages"))]
    pub(crate) fn new(pages: impl Iterator<Item = u64>) -> Self {
        let mut sorted: Vec<(u64, u64)> = pages.zip(0..).collect();
        sorted.sort_unstable();
        let mut starts = vec![0];
        for (at, pair) in sorted.windows(2).enumerate() {
            if pair[0].0 != pair[1].0 {
                starts.push(at as u64 + 1);
            }
        }
        starts.push(sorted.len() as u64);
        Self { items: sorted.into_iter().map(|(_, item)| item).collect(), starts }
    }

    fn page_count(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    fn len_of(&self, page: usize) -> u64 {
        self.starts[page + 1] - self.starts[page]
    }
}

/// An epoch over shuffled pages.
#[derive(Debug)]
pub(super) struct ShuffledPages {
    by_page: Arc<ItemsByPage>,
    pages: Permutation,
    /// The place of each page's first item, if all items stood page after page in shuffled order;
    /// at the end the number of items.
    starts: Vec<u64>,
    open_pages: usize,
    seed: u64,
    epoch: u64,
}

impl ShuffledPages {
    pub(super) fn new(by_page: Arc<ItemsByPage>, seed: u64, epoch: u64, open_pages: u64) -> Self {
        let pages = Permutation::new(by_page.page_count(), seed, epoch);
        let (mut starts, mut end) = (vec![0], 0);
        for slot in 0..by_page.page_count() {
            end += by_page.len_of(pages.at(slot) as usize);
            starts.push(end);
        }
        let open_pages = usize::try_from(open_pages).unwrap_or(usize::MAX).max(1);
        Self { by_page, pages, starts, open_pages, seed, epoch }
    }

    pub(super) fn fill(&self, mut position: u64, mut items: &mut [u64]) {
        while !items.is_empty() {
            let group = Group::of(self, self.slot_of(position));
            let left = usize::try_from(group.end - position).unwrap_or(usize::MAX);
            let (part, rest) = items.split_at_mut(left.clamp(1, items.len()));
            for (item, at) in part.iter_mut().zip(position..) {
                *item = self.item_at(group.start + group.order.at(at - group.start));
            }
            (position, items) = (position + part.len() as u64, rest);
        }
    }

    /// The position of an item. It looks through all items: seeking is rare.
    pub(super) fn position_of(&self, item: u64) -> u64 {
        let found = self.by_page.items.iter().position(|other| *other == item);
        let index = found.unwrap_or_default() as u64;
        let page = last_not_above(&self.by_page.starts, index);
        let slot = self.pages.position_of(page as u64) as usize;
        let place = self.starts[slot] + index - self.by_page.starts[page];
        let group = Group::of(self, slot);
        group.start + group.order.position_of(place - group.start)
    }

    /// The item at a place of the order page after page.
    fn item_at(&self, place: u64) -> u64 {
        let slot = self.slot_of(place);
        let page = self.pages.at(slot as u64) as usize;
        self.by_page.items[(self.by_page.starts[page] + place - self.starts[slot]) as usize]
    }

    /// The number, in shuffled order, of the page that a place lies in.
    fn slot_of(&self, place: u64) -> usize {
        last_not_above(&self.starts, place)
    }
}

/// The pages that items are drawn from at one time, and the order of their items.
struct Group {
    start: u64,
    end: u64,
    order: Permutation,
}

impl Group {
    /// The group that the page with the number `slot` in shuffled order belongs to.
    fn of(pages: &ShuffledPages, slot: usize) -> Self {
        let number = slot / pages.open_pages;
        let first = number * pages.open_pages;
        let last = first.saturating_add(pages.open_pages).min(pages.starts.len() - 1);
        let (start, end) = (pages.starts[first], pages.starts[last]);
        let seed = mix(pages.seed ^ mix(number as u64 + 1));
        Self { start, end, order: Permutation::new(end - start, seed, pages.epoch) }
    }
}

/// The index of the page that begins last at or before `place`. No page is empty.
fn last_not_above(starts: &[u64], place: u64) -> usize {
    let after = starts.partition_point(|start| *start <= place);
    after.saturating_sub(1).min(starts.len() - 2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shuffled(pages: &[u64], seed: u64, epoch: u64, open_pages: u64) -> ShuffledPages {
        let by_page = Arc::new(ItemsByPage::new(pages.iter().copied()));
        ShuffledPages::new(by_page, seed, epoch, open_pages)
    }

    fn items(pages: &[u64], order: &ShuffledPages) -> Vec<u64> {
        let mut items = vec![0; pages.len()];
        order.fill(0, &mut items);
        items
    }

    /// An epoch must be the same on every machine and in every version: never change this.
    #[test]
    fn the_order_is_pinned() {
        let pages: Vec<u64> = (0..12).map(|sample| sample / 3).collect();
        let pinned = [8, 3, 5, 4, 7, 6, 11, 2, 0, 10, 9, 1];
        assert_eq!(items(&pages, &shuffled(&pages, 7, 3, 2)), pinned);
    }

    proptest! {
        #[test]
        fn every_item_comes_once_and_few_pages_are_open(
            pages in proptest::collection::vec(0u64..9, 1..200), seed: u64, epoch: u64,
            open_pages in 1u64..6, from in 0usize..200,
        ) {
            let order = shuffled(&pages, seed, epoch, open_pages);
            let all = items(&pages, &order);
            let mut sorted = all.clone();
            sorted.sort_unstable();
            prop_assert!(sorted.iter().copied().eq(0..pages.len() as u64));
            // The items of a group of pages all come before those of the next group.
            let mut groups: Vec<Vec<u64>> = vec![Vec::new()];
            for item in &all {
                let page = pages[*item as usize];
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
            for (position, item) in all.iter().enumerate() {
                prop_assert_eq!(order.position_of(*item), position as u64);
            }
            let from = from % all.len();
            let mut rest = vec![0; all.len() - from];
            order.fill(from as u64, &mut rest);
            prop_assert_eq!(&rest[..], &all[from..]);
        }
    }
}
