//! The buffers of a batch under chosen schedules.

use super::*;
use crate::PoolOptions;
use crate::buffer::PAGE_BYTES;
use crate::sync::{choose, explore, step, thread};

fn spent_is_an_error(pages: usize) -> BufferPool {
    let limit_bytes = pages * PAGE_BYTES;
    BufferPool::new(PoolOptions { limit_bytes, when_spent: WhenSpent::Fail }).unwrap()
}

/// More threads than buffers: none may fail because of the others.
#[test]
fn threads_of_a_batch_share_what_the_pool_has() {
    explore(|| {
        let pool = spent_is_an_error(1 + choose(2));
        let bounces = BatchBounces::new(&pool);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..2 {
                        let bounce = bounces.take(PAGE_BYTES).unwrap();
                        step();
                        drop(bounce);
                    }
                });
            }
        });
        assert_eq!(*bounces.lock(), 0);
        assert_eq!(pool.stats().in_use_bytes, 0);
    });
}

/// If the batch holds no buffer and others hold all, its threads fail instead of waiting.
#[test]
fn a_batch_that_holds_nothing_fails() {
    explore(|| {
        let pool = spent_is_an_error(1);
        let bounces = BatchBounces::new(&pool);
        thread::scope(|scope| {
            scope.spawn(|| {
                let held = pool.take(PAGE_BYTES);
                step();
                drop(held);
            });
            for _ in 0..2 {
                scope.spawn(|| match bounces.take(PAGE_BYTES) {
                    Ok(_) | Err(Error::PoolExhausted { .. }) => {}
                    Err(error) => panic!("{error}"),
                });
            }
        });
        assert_eq!(*bounces.lock(), 0);
    });
}
