//! Threads that copy a batch from the page cache together.
//!
//! One thread copies 4 to 9 GB/s, and memory is faster than that. So the caller of a large batch invites a few helper
//! threads, and they and the caller copy it part by part. The caller does not wait for helpers that have not woken up
//! yet, which happens on a busy machine.

use smallvec::SmallVec;

use super::flight::FLIGHT_READS_MAX;
use crate::Read;
use crate::sync::{Mutex, PoisonError};
use crate::sys::{self, PerProcess};
use crate::workers::Workers;

/// How many bytes of each read were copied; `None` if the system did not say.
pub(super) type CopiedBytes = SmallVec<[Option<usize>; FLIGHT_READS_MAX]>;

/// A smaller batch is copied before a helper wakes up.
const SHARED_BYTES_MIN: usize = 384 << 10;

/// A thread copies a part in 10 to 40 µs: long enough to be worth taking, short enough that no thread waits
/// long for another at the end.
const PART_BYTES: usize = 128 << 10;

const PARTS_MAX: usize = 64;

/// More threads would use up the bandwidth of memory that others need.
const THREADS_MAX: usize = 4;

/// The helpers of a backend. They are started by the first large batch.
#[derive(Debug)]
pub(super) struct Copiers {
    workers: PerProcess<Workers>,
    threads: usize,
}

impl Copiers {
    /// With no more threads than processors, the calling one included. Helpers only help with calls that do not wait.
    pub(super) fn new(threads_max: usize) -> Self {
        let processors = match std::thread::available_parallelism() {
            Ok(processors) if sys::COPIES_NOWAIT => processors.get(),
            _ => 1,
        };
        Self::with_threads(threads_max.min(processors).min(THREADS_MAX))
    }

    fn with_threads(threads: usize) -> Self {
        let workers = PerProcess::new(move |_inherited| Workers::new("ringmain-copy", threads - 1));
        Self { workers, threads }
    }

    /// Calls `copy` for all reads, in parts if they are worth it, and returns when all of them are done.
    pub(super) fn share(
        &self,
        reads: &mut [Read<'_>],
        copied: &mut [Option<usize>],
        copy: impl Fn(&mut [Read<'_>], &mut [Option<usize>]) + Sync,
    ) {
        let bytes: usize = reads.iter().map(|read| read.len()).sum();
        if self.threads == 1 || bytes < SHARED_BYTES_MIN {
            return copy(reads, copied);
        }
        let parts_wanted = (bytes / PART_BYTES).min(PARTS_MAX);
        let part_reads = reads.len().div_ceil(parts_wanted);
        let parts = reads.chunks_mut(part_reads).zip(copied.chunks_mut(part_reads));
        // Each is taken once.
        let parts: SmallVec<[_; PARTS_MAX]> = parts.map(|part| Mutex::new(Some(part))).collect();
        self.workers.get().run(parts.len(), &|at| {
            let part = parts[at].lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some((reads, copied)) = part {
                copy(reads, copied);
            }
        });
    }
}

// Not on Windows, where no helpers are invited.
#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::collections::HashSet;
    use std::thread::{self, ThreadId};
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;
    use crate::{FileHandle, MemoryBackend, ReadBackend};

    fn file() -> FileHandle {
        let memory = MemoryBackend::new();
        memory.insert("data", vec![0; 10]);
        memory.open("data".as_ref()).unwrap()
    }

    proptest! {
        #[test]
        fn every_read_is_copied_once_and_has_its_own_answer(
            lens in prop::collection::vec(0..80_000_usize, 0..FLIGHT_READS_MAX),
            threads_max in 1..6_usize,
        ) {
            let file = file();
            let mut memory: Vec<Vec<u8>> = lens.iter().map(|len| vec![0; *len]).collect();
            let mut reads: Vec<_> =
                memory.iter_mut().map(|dst| Read::new(&file, 0, dst)).collect();
            let mut copied = CopiedBytes::from_elem(None, lens.len());
            Copiers::with_threads(threads_max).share(&mut reads, &mut copied, |reads, copied| {
                for (read, copied) in reads.iter_mut().zip(copied) {
                    read.dst().iter_mut().take(1).for_each(|byte| *byte += 1);
                    *copied = Some(read.len());
                }
            });
            prop_assert!(copied.iter().copied().eq(lens.iter().map(|len| Some(*len))));
            prop_assert!(memory.iter().filter_map(|dst| dst.first()).all(|byte| *byte == 1));
        }
    }

    #[test]
    fn two_threads_copy_a_large_batch_and_one_a_small_batch() {
        let copiers = Copiers::with_threads(2);
        let (large, small) = (SHARED_BYTES_MIN / 4, SHARED_BYTES_MIN / 8);
        for (read_bytes, threads) in [(large, 2), (small, 1)] {
            let file = file();
            let mut memory = vec![0; 4 * read_bytes];
            let mut reads: Vec<_> =
                memory.chunks_mut(read_bytes).map(|dst| Read::new(&file, 0, dst)).collect();
            // Each part waits until enough threads have taken one, so that one thread cannot take all.
            let seen = Mutex::new(HashSet::<ThreadId>::new());
            copiers.share(&mut reads, &mut [None; 4], |_, _| {
                let lock = || seen.lock().unwrap_or_else(PoisonError::into_inner);
                lock().insert(thread::current().id());
                let started = Instant::now();
                while lock().len() < threads && started.elapsed() < Duration::from_secs(60) {
                    thread::yield_now();
                }
            });
            let seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
            assert_eq!(seen.len(), threads);
        }
    }
}
