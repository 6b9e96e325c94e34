//! The threads that make samples and write them.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use ringmain_backends::BufferPool;

use super::super::Error;
use super::builder::{ProgressFn, WriteProgress};
use super::dataset_file::DatasetFile;
use super::feed::Feed;
use super::ordered_page::OrderedPage;
use super::packer::ChunkPacker;
use super::sample::{SampleBuilder, source_error};

/// A worker takes at most this many samples at a time.
const CHUNK_SAMPLES_MAX: u64 = 256;

/// The workers that write one dataset.
pub(super) struct SampleWriters<'a> {
    dataset: &'a DatasetFile,
    order: Option<&'a OrderedPage>,
    pool: &'a BufferPool,
    align: usize,
    progress: Option<&'a ProgressFn>,
    done: DoneCounts,
    reported: Mutex<WriteProgress>,
    is_stopped: AtomicBool,
    failure: Mutex<Option<Error>>,
}

/// The work that is done so far.
#[derive(Debug, Default)]
struct DoneCounts {
    samples: AtomicU64,
    bytes: AtomicU64,
}

impl<'a> SampleWriters<'a> {
    pub(super) fn new(
        dataset: &'a DatasetFile,
        order: Option<&'a OrderedPage>,
        pool: &'a BufferPool,
        align: usize,
        progress: Option<&'a ProgressFn>,
    ) -> Self {
        let (done, reported, failure) = (DoneCounts::default(), Mutex::default(), Mutex::default());
        let is_stopped = AtomicBool::new(false);
        Self { dataset, order, pool, align, progress, done, reported, is_stopped, failure }
    }

    /// Makes all samples and writes their pages. The first failure of a worker stops all workers.
    pub(super) fn run(&self, workers: usize, feed: &impl Feed) -> Result<(), Error> {
        thread::scope(|scope| {
            for worker in 0..workers {
                let thread = thread::Builder::new().name(format!("beton-writer-{worker}"));
                if let Err(error) = thread.spawn_scoped(scope, || self.work(feed)) {
                    self.fail(self.dataset.io("starting a thread", error));
                }
            }
        });
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (failure, self.order) {
            (Some(failure), _) => Err(failure),
            (None, Some(order)) => order.finish(self.dataset),
            (None, None) => Ok(()),
        }
    }

    fn work(&self, feed: &impl Feed) {
        // Unwind safe: after a failure no worker reads the shared state.
        match catch_unwind(AssertUnwindSafe(|| self.make_all(feed))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.fail(error),
            Err(panic) => {
                let (path, message) = (self.dataset.path().to_owned(), message_of(&*panic));
                self.fail(Error::Panicked { path, thread: "makes samples", message });
            }
        }
    }

    fn make_all<F: Feed>(&self, feed: &F) -> Result<(), Error> {
        let page = self.dataset.new_page(self.pool, self.align)?;
        let mut packer = ChunkPacker::new(self.dataset, self.order, page);
        let mut items = Vec::new();
        while !self.is_stopped() {
            let Some(chunk) = feed.next_chunk(self.chunk_samples(), &mut items)? else {
                return packer.finish();
            };
            packer.begin_chunk(chunk.number, chunk.first);
            let samples = items.len() as u64;
            for (id, item) in (chunk.first..).zip(items.drain(..)) {
                if self.is_stopped() {
                    return Ok(());
                }
                packer.begin_sample();
                let mut sample = SampleBuilder::new(&mut packer, id);
                feed.make(item, &mut sample)
                    .map_err(|error| source_error(self.dataset.path(), id, error))?;
                sample.finish()?;
                packer.end_sample()?;
            }
            let bytes = packer.end_chunk()?;
            self.report(samples, bytes);
        }
        Ok(())
    }

    /// Returns the size of a chunk: about half a page of average samples, so that a worker that
    /// waits for its turn usually has room for its whole chunk.
    fn chunk_samples(&self) -> usize {
        let (samples, bytes) = (&self.done.samples, &self.done.bytes);
        let (samples, bytes) = (samples.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
        let mean_bytes = bytes.checked_div(samples).unwrap_or(u64::MAX).max(1);
        (self.dataset.page_bytes() as u64 / 2 / mean_bytes).clamp(1, CHUNK_SAMPLES_MAX) as usize
    }

    fn report(&self, samples: u64, bytes: u64) {
        self.done.samples.fetch_add(samples, Ordering::Relaxed);
        self.done.bytes.fetch_add(bytes, Ordering::Relaxed);
        let Some(progress) = self.progress else { return };
        // The lock is held during the call, so that the numbers never decrease.
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        reported.samples += samples;
        reported.bytes += bytes;
        progress(*reported);
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Keeps the first failure and stops all workers.
    fn fail(&self, error: Error) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(error);
        drop(failure);
        self.is_stopped.store(true, Ordering::Relaxed);
        if let Some(order) = self.order {
            order.stop();
        }
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("(no message)").to_owned()
}
