//! Memory outside the pool, and reusable lists of reads.

use ringmain_backends::Read;

use crate::{Error, Result};

/// Returns zeroed elements; an error instead of an abort if there is no memory.
pub(crate) fn zeroed<T: bytemuck::Zeroable>(len: usize) -> Result<Vec<T>> {
    let bytes = len.saturating_mul(size_of::<T>());
    bytemuck::try_zeroed_vec(len).map_err(|()| Error::OutOfMemory { bytes })
}

/// Empties the list and returns it for reads of another lifetime. It keeps its memory, because
/// collecting an emptied vector does.
pub(crate) fn recycled<'b>(mut reads: Vec<Read<'_>>) -> Vec<Read<'b>> {
    reads.clear();
    reads.into_iter().map(|_| unreachable!("the vector is empty")).collect()
}
