//! Reads without the interpreter lock, in parts small enough that Ctrl-C ends them soon.

use pyo3::prelude::*;

use crate::error::{Failure, Result};

/// How much is read before Python looks for signals: a tenth of a second on a slow device, and
/// so much that asking costs nothing.
pub(crate) const PART_BYTES: usize = 32 << 20;

/// Does something that takes its time while other threads run Python.
pub(crate) fn detached<T: Send, E: Into<Failure> + Send>(
    py: Python<'_>,
    work: impl FnOnce() -> std::result::Result<T, E> + Send,
) -> Result<T> {
    py.detach(work).map_err(Into::into)
}

/// Reads `dst` in parts of whole units of `unit_bytes`, `read` being told where in units each part
/// begins. Between two parts, Ctrl-C raises `KeyboardInterrupt`.
pub(crate) fn in_parts<E: Into<Failure> + Send>(
    py: Python<'_>,
    dst: &mut [u8],
    unit_bytes: usize,
    read: impl Fn(usize, &mut [u8]) -> std::result::Result<(), E> + Sync,
) -> Result<()> {
    let unit_bytes = unit_bytes.max(1);
    let units = (PART_BYTES / unit_bytes).max(1);
    for (at, part) in dst.chunks_mut(units.saturating_mul(unit_bytes)).enumerate() {
        if at > 0 {
            py.check_signals()?;
        }
        detached(py, || read(at * units, part))?;
    }
    Ok(())
}
