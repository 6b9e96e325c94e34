//! Reads and waits that release the interpreter lock and that Ctrl-C can end.

use std::task::Poll;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::error::{Failure, Result};

/// The time between two checks for signals during a read. It is short for a person who waits. It is long
/// compared to the 5 ms that a check may wait for the interpreter lock while another thread holds it.
const READ_CHECK_EVERY: Duration = Duration::from_millis(100);

/// The time between two checks for signals during a wait.
const WAIT_CHECK_EVERY: Duration = Duration::from_millis(50);

/// Runs `work` with the interpreter lock released, so that other threads can run Python code.
pub(crate) fn detached<T: Send, E: Into<Failure> + Send>(
    py: Python<'_>,
    work: impl FnOnce() -> std::result::Result<T, E> + Send,
) -> Result<T> {
    py.detach(work).map_err(Into::into)
}

/// Like [`detached`], for work that can be interrupted. The work calls its argument from time to time
/// and must stop if that call returns `false`, as all later calls do. Ctrl-C has then raised
/// `KeyboardInterrupt`, which this function returns as the error, whatever the outcome of the work.
pub(crate) fn interruptible<T: Send, E: Into<Failure> + Send>(
    py: Python<'_>,
    work: impl FnOnce(&mut dyn FnMut() -> bool) -> std::result::Result<T, E> + Send,
) -> Result<T> {
    let mut raised = None;
    let outcome = detached(py, || {
        let mut checked = Instant::now();
        work(&mut || {
            if raised.is_none() && checked.elapsed() >= READ_CHECK_EVERY {
                checked = Instant::now();
                // If the interpreter has ended, there are no signals to check.
                raised = Python::try_attach(|py| py.check_signals().err()).flatten();
            }
            raised.is_none()
        })
    });
    raised.map_or(outcome, |error| Err(error.into()))
}

/// Calls `wait` with the interpreter lock released, until it returns a result. Each call waits for at most
/// the given time. Between two calls, Ctrl-C raises `KeyboardInterrupt`.
pub(crate) fn wait_for<T: Send, E: Into<Failure> + Send>(
    py: Python<'_>,
    mut wait: impl FnMut(Duration) -> Poll<std::result::Result<T, E>> + Send,
) -> Result<T> {
    loop {
        if let Poll::Ready(outcome) = py.detach(|| wait(WAIT_CHECK_EVERY)) {
            return outcome.map_err(Into::into);
        }
        py.check_signals()?;
    }
}
