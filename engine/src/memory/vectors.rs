//! Memory outside the pool, and reusable lists of reads.

use ringmain_backends::Read;

use crate::Result;
use crate::array::element::Decode;

/// Returns zeroed memory; an error instead of an abort if there is none.
pub(crate) fn vec_of(bytes: usize) -> Result<Vec<u8>> {
    u8::read_vec(bytes, |_| Ok(()))
}

/// Empties the list and returns it for reads of another lifetime. It keeps its memory, because
/// collecting an emptied vector does.
pub(crate) fn recycled<'b>(mut reads: Vec<Read<'_>>) -> Vec<Read<'b>> {
    reads.clear();
    reads.into_iter().map(|_| unreachable!("the vector is empty")).collect()
}
