//! Fresh memory gets its pages before somebody waits for them.

use crate::buffer::HUGE_PAGE_BYTES;
use crate::sys;

/// Asks the system for the pages of this memory now, and changes nothing of what is in it.
///
/// Untouched memory has no pages yet, and whoever writes to it first, be it the device, waits for
/// them. A thread can ask ahead of the reads.
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
    // In steps, so that no call keeps a signal waiting.
    memory.chunks_mut(HUGE_PAGE_BYTES).all(|step| sys::populate_memory(step).is_ok())
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

    // The counters of the process are those of all its tests, which have less.
    #[cfg(target_os = "linux")]
    #[test]
    fn all_pages_are_there_and_keep_what_is_written() {
        const BYTES: usize = 64 << 20;
        let mut buffer = Buffer::unpooled(BYTES + 4097).unwrap();
        buffer[..3].copy_from_slice(b"abc");
        let before = anonymous_kib();
        assert!(populate(&mut buffer));
        let grown = anonymous_kib() - before;
        assert!(grown > (BYTES as u64 - (8 << 20)) / 1024, "{grown} KiB");
        assert_eq!(&buffer[..4], b"abc\0");
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
}
