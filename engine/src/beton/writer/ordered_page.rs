//! Keeps samples in order no matter which worker makes them: workers place their samples in turn.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use ringmain_backends::BufferPool;

use super::super::Error;
use super::dataset_file::DatasetFile;
use super::packer::PackedSample;
use super::page::Page;

/// The page that all workers fill, one chunk of samples at a time, in the order of the chunks.
///
/// Only copying happens in turn. Many workers at once make samples before it, and write full pages
/// after it. So the file is the same for any number of workers.
#[derive(Debug)]
pub(super) struct OrderedPage {
    pool: BufferPool,
    state: Mutex<TurnState>,
    turned: Condvar,
    is_stopped: AtomicBool,
}

#[derive(Debug, Default)]
struct TurnState {
    /// The number of the chunk whose turn it is.
    turn: u64,
    filling: Option<FullPage>,
}

/// A page and its offset in the file. It is full when `place` returns it.
#[derive(Debug)]
pub(super) struct FullPage {
    page: Page,
    at: u64,
}

impl FullPage {
    pub(super) fn write(mut self, dataset: &DatasetFile) -> Result<(), Error> {
        let used = self.page.used();
        dataset.write_page(&mut self.page, 0..used, self.at)
    }
}

impl OrderedPage {
    /// Returns an ordered page whose memory comes from `pool`.
    pub(super) fn new(pool: BufferPool) -> Self {
        let (state, turned) = (Mutex::default(), Condvar::new());
        Self { pool, state, turned, is_stopped: AtomicBool::new(false) }
    }

    /// Waits for the chunk's turn, copies the samples from `staged` to the page, and reports the
    /// offset of each in the file. Returns the page if it became full. The chunk keeps its turn.
    pub(super) fn place(
        &self,
        dataset: &DatasetFile,
        chunk: u64,
        staged: &Page,
        samples: &[PackedSample],
        mut placed: impl FnMut(&PackedSample, u64),
    ) -> Result<Option<FullPage>, Error> {
        let mut state = self.wait_for_turn(dataset, chunk)?;
        let mut full = None;
        for sample in samples {
            let bytes = staged.bytes(sample.span.clone());
            if !state.filling.as_ref().is_some_and(|page| page.page.has_room(bytes.len())) {
                // The staged samples fit in one page, so this happens at most once.
                full = state.filling.replace(self.next_page(dataset, staged.align())?);
            }
            let Some(FullPage { page, at }) = &mut state.filling else { continue };
            if let Some(start) = page.reserve(bytes.len()) {
                page.bytes_mut(start..start + bytes.len()).copy_from_slice(bytes);
                placed(sample, *at + start as u64);
            }
        }
        Ok(full)
    }

    /// Gives the turn to the next chunk.
    pub(super) fn pass_on(&self, chunk: u64) {
        self.lock().turn = chunk + 1;
        self.turned.notify_all();
    }

    /// Wakes all waiting workers with an error, after one of them failed.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        // The lock ensures that no worker is between its check and its wait.
        let _state = self.lock();
        self.turned.notify_all();
    }

    /// Writes the last page.
    pub(super) fn finish(&self, dataset: &DatasetFile) -> Result<(), Error> {
        let last = self.lock().filling.take();
        last.map_or(Ok(()), |last| last.write(dataset))
    }

    fn next_page(&self, dataset: &DatasetFile, align: usize) -> Result<FullPage, Error> {
        let page = dataset.new_page(&self.pool, align)?;
        Ok(FullPage { page, at: dataset.claim_page()? })
    }

    fn wait_for_turn(
        &self,
        dataset: &DatasetFile,
        chunk: u64,
    ) -> Result<MutexGuard<'_, TurnState>, Error> {
        let mut state = self.lock();
        while state.turn != chunk {
            if self.is_stopped.load(Ordering::Acquire) {
                // The worker that stopped the others reports the reason.
                return Err(dataset.io("waiting for a turn", io::ErrorKind::Interrupted.into()));
            }
            state = self.turned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(state)
    }

    fn lock(&self) -> MutexGuard<'_, TurnState> {
        // A worker that panics stops all others, so they never use what it left.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
