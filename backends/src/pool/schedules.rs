//! The pool under chosen schedules.

use std::sync::atomic::{AtomicUsize as Count, Ordering as CountOrdering};

use super::*;
use crate::sync::{FOREVER, explore, step, thread};

const PATIENCE: Duration = Duration::from_secs(1);

fn pool(pages: usize, timeout: Duration) -> BufferPool {
    let when_spent = WhenSpent::Wait { timeout };
    BufferPool::new(PoolOptions { limit_bytes: pages * PAGE_BYTES, when_spent }).unwrap()
}

fn assert_within_limit(pool: &BufferPool) {
    let stats = pool.stats();
    assert!(stats.in_use_bytes + stats.idle_bytes <= stats.limit_bytes, "{stats:?}");
}

/// The books at the end, when no caller holds a buffer.
fn assert_at_rest(pool: &BufferPool) {
    let state = pool.shelf.get().lock();
    assert_eq!((state.in_use_bytes, state.waiting), (0, 0));
    assert_eq!(state.idle_bytes, state.idle.iter().map(AlignedMemory::capacity).sum::<usize>());
}

/// A missed notification would leave a thread waiting forever.
#[test]
fn every_waiter_is_served_within_the_limit() {
    explore(|| {
        let (pool, held_bytes) = (pool(2, FOREVER), Count::new(0));
        thread::scope(|scope| {
            for sizes in [[1, 2], [2, 1], [1, 1]] {
                let (pool, held_bytes) = (&pool, &held_bytes);
                scope.spawn(move || {
                    for bytes in sizes.map(|pages| pages * PAGE_BYTES) {
                        let buffer = pool.take(bytes).unwrap();
                        let held = held_bytes.fetch_add(bytes, CountOrdering::SeqCst) + bytes;
                        assert!(held <= pool.limit_bytes(), "{held} bytes are handed out");
                        assert_within_limit(pool);
                        held_bytes.fetch_sub(bytes, CountOrdering::SeqCst);
                        drop(buffer);
                    }
                });
            }
        });
        assert_at_rest(&pool);
    });
}

/// Two threads wait for the halves of one large buffer. Each keeps its half until the other has
/// one too, so it is not enough to wake one of them.
#[test]
fn a_returned_buffer_serves_all_waiters_that_it_has_room_for() {
    explore(|| {
        let (pool, served) = (pool(2, FOREVER), Mutex::new(0));
        let all_served = Condvar::new();
        let whole = pool.take(2 * PAGE_BYTES).unwrap();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let _half = pool.take(PAGE_BYTES).unwrap();
                    let mut served = served.lock().unwrap();
                    *served += 1;
                    all_served.notify_all();
                    drop(all_served.wait_while(served, |served| *served < 2).unwrap());
                });
            }
            scope.spawn(|| drop(whole));
        });
        assert_at_rest(&pool);
    });
}

/// Each of three threads holds a page and asks for another, but there are only four.
#[test]
fn a_waiter_gets_its_buffer_or_its_error() {
    explore(|| {
        let pool = pool(4, PATIENCE);
        let first_pages = [(); 3].map(|()| pool.take(PAGE_BYTES).unwrap());
        let failures = Count::new(0);
        thread::scope(|scope| {
            for first_page in first_pages {
                let (pool, failures) = (&pool, &failures);
                scope.spawn(move || {
                    let _first_page = first_page;
                    let started = Instant::now();
                    match pool.take(PAGE_BYTES) {
                        Ok(_second_page) => assert_within_limit(pool),
                        Err(Error::PoolExhausted { in_use_bytes, limit_bytes, .. }) => {
                            assert_eq!(in_use_bytes, limit_bytes, "a page was free");
                            assert!(started.elapsed() >= PATIENCE, "{:?}", started.elapsed());
                            failures.fetch_add(1, CountOrdering::SeqCst);
                        }
                        Err(error) => panic!("{error}"),
                    }
                });
            }
        });
        assert!(failures.into_inner() < 3, "the last one to wait has room");
        assert_at_rest(&pool);
    });
}

#[cfg(linux_uring)]
#[test]
fn loans_of_several_threads_are_half_of_the_pool_at_most() {
    explore(|| {
        let (pool, lent_bytes) = (pool(16, FOREVER), Count::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..2 {
                        let Some(loan) = pool.lend(4 * PAGE_BYTES, 2 * PAGE_BYTES) else {
                            continue;
                        };
                        let bytes = loan.buffer.as_ref().unwrap().len();
                        let lent = lent_bytes.fetch_add(bytes, CountOrdering::SeqCst) + bytes;
                        assert!(lent <= pool.limit_bytes() / 2, "{lent} bytes are lent");
                        step();
                        lent_bytes.fetch_sub(bytes, CountOrdering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(pool.shelf.get().lent_bytes.load(Ordering::SeqCst), 0);
        assert_at_rest(&pool);
    });
}
