//! Reads without the interpreter lock, in parts small enough that Ctrl-C ends them soon.

use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::error::{Failure, Result};

/// How much is read before Python looks for signals: a tenth of a second on a slow device, and
/// so much that asking costs nothing.
pub(crate) const PART_BYTES: usize = 32 << 20;

/// How long a read goes on before it asks for signals: short for who waits, and long for a thread
/// that has to wait for the lock, which another may keep for 5 ms.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Does something that takes its time while other threads run Python.
pub(crate) fn detached<T: Send, E: Into<Failure> + Send>(
    py: Python<'_>,
    work: impl FnOnce() -> std::result::Result<T, E> + Send,
) -> Result<T> {
    py.detach(work).map_err(Into::into)
}

/// As [`detached`], for work that asks now and then whether to go on, and returns what it was told
/// last. It is not to go on once Ctrl-C has raised `KeyboardInterrupt`.
pub(crate) fn interruptible<E: Into<Failure> + Send>(
    py: Python<'_>,
    work: impl FnOnce(&mut dyn FnMut() -> bool) -> std::result::Result<bool, E> + Send,
) -> Result<()> {
    let mut raised = None;
    detached(py, || {
        let mut asked = Instant::now();
        work(&mut || {
            if asked.elapsed() < ASK_EVERY {
                return true;
            }
            asked = Instant::now();
            // Without an interpreter there is nobody who could ask for an end.
            match Python::try_attach(|py| py.check_signals()) {
                None | Some(Ok(())) => true,
                Some(Err(error)) => {
                    raised = Some(error);
                    false
                }
            }
        })
    })?;
    raised.map_or(Ok(()), |error| Err(error.into()))
}

/// Reads `dst` in parts, `read` being told where in it each begins. Between two parts, Ctrl-C raises
/// `KeyboardInterrupt`.
pub(crate) fn in_parts<E: Into<Failure> + Send>(
    py: Python<'_>,
    dst: &mut [u8],
    read: impl Fn(usize, &mut [u8]) -> std::result::Result<(), E> + Sync,
) -> Result<()> {
    for (at, part) in dst.chunks_mut(PART_BYTES).enumerate() {
        if at > 0 {
            py.check_signals()?;
        }
        detached(py, || read(at * PART_BYTES, part))?;
    }
    Ok(())
}
