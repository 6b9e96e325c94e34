//! Memory that all processes of a run share: the state of every file, the counters, the heartbeats and the
//! failures. It consists of atomics only, so a forked child can use it no matter what its parent was doing.

mod beats;
mod failures;
mod history;
mod tally;

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use memmap2::MmapRaw;

pub(crate) use beats::{Beat, Pulse};
pub(crate) use failures::Failures;
#[cfg(test)]
pub(crate) use history::history;
pub(crate) use history::{Change, History, State, Window};
pub(crate) use tally::{Event, Fault, Tally};

/// Files that the board has room for.
pub(crate) const FILES_MAX: usize = 32;

/// See the [module](self).
#[repr(C)]
pub(crate) struct Board {
    stop: AtomicU32,
    /// Threads that have warmed up.
    warm: AtomicU32,
    pub(crate) files: [History; FILES_MAX],
    pub(crate) tally: Tally,
    pub(crate) beats: [Beat; 256],
    pub(crate) failures: Failures,
}

impl Board {
    /// Makes the file of a new board, with zeros.
    pub(crate) fn create(path: &Path) -> std::io::Result<()> {
        File::create_new(path)?.set_len(size_of::<Self>() as u64)
    }

    /// Maps the board of this run, for the life of the process.
    pub(crate) fn open(path: &Path) -> std::io::Result<&'static Self> {
        let file = File::options().read(true).write(true).open(path)?;
        let map = MmapRaw::map_raw(&file)?;
        assert!(map.len() >= size_of::<Self>(), "the file has the size of a board");
        let board = map.as_mut_ptr().cast::<Self>();
        std::mem::forget(map);
        // SAFETY: the mapping is aligned to a page, as long as a board, and never unmapped. A board
        // consists of atomic integers, for which zeros are valid and which other processes may change.
        Ok(unsafe { &*board })
    }

    /// Asks all processes to finish.
    pub(crate) fn stop(&self) {
        self.stop.store(1, Ordering::SeqCst);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn count_warm_thread(&self) {
        self.warm.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn warm_threads(&self) -> u64 {
        self.warm.load(Ordering::SeqCst).into()
    }

    /// Records a failure and ends the run.
    pub(crate) fn fail(&self, text: &str) {
        self.failures.add(text);
        self.stop();
    }

    /// Makes a panic of this process a failure, in any thread and in any child. The usual message would take a
    /// lock that another thread may have held during a fork.
    pub(crate) fn report_panics(&'static self, process: &str) {
        let process = process.to_owned();
        std::panic::set_hook(Box::new(move |panic| {
            let message = panic.payload_as_str().unwrap_or_default();
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            self.fail(&format!("{process}: PANIC at {place}: {message}"));
        }));
    }
}
