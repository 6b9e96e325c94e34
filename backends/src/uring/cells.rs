//! Which parts of an arena are idle.

use std::ops::Range;

/// The idle parts of an arena, in order and never adjacent. There are at most as many as reads in
/// flight and one more, so a search is short.
#[derive(Debug, Default)]
pub(super) struct ArenaCells {
    idle: Vec<Range<usize>>,
}

impl ArenaCells {
    /// Everything of an arena of `arena_bytes` is idle, of which at most `taken_max` parts will be
    /// taken at once. The room for them is made here, so that no later batch allocates.
    pub(super) fn reset(&mut self, arena_bytes: usize, taken_max: usize) {
        self.idle.clear();
        self.idle.reserve(taken_max + 1);
        self.idle.push(0..arena_bytes);
    }

    /// The start of a part of `len` bytes, which is in use from now on.
    pub(super) fn take(&mut self, len: usize) -> Option<usize> {
        let at = self.idle.iter().position(|part| part.len() >= len)?;
        let start = self.idle[at].start;
        self.idle[at].start += len;
        if self.idle[at].is_empty() {
            self.idle.remove(at);
        }
        Some(start)
    }

    /// Makes a part that was taken idle again.
    pub(super) fn give_back(&mut self, part: Range<usize>) {
        let at = self.idle.partition_point(|idle| idle.start < part.start);
        let joins_next = self.idle.get(at).is_some_and(|next| next.start == part.end);
        let joins_last = at > 0 && self.idle[at - 1].end == part.start;
        match (joins_last, joins_next) {
            (false, false) => self.idle.insert(at, part),
            (false, true) => self.idle[at].start = part.start,
            (true, false) => self.idle[at - 1].end = part.end,
            (true, true) => {
                self.idle[at - 1].end = self.idle[at].end;
                self.idle.remove(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn large_and_small_parts_share_an_arena() {
        let mut cells = ArenaCells::default();
        cells.reset(100, 3);
        assert_eq!((cells.take(60), cells.take(60)), (Some(0), None));
        assert_eq!((cells.take(30), cells.take(10), cells.take(1)), (Some(60), Some(90), None));
        cells.give_back(0..60);
        assert_eq!((cells.take(10), cells.take(50)), (Some(0), Some(10)));
    }

    proptest! {
        #[test]
        fn parts_never_overlap_and_become_one_again(
            steps in prop::collection::vec((1..40usize, any::<prop::sample::Index>()), 0..200),
        ) {
            let mut cells = ArenaCells::default();
            cells.reset(256, 256);
            let mut taken: Vec<Range<usize>> = Vec::new();
            for (len, which) in steps {
                if len % 3 == 0 && !taken.is_empty() {
                    cells.give_back(taken.swap_remove(which.index(taken.len())));
                } else if let Some(start) = cells.take(len) {
                    let part = start..start + len;
                    prop_assert!(part.end <= 256);
                    prop_assert!(taken.iter().all(|t| t.end <= part.start || part.end <= t.start));
                    taken.push(part);
                }
            }
            taken.into_iter().for_each(|part| cells.give_back(part));
            prop_assert_eq!(cells.take(256), Some(0));
        }
    }
}
