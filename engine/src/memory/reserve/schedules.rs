//! Shares of a pool under chosen schedules.

use ringmain_backends::PoolOptions;
use ringmain_backends::sync::explore;

use super::*;
use crate::sync::thread;

const PAGE: usize = 4096;

fn reserve(pages: usize) -> Reserve {
    let options = PoolOptions { limit_bytes: pages * PAGE, ..PoolOptions::default() };
    Reserve::new(BufferPool::new(options).unwrap())
}

/// Two readers read ahead as far as they may, and give some of it back. A third one then finds the
/// memory of its share.
#[test]
fn readers_that_read_ahead_at_once_leave_the_shares_of_others() {
    explore(|| {
        let reserve = reserve(4);
        let share = || reserve.share(PAGE, BufferSizes::Equal);
        let (shares, idle_share) = ([(); 2].map(|()| share()), share());
        let held = thread::scope(|scope| {
            let read_ahead = |share: &Arc<Share>| {
                let share = Arc::clone(share);
                scope.spawn(move || {
                    drop(share.take(PAGE, Need::Ahead));
                    [(); 3].map(|()| share.take(PAGE, Need::Ahead).ok())
                })
            };
            let readers = shares.each_ref().map(read_ahead);
            readers.map(|reader| reader.join().unwrap())
        });
        assert!(idle_share.take(PAGE, Need::Awaited).is_ok(), "its share was taken");
        let counted = held.iter().flatten().flatten().count();
        assert!(counted >= 2, "{counted} buffers: neither could use its own share");
        drop((held, shares, idle_share));
        assert_eq!(reserve.unclaimed_bytes.load(Ordering::SeqCst), 0);
        assert_eq!(reserve.pool.stats().in_use_bytes, 0);
    });
}

/// The reader takes the next buffer while its consumer returns the last one.
#[test]
fn a_share_can_be_claimed_while_it_is_released() {
    explore(|| {
        let reserve = reserve(4);
        let share = reserve.share(PAGE, BufferSizes::Equal);
        let unclaimed = || reserve.unclaimed_bytes.load(Ordering::SeqCst);
        let last = share.take(PAGE, Need::Ahead).unwrap();
        let next = thread::scope(|scope| {
            scope.spawn(|| drop(last));
            scope.spawn(|| share.take(PAGE, Need::Ahead).unwrap()).join().unwrap()
        });
        assert_eq!(unclaimed(), 0, "the share is in use");
        drop(next);
        assert_eq!(unclaimed(), share.bytes);
    });
}
