//! Ranges of one file that are read before they are asked for, by any backend.
//!
//! A backend's own hint means nothing where reads bypass the page cache. So a thread reads the range
//! into a buffer of the engine's pool, where the next request for the same range finds it. A thread
//! for each range, and not one that is kept: what is worth reading ahead takes milliseconds, a thread
//! tens of microseconds, and several ranges at once keep the device busy.

use std::collections::VecDeque;
use std::ops::Range;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use ringmain_backends::{Buffer, Error, FileHandle, ReadBackendExt};

use crate::Engine;
use crate::reserve::Need;

/// Ranges that are read, or were read and not yet taken.
const RANGES_MAX: usize = 4;

/// What was read of one file before anybody asked. At most [`RANGES_MAX`] ranges, in memory of the
/// engine's pool that nobody else counts on.
#[derive(Debug)]
pub(super) struct ReadAhead {
    pending: Mutex<VecDeque<Pending>>,
    /// A child process has this struct, but not the threads, and the lock may have been held.
    process_id: u32,
}

#[derive(Debug)]
struct Pending {
    range: Range<usize>,
    thread: JoinHandle<Result<Buffer, Error>>,
}

impl ReadAhead {
    pub(super) fn new() -> Self {
        Self { pending: Mutex::default(), process_id: process::id() }
    }

    /// Begins to read the range. False if there is no memory for it now, or no thread, or too much
    /// is being read already.
    pub(super) fn start(&self, engine: &Engine, file: &FileHandle, range: Range<usize>) -> bool {
        if self.is_inherited() {
            return false;
        }
        let mut pending = self.lock();
        if pending.iter().any(|pending| pending.range == range) {
            return true;
        }
        loop {
            if pending.len() < RANGES_MAX
                && let Ok(buffer) = buffer_for(engine, file, &range, Need::Ahead)
            {
                let Some(thread) = spawn(engine.clone(), file.clone(), range.clone(), buffer)
                else {
                    return false;
                };
                pending.push_back(Pending { range, thread });
                return true;
            }
            // What was read first and never asked for gives way.
            let Some(at) = pending.iter().position(|pending| pending.thread.is_finished()) else {
                return false;
            };
            pending.remove(at);
        }
    }

    /// What was read of just that range; `None` if it was not, or could not be. Waits for a read that
    /// is under way.
    pub(super) fn take(&self, range: &Range<usize>) -> Option<Buffer> {
        if self.is_inherited() {
            return None;
        }
        let found = {
            let mut pending = self.lock();
            let at = pending.iter().position(|pending| pending.range == *range)?;
            pending.remove(at)
        };
        // An error is told by the read that follows, and a panic on standard error.
        found?.thread.join().ok()?.ok()
    }

    fn is_inherited(&self) -> bool {
        self.process_id != process::id()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        let inherited = self.is_inherited();
        let pending = self.pending.get_mut().unwrap_or_else(PoisonError::into_inner);
        for pending in pending.drain(..) {
            if inherited {
                std::mem::forget(pending); // the thread is the parent's
            } else {
                let _unread = pending.thread.join();
            }
        }
    }
}

fn spawn(
    engine: Engine,
    file: FileHandle,
    range: Range<usize>,
    buffer: Buffer,
) -> Option<JoinHandle<Result<Buffer, Error>>> {
    let read = move || read_to(&engine, &file, &range, buffer);
    std::thread::Builder::new().name("ringmain-ahead".into()).spawn(read).ok()
}

/// Memory for the range that the device can write to without a detour: see [`read_to`]. Never waits.
pub(super) fn buffer_for(
    engine: &Engine,
    file: &FileHandle,
    range: &Range<usize>,
    need: Need,
) -> Result<Buffer, Error> {
    let len = lead_bytes(file, range).saturating_add(range.len());
    let (_claim, buffer) = engine.reserve().share(len).take(len, need)?;
    Ok(buffer)
}

/// Reads the range to where address and offset agree modulo the device's alignment.
pub(super) fn read_to(
    engine: &Engine,
    file: &FileHandle,
    range: &Range<usize>,
    mut buffer: Buffer,
) -> Result<Buffer, Error> {
    buffer.narrow(lead_bytes(file, range)..lead_bytes(file, range) + range.len());
    engine.backend().read_exact_at(file, range.start as u64, &mut buffer)?;
    Ok(buffer)
}

fn lead_bytes(file: &FileHandle, range: &Range<usize>) -> usize {
    range.start % file.alignment().offset.max(file.alignment().memory)
}
