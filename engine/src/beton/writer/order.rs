//! How samples stay in order, whoever makes them: their place is given to them in turn.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use ringmain_backends::BufferPool;

use super::super::Error;
use super::dataset::Dataset;
use super::desk::Packed;
use super::page::Page;

/// The one page that all workers fill, a chunk of samples at a time, in the order of the chunks.
///
/// Only copying takes place in turn. Samples are made before it, and full pages written after it,
/// by many workers at a time. So the file is the same for any number of them.
#[derive(Debug)]
pub(super) struct Order {
    pool: BufferPool,
    state: Mutex<State>,
    turned: Condvar,
    is_stopped: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// The chunk whose turn it is.
    turn: u64,
    filling: Option<FullPage>,
}

/// A page and its place in the file; full when it is handed out.
#[derive(Debug)]
pub(super) struct FullPage {
    page: Page,
    at: u64,
}

impl FullPage {
    pub(super) fn write(mut self, dataset: &Dataset) -> Result<(), Error> {
        let used = self.page.used();
        dataset.write_page(&mut self.page, 0..used, self.at)
    }
}

impl Order {
    /// Pages come from the pool.
    pub(super) fn new(pool: BufferPool) -> Self {
        let (state, turned) = (Mutex::default(), Condvar::new());
        Self { pool, state, turned, is_stopped: AtomicBool::new(false) }
    }

    /// Waits for the turn of the chunk, copies samples from `staged` to the page and tells where
    /// each of them is in the file. Returns the page that became full. The turn is kept.
    pub(super) fn place(
        &self,
        dataset: &Dataset,
        chunk: u64,
        staged: &Page,
        samples: &[Packed],
        mut placed: impl FnMut(&Packed, u64),
    ) -> Result<Option<FullPage>, Error> {
        let mut state = self.wait_for_turn(dataset, chunk)?;
        let mut full = None;
        for sample in samples {
            let bytes = staged.bytes(sample.span.clone());
            if !state.filling.as_ref().is_some_and(|page| page.page.has_room(bytes.len())) {
                // What is staged fits in one page, so this happens once at most.
                full = state.filling.replace(self.next_page(dataset, staged.align())?);
            }
            if let Some(FullPage { page, at }) = &mut state.filling
                && let Some(start) = page.reserve(bytes.len())
            {
                page.bytes_mut(start..start + bytes.len()).copy_from_slice(bytes);
                placed(sample, *at + start as u64);
            }
        }
        Ok(full)
    }

    /// The turn goes to the chunk after this one.
    pub(super) fn pass_on(&self, chunk: u64) {
        self.lock().turn = chunk + 1;
        self.turned.notify_all();
    }

    /// Nobody needs to wait any more: what is written is lost.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        // With the lock, so that nobody is between looking and waiting.
        let _state = self.lock();
        self.turned.notify_all();
    }

    /// Writes the last page.
    pub(super) fn finish(&self, dataset: &Dataset) -> Result<(), Error> {
        let last = self.lock().filling.take();
        last.map_or(Ok(()), |last| last.write(dataset))
    }

    fn next_page(&self, dataset: &Dataset, align: usize) -> Result<FullPage, Error> {
        let page = dataset.new_page(&self.pool, align)?;
        Ok(FullPage { page, at: dataset.claim_page()? })
    }

    fn wait_for_turn(&self, dataset: &Dataset, chunk: u64) -> Result<MutexGuard<'_, State>, Error> {
        let mut state = self.lock();
        while state.turn != chunk {
            if self.is_stopped.load(Ordering::Acquire) {
                // Whoever stopped it has the reason.
                return Err(dataset.io("waiting for a turn", io::ErrorKind::Interrupted.into()));
            }
            state = self.turned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(state)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A worker that panics stops all others, so nobody sees what it left.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
