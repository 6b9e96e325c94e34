//! The hints that the kernel was given about the order in which a file is read.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::Access;

/// Adapts the kernel's readahead to the reads of a file.
///
/// The kernel reads ahead of a miss: 128 KiB on most machines, 8 MiB on some. A stream wants that,
/// a batch of scattered ranges must not have it. So the first batch switches readahead off, and two
/// single reads that follow one another switch it on again. The switches are hints: threads that
/// disagree about them lose time, never bytes.
#[derive(Debug)]
pub(crate) struct AccessHint {
    /// An [`Access`]: what the caller knows.
    access: AtomicU8,
    /// The kernel's hint says that reads are scattered.
    is_scattered: AtomicBool,
    /// Where the last single read ended, while `is_scattered`.
    last_end: AtomicU64,
}

impl AccessHint {
    /// Gives the kernel a hint if the order is known; `advise` gives it.
    pub(crate) fn new(access: Access, advise: impl FnOnce(Access)) -> Self {
        if access != Access::AsItComes {
            advise(access);
        }
        let is_scattered = AtomicBool::new(access == Access::Random);
        let access = AtomicU8::new(access as u8);
        Self { access, is_scattered, last_end: AtomicU64::new(u64::MAX) }
    }

    /// The caller now knows the order.
    pub(crate) fn set(&self, access: Access, advise: impl FnOnce(Access)) {
        if self.access.swap(access as u8, Ordering::Relaxed) != access as u8 {
            advise(access);
            self.is_scattered.store(access == Access::Random, Ordering::Relaxed);
        }
    }

    fn is_known(&self) -> bool {
        self.access.load(Ordering::Relaxed) != Access::AsItComes as u8
    }

    /// Several ranges are going to be read: the kernel is to bring in these and no more.
    pub(crate) fn expect_batch(&self, advise: impl FnOnce(Access)) {
        if !self.is_known() && !self.is_scattered.load(Ordering::Relaxed) {
            advise(Access::Random);
            self.is_scattered.store(true, Ordering::Relaxed);
        }
    }

    /// One range is going to be read. If it begins where the last one ended, this is a stream.
    pub(crate) fn expect_single(&self, start: u64, end: u64, advise: impl FnOnce(Access)) {
        if self.is_known() || !self.is_scattered.load(Ordering::Relaxed) {
            return;
        }
        if self.last_end.swap(end, Ordering::Relaxed) == start {
            self.expect_stream(advise);
        }
    }

    /// Reads follow one another: the kernel is to read ahead.
    pub(crate) fn expect_stream(&self, advise: impl FnOnce(Access)) {
        if !self.is_known() && self.is_scattered.load(Ordering::Relaxed) {
            advise(Access::AsItComes);
            self.is_scattered.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn batches_and_streams_take_turns() {
        let told = RefCell::new(Vec::new());
        let advise = |access| told.borrow_mut().push(access);
        let hint = AccessHint::new(Access::AsItComes, advise);
        hint.expect_single(0, 10, advise);
        hint.expect_batch(advise);
        hint.expect_batch(advise);
        assert_eq!(told.take(), [Access::Random], "told once");
        hint.expect_single(50, 60, advise);
        hint.expect_single(70, 80, advise);
        assert!(told.borrow().is_empty(), "single reads here and there are no stream");
        hint.expect_single(80, 90, advise);
        assert_eq!(told.take(), [Access::AsItComes]);
    }

    #[test]
    fn an_order_that_the_caller_knows_stays() {
        for access in [Access::Random, Access::Sequential] {
            let told = RefCell::new(Vec::new());
            let advise = |access| told.borrow_mut().push(access);
            let hint = AccessHint::new(access, advise);
            hint.expect_batch(advise);
            hint.expect_single(0, 10, advise);
            hint.expect_single(10, 20, advise);
            assert_eq!(told.take(), [access]);
            hint.set(access, advise);
            assert!(told.borrow().is_empty(), "told before");
            hint.set(Access::AsItComes, advise);
            hint.expect_batch(advise);
            assert_eq!(told.take(), [Access::AsItComes, Access::Random]);
        }
    }
}
