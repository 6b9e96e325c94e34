//! Divides the images of a batch among threads.

use std::iter::Enumerate;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::{Error, Result};

/// The images that are left, and the first failure.
struct Images<I: Iterator> {
    left: Mutex<Enumerate<I>>,
    is_over: AtomicBool,
    failure: Mutex<Option<(usize, Error)>>,
}

/// Calls `work` for each image with its number, on this thread and on others, with a state for each thread. Returns the
/// failure of the first image that failed, or `false` if `go_on` returned `false`; it is called on this thread, before
/// each of its images. No image is begun after a failure.
///
/// Images are handed out in order, and each of them is finished. So the first failure does not depend on the number of
/// threads.
pub(super) fn for_each<I: Iterator<Item: Send> + Send, S>(
    images: I,
    threads: NonZeroUsize,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize, I::Item) -> Result<()> + Sync,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<bool> {
    let images = Images {
        left: Mutex::new(images.enumerate()),
        is_over: AtomicBool::new(false),
        failure: Mutex::default(),
    };
    let mut is_ended = false;
    thread::scope(|scope| {
        for _ in 1..threads.get() {
            let thread = thread::Builder::new().name("decode".to_owned());
            // Without another thread, this one does all of the work.
            let run = || images.run(&state, &work, &mut || true);
            if thread.spawn_scoped(scope, run).is_err() {
                break;
            }
        }
        images.run(&state, &work, &mut || {
            is_ended |= !go_on();
            !is_ended
        });
    });
    match images.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, error)) if !is_ended => Err(error),
        _ => Ok(!is_ended),
    }
}

impl<I: Iterator> Images<I> {
    fn run<S>(
        &self,
        state: &impl Fn() -> S,
        work: &impl Fn(&mut S, usize, I::Item) -> Result<()>,
        go_on: &mut dyn FnMut() -> bool,
    ) {
        let mut state = state();
        loop {
            let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let Some((at, image)) = left.next() else { return };
            drop(left);
            if !go_on() {
                self.is_over.store(true, Ordering::Relaxed);
                return;
            }
            if let Err(error) = work(&mut state, at, image) {
                self.is_over.store(true, Ordering::Relaxed);
                let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
                if failure.as_ref().is_none_or(|(first, _)| at < *first) {
                    *failure = Some((at, error));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Barrier;

    use super::*;

    fn failing(at: usize) -> Error {
        Error::OutOfMemory { bytes: at }
    }

    #[test]
    fn each_image_is_worked_on_once_by_all_threads() {
        let (seen, threads) = (Mutex::new(Vec::new()), Mutex::new(HashSet::new()));
        // The first image of each thread waits for those of the others.
        let all = Barrier::new(3);
        let state = || false;
        let work = |waited: &mut bool, at: usize, image: usize| {
            assert_eq!(at, image);
            if !std::mem::replace(waited, true) {
                all.wait();
            }
            seen.lock().unwrap().push(image);
            threads.lock().unwrap().insert(thread::current().id());
            Ok(())
        };
        let three = NonZeroUsize::new(3).unwrap();
        assert!(for_each(0..50, three, state, work, &mut || true).unwrap());
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..50));
        assert_eq!(threads.into_inner().unwrap().len(), 3);
    }

    #[test]
    fn the_first_failure_is_returned_for_any_number_of_threads() {
        for threads in 1..5 {
            // No image fails before each thread has one that will.
            let all = Barrier::new(threads);
            let work = |_: &mut (), at, _| {
                if at < 7 {
                    return Ok(());
                }
                all.wait();
                Err(failing(at))
            };
            let threads = NonZeroUsize::new(threads).unwrap();
            let error = for_each(0..40, threads, || (), work, &mut || true).unwrap_err();
            assert!(matches!(error, Error::OutOfMemory { bytes: 7 }), "{error}");
        }
    }

    #[test]
    fn an_end_between_two_images_is_no_error() {
        let mut left = 2;
        let done = Mutex::new(Vec::new());
        let work = |_: &mut (), at, _| {
            done.lock().unwrap().push(at);
            Ok(())
        };
        let mut go_on = || {
            left -= 1;
            left >= 0
        };
        assert!(!for_each(0..9, NonZeroUsize::MIN, || (), work, &mut go_on).unwrap());
        assert_eq!(done.into_inner().unwrap(), [0, 1]);
    }
}
