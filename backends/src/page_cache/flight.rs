//! How much of a batch through the page cache is in flight together.

use std::time::{Duration, Instant};

use crate::Read;

/// Reads in flight together: more than the queue of any one device holds.
pub(crate) const FLIGHT_READS_MAX: usize = 256;

/// Bytes in flight together. Pages on their way in count as used memory; with more of them the
/// kernel may take the first ones back before they are copied.
const FLIGHT_BYTES_MAX: usize = 32 << 20;

/// Returns how many reads of a batch, from its front, may be in flight together: at least one.
pub(crate) fn reads_together(reads: &[Read<'_>]) -> usize {
    let mut bytes = 0usize;
    let fits = |read: &&Read<'_>| {
        bytes = bytes.saturating_add(read.len());
        bytes <= FLIGHT_BYTES_MAX
    };
    reads.iter().take(FLIGHT_READS_MAX).take_while(fits).count().max(1)
}

/// In a batch of fewer reads and fewer bytes the clock would cost more than 3 % of the time of a warm read.
const TIMED_READS_MIN: usize = 8;
const TIMED_BYTES_MIN: usize = 64 << 10;

/// Returns `true` if the batch is large enough to find out whether it has to wait for the device.
pub(crate) fn is_worth_timing(reads: &[Read<'_>]) -> bool {
    reads.len() >= TIMED_READS_MIN
        || reads.iter().map(Read::len).fold(0, usize::saturating_add) >= TIMED_BYTES_MIN
}

/// Returns `true` if a read that began then has waited for the device. Copying what is in memory takes less
/// than 1 ns a byte, and 20 µs for good measure; a device takes 50 µs and more. A thread that lost
/// the processor in between looks as if it had waited, which costs one useless request for each
/// read.
pub(crate) fn has_waited(since: Instant, len: usize) -> bool {
    since.elapsed() > Duration::from_micros(20) + Duration::from_nanos(len as u64)
}
