//! The nodes of a job, each of which prefers the items that it has read before.

use ringmain_backends::mix;

/// The items of a batch that are computed at a time: few enough for the stack.
const CHUNK_ITEMS: usize = 512;

/// The division of global batches among nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Nodes {
    /// The number of nodes; 0 or 1 if the ranks do not care. There are at most as many as a batch that nodes
    /// divide has items, so that their products with 2^31 fit in 64 bits.
    pub(super) count: u64,
    /// The number of consecutive items that prefer the same node, at least 1.
    pub(super) block_items: u64,
}

impl Nodes {
    pub(super) fn node_of(&self, rank: u64, world: u64) -> u64 {
        rank / (world / self.count).max(1)
    }

    /// Fills in the items of a node, without the first `skipped` of them. `rooms` has the number of items of each node,
    /// and `fill` fills in the items at the places of the batch from one place on.
    ///
    /// An item goes to the node that it prefers while there is room; the others fill the rooms that are left, in
    /// order. So every rank looks at all items of the batch, but only keeps those that may be its own.
    pub(super) fn fill(
        &self,
        node: u64,
        mut rooms: Vec<u64>,
        skipped: u64,
        items: &mut [u64],
        fill: impl Fn(u64, &mut [u64]),
    ) {
        let (len, node) = (rooms.iter().sum(), node as usize);
        let mut at_home = Vec::with_capacity(rooms[node] as usize);
        let (mut homeless, mut homes) = (Vec::new(), Homes::new(*self));
        let mut chunk = [0; CHUNK_ITEMS];
        for start in (0..len).step_by(CHUNK_ITEMS) {
            let chunk = &mut chunk[..((len - start) as usize).min(CHUNK_ITEMS)];
            fill(start, chunk);
            for (place, item) in (start..).zip(chunk.iter()) {
                let home = homes.of(*item) as usize;
                match rooms.get_mut(home) {
                    Some(room) if *room > 0 => {
                        *room -= 1;
                        if home == node {
                            at_home.push((place, *item));
                        }
                    }
                    _ => homeless.push((place, *item)),
                }
            }
        }
        let of_earlier: u64 = rooms[..node].iter().sum();
        let others = homeless.into_iter().skip(of_earlier as usize).take(rooms[node] as usize);
        let ours = merged(at_home.into_iter(), others).skip(skipped as usize);
        items.iter_mut().zip(ours).for_each(|(item, (_, found))| *item = found);
    }

    /// Returns the node that a block prefers: jump consistent hashing (Lamping and Veach, 2014), which moves few
    /// blocks if the number of nodes changes.
    fn home_of(&self, block: u64) -> u64 {
        let mut key = mix(block + 1);
        let (mut home, mut next) = (0, 0);
        while next < self.count {
            home = next;
            key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
            next = ((home + 1) << 31) / ((key >> 33) + 1);
        }
        home
    }
}

/// Finds the home of one item after the other. In many orders, consecutive items lie in one block.
struct Homes {
    nodes: Nodes,
    /// The first item of the last block.
    block_start: u64,
    home: u64,
}

impl Homes {
    fn new(nodes: Nodes) -> Self {
        Self { nodes, block_start: 0, home: nodes.home_of(0) }
    }

    fn of(&mut self, item: u64) -> u64 {
        if item.wrapping_sub(self.block_start) >= self.nodes.block_items {
            let block = item / self.nodes.block_items;
            self.block_start = block * self.nodes.block_items;
            self.home = self.nodes.home_of(block);
        }
        self.home
    }
}

/// Merges two lists of places and items, each in the order of the places.
fn merged(
    left: impl Iterator<Item = (u64, u64)>,
    right: impl Iterator<Item = (u64, u64)>,
) -> impl Iterator<Item = (u64, u64)> {
    let (mut left, mut right) = (left.peekable(), right.peekable());
    std::iter::from_fn(move || match (left.peek(), right.peek()) {
        (Some(one), Some(other)) if other < one => right.next(),
        (Some(_), _) => left.next(),
        (None, _) => right.next(),
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The homes never change, or the nodes would find none of the items that they have in their caches.
    #[test]
    fn the_homes_are_pinned() {
        let nodes = Nodes { count: 5, block_items: 3 };
        let homes: Vec<u64> = (0..12).map(|block| nodes.home_of(block)).collect();
        assert_eq!(homes, [0, 3, 0, 1, 0, 4, 4, 0, 1, 2, 4, 3]);
        let most = Nodes { count: 1 << 24, block_items: 1 };
        assert!(most.home_of(u64::MAX - 1) < 1 << 24, "no product overflows");
    }

    #[test]
    fn a_share_takes_one_pass_over_the_batch_and_no_item_is_lost() {
        let nodes = Nodes { count: 8, block_items: 3 };
        let (computed, mut all) = (Cell::new(0), Vec::new());
        for node in 0..8 {
            let mut items = [0; 250];
            nodes.fill(node, vec![250; 8], 0, &mut items, |from, items| {
                items.iter_mut().zip(from..).for_each(|(item, at)| *item = at * 7 % 2000);
                computed.set(computed.get() + items.len());
            });
            all.extend(items);
        }
        assert_eq!(computed.get(), 8 * 2000);
        all.sort_unstable();
        assert!(all.into_iter().eq(0..2000));
    }
}
