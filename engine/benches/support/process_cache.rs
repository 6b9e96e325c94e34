//! A reader like FFCV's process cache: a schedule of whole pages made before the epoch, twelve
//! threads that read them through the page cache, three batches ahead, and samples copied from
//! there to the batch.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, RwLock};
use std::time::Instant;

const THREADS: usize = 12;
const BATCHES_AHEAD: usize = 3;

pub(crate) struct ProcessCache {
    path: PathBuf,
    page_bytes: usize,
    sample_bytes: usize,
    /// The offsets of the samples of each batch.
    batches: Vec<Vec<u64>>,
    schedule: Schedule,
    /// Kept from epoch to epoch. FFCV does not do this; it makes the baseline faster.
    slots: Vec<RwLock<Vec<u8>>>,
}

struct Schedule {
    slot_of: BTreeMap<u64, usize>,
    /// For each batch, the pages that may be read from then on, and those that must be in memory.
    prefetch_at: Vec<Vec<u64>>,
    enter_at: Vec<Vec<u64>>,
    slots: usize,
}

impl Schedule {
    fn new(pages_of: &[BTreeSet<u64>]) -> Self {
        let (mut first, mut last) = (BTreeMap::new(), BTreeMap::new());
        for (batch, pages) in pages_of.iter().enumerate() {
            for page in pages {
                first.entry(*page).or_insert(batch);
                last.insert(*page, batch);
            }
        }
        let mut prefetch_at = vec![Vec::new(); pages_of.len()];
        let mut enter_at = prefetch_at.clone();
        let mut leave_at = vec![Vec::new(); pages_of.len() + 1];
        for (page, batch) in &first {
            prefetch_at[batch.saturating_sub(BATCHES_AHEAD)].push(*page);
            enter_at[*batch].push(*page);
            leave_at[last[page] + 1].push(*page);
        }
        let (mut slot_of, mut free, mut slots) = (BTreeMap::new(), Vec::new(), 0);
        for batch in 0..pages_of.len() {
            free.extend(leave_at[batch].iter().map(|page| slot_of[page]));
            for page in &prefetch_at[batch] {
                let slot = free.pop().unwrap_or_else(|| {
                    slots += 1;
                    slots - 1
                });
                slot_of.insert(*page, slot);
            }
        }
        Self { slot_of, prefetch_at, enter_at, slots }
    }
}

impl ProcessCache {
    /// Returns a reader for an epoch of samples at these offsets.
    pub(crate) fn new(
        path: &Path,
        page_bytes: usize,
        sample_bytes: usize,
        batches: Vec<Vec<u64>>,
    ) -> Self {
        let page_of = |place: &u64| place / page_bytes as u64;
        let pages: Vec<_> =
            batches.iter().map(|places| places.iter().map(page_of).collect()).collect();
        let schedule = Schedule::new(&pages);
        let slots = (0..schedule.slots).map(|_| RwLock::new(vec![0; page_bytes])).collect();
        Self { path: path.to_owned(), page_bytes, sample_bytes, batches, schedule, slots }
    }

    /// Reads the whole epoch and returns the bytes of samples per second.
    pub(crate) fn epoch(&self) -> f64 {
        let started = Instant::now();
        let (ask, asked) = channel();
        let (tell, told) = channel();
        let asked = Mutex::new(asked);
        let mut out = vec![0; self.batches[0].len() * self.sample_bytes];
        let mut samples = 0;
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                let (tell, asked) = (tell.clone(), &asked);
                scope.spawn(move || self.read_pages(asked, |page| tell.send(page).unwrap()));
            }
            let mut loaded = BTreeSet::new();
            for (batch, places) in self.batches.iter().enumerate() {
                self.schedule.prefetch_at[batch].iter().for_each(|page| ask.send(*page).unwrap());
                for page in &self.schedule.enter_at[batch] {
                    while !loaded.contains(page) {
                        loaded.insert(told.recv().unwrap());
                    }
                }
                for (place, to) in places.iter().zip(out.chunks_exact_mut(self.sample_bytes)) {
                    let slot = self.slots[self.slot_of(place / self.page_bytes as u64)].read();
                    let at = *place as usize % self.page_bytes;
                    to.copy_from_slice(&slot.unwrap()[at..at + self.sample_bytes]);
                }
                samples += places.len();
                black_box(&out);
            }
            drop(ask);
        });
        (samples * self.sample_bytes) as f64 / started.elapsed().as_secs_f64()
    }

    fn slot_of(&self, page: u64) -> usize {
        self.schedule.slot_of[&page]
    }

    fn read_pages(&self, asked: &Mutex<Receiver<u64>>, tell: impl Fn(u64)) {
        let file = File::open(&self.path).unwrap();
        loop {
            let Ok(page) = asked.lock().unwrap().recv() else { return };
            let mut slot = self.slots[self.slot_of(page)].write().unwrap();
            file.read_exact_at(&mut slot, page * self.page_bytes as u64).unwrap();
            drop(slot);
            tell(page);
        }
    }
}
