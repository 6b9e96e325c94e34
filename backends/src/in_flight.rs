//! How much of a batch through the page cache is in flight together.

use crate::Read;

/// Reads in flight together: more than the queue of any one device holds.
pub(crate) const READS_MAX: usize = 256;

/// Bytes in flight together. Pages on their way in count as used memory; with more of them the
/// kernel may take the first ones back before they are copied.
const BYTES_MAX: usize = 32 << 20;

/// How many reads of a batch, from its front, may be in flight together: at least one.
pub(crate) fn window_len(reads: &[Read<'_>]) -> usize {
    let mut bytes = 0usize;
    let fits = |read: &&Read<'_>| {
        bytes = bytes.saturating_add(read.len());
        bytes <= BYTES_MAX
    };
    reads.iter().take(READS_MAX).take_while(fits).count().max(1)
}
