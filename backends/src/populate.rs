//! Gives fresh memory its pages in advance, so that no read has to wait for them.

use crate::buffer::HUGE_PAGE_BYTES;
use crate::sys;

/// Asks the system for the pages of this memory now. The contents stay the same.
///
/// Untouched memory has no pages yet, and the first write to it, even one by the device, waits for
/// them. A thread can ask for the pages ahead of the reads.
///
/// Returns false if the system cannot do that (before Linux 5.14); then nothing has changed.
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
    // In steps, so that no call keeps a signal waiting.
    memory.chunks_mut(HUGE_PAGE_BYTES).all(|step| sys::populate_memory(step).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buffer;

    /// Returns how much of the memory has pages, swapped out or not, by proc_pid_pagemap(5): the counters
    /// of the process include all tests that run at the same time.
    #[cfg(target_os = "linux")]
    fn populated_bytes(memory: &[u8]) -> usize {
        use std::os::unix::fs::FileExt;

        const PRESENT_OR_SWAPPED: u64 = 3 << 62;
        let page_bytes = sys::page_bytes();
        let first_page = memory.as_ptr().addr() / page_bytes;
        let mut entries = vec![0; memory.len() / page_bytes * 8];
        let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
        pagemap.read_exact_at(&mut entries, first_page as u64 * 8).unwrap();
        let is_there = |entry: &&[u8]| {
            u64::from_ne_bytes((*entry).try_into().unwrap()) & PRESENT_OR_SWAPPED != 0
        };
        entries.chunks_exact(8).filter(is_there).count() * page_bytes
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn all_pages_are_there_and_keep_what_is_written() {
        const BYTES: usize = 64 << 20;
        let mut buffer = Buffer::unpooled(BYTES + 4097).unwrap();
        buffer[..3].copy_from_slice(b"abc");
        assert!(populated_bytes(&buffer) <= HUGE_PAGE_BYTES);
        assert!(populate(&mut buffer));
        assert!(populated_bytes(&buffer) >= BYTES, "{} bytes", populated_bytes(&buffer));
        assert_eq!(&buffer[..4], b"abc\0");
    }

    /// Of a page that lies partly outside, the rest may be another owner's.
    #[cfg(target_os = "linux")]
    #[test]
    fn pages_that_lie_partly_outside_are_left_alone() {
        let page = sys::page_bytes();
        // Small enough that no huge page covers it.
        let mut buffer = Buffer::unpooled(16 * page).unwrap();
        assert_eq!(populated_bytes(&buffer), 0);
        assert!(populate(&mut buffer[3 * page + 1..8 * page - 1]));
        assert_eq!(populated_bytes(&buffer[..4 * page]), 0);
        assert_eq!(populated_bytes(&buffer[4 * page..7 * page]), 3 * page);
        assert_eq!(populated_bytes(&buffer[7 * page..]), 0);
    }

    #[test]
    fn parts_of_pages_are_not_populated_and_keep_their_bytes() {
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
}
