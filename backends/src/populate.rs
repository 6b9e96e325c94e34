//! Fresh memory gets its pages before somebody waits for them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::buffer::HUGE_PAGE_BYTES;
use crate::sys;

/// A huge page that takes longer is one that the kernel had to make room for, or that a hypervisor had
/// taken away. Zeroing it takes 0.2 ms, and the same memory in small pages 1.4 ms.
const HUGE_PAGE_SLOW: Duration = Duration::from_millis(3);

/// After a slow one, so much memory is had in small pages before huge ones are tried again.
const FORGONE_BYTES: usize = 256 << 20;

/// Memory for which huge pages are not to be tried. A guess: threads may count it down together.
static TO_FORGO_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Asks the system for the pages of this memory now, and changes nothing of what is in it.
///
/// Untouched memory has no pages yet, and whoever writes to it first, be it the device, waits for
/// them. A thread can ask ahead of the reads. Memory that was to have huge pages gets small ones while
/// huge ones are slow to come: on a machine that has none left, or whose host takes them back when
/// they are free.
///
/// False where the system cannot be asked (before Linux 5.14); then all is as it was.
///
/// ```
/// use ringmain_backends::{Buffer, populate};
///
/// let mut weights = Buffer::unpooled(100_000)?;
/// println!("populated: {}", populate(&mut weights));
/// assert!(weights.iter().all(|byte| *byte == 0));
/// # Ok::<(), ringmain_backends::Error>(())
/// ```
pub fn populate(memory: &mut [u8]) -> bool {
    let mut rest = memory;
    let mut may_be_huge = true;
    while !rest.is_empty() {
        let to_forgo = TO_FORGO_BYTES.load(Ordering::Relaxed);
        if to_forgo > 0 && may_be_huge {
            // All of the rest: memory whose parts differ is several mappings to the kernel.
            sys::refuse_huge_pages(rest);
            may_be_huge = false;
        }
        // In steps, so that no call keeps a signal waiting.
        let (step, after) = rest.split_at_mut(HUGE_PAGE_BYTES.min(rest.len()));
        let started = Instant::now();
        if sys::populate_memory(step).is_err() {
            return false;
        }
        if !may_be_huge {
            TO_FORGO_BYTES.store(to_forgo.saturating_sub(step.len()), Ordering::Relaxed);
        } else if started.elapsed() > HUGE_PAGE_SLOW {
            TO_FORGO_BYTES.store(FORGONE_BYTES, Ordering::Relaxed);
        }
        rest = after;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buffer;

    #[cfg(target_os = "linux")]
    fn anonymous_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    // The counters of the process are those of all its tests.
    #[cfg(target_os = "linux")]
    #[test]
    fn huge_pages_and_small_ones_are_all_there_and_keep_what_is_written() {
        const BYTES: usize = 64 << 20;
        for to_forgo in [0, FORGONE_BYTES] {
            TO_FORGO_BYTES.store(to_forgo, Ordering::Relaxed);
            let mut buffer = Buffer::unpooled(BYTES + 4097).unwrap();
            buffer[..3].copy_from_slice(b"abc");
            let before = anonymous_kib();
            assert!(populate(&mut buffer));
            let grown = anonymous_kib() - before;
            assert!(grown > (BYTES as u64 - (8 << 20)) / 1024, "{grown} KiB, {to_forgo} to forgo");
            assert_eq!(&buffer[..4], b"abc\0");
        }
    }

    #[test]
    fn memory_that_is_no_whole_page_is_left_as_it_is() {
        let mut buffer = Buffer::unpooled(8192).unwrap();
        buffer.fill(7);
        for range in [0..0, 1..4095, 5..8000, 0..8192] {
            populate(&mut buffer[range]);
        }
        assert!(buffer.iter().all(|byte| *byte == 7));
        let mut own = vec![3u8; 100_000];
        populate(&mut own);
        assert!(own.iter().all(|byte| *byte == 3));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_that_was_forgone_is_counted_down() {
        TO_FORGO_BYTES.store(4 << 20, Ordering::Relaxed);
        let mut buffer = Buffer::unpooled(4 << 20).unwrap();
        assert!(populate(&mut buffer));
        // Another test may have set it anew, but not to what it was.
        assert_ne!(TO_FORGO_BYTES.load(Ordering::Relaxed), 4 << 20);
    }
}
