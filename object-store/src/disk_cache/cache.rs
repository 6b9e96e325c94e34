//! The cache of a folder: finds blocks, stores them, and makes room.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use ringmain_backends::{
    Alignment, BackendKind, BufferPool, Error, PerProcess, PoolOptions, ReadBackend, Result,
    WhenSpent, open_backend,
};

use super::block::file_bytes;
use super::eviction::{Dice, Leaving, Reuse, TOUCH_AFTER, is_admitted};
use super::folder::{CacheFolder, Entry, SHELVES, is_left, shelf_of};
use super::health::{Health, reason_of, way_out};
use super::key::BlockId;
use super::local::{Expected, LocalBlock, LocalBlocks};
use super::options::DiskCacheOptions;
use super::stats::{Counters, DiskCacheStats};
use super::writer::{self, Temporary};

/// A part of the cache has about this many blocks, so that chance fills the parts evenly.
const PART_BLOCKS: u64 = 128;

/// After a part was found to be full of blocks in use, it is not listed again for this long.
const FULL_FOR_MS: u64 = 1000;

/// What does not happen while the folder cannot be written to.
const STORING: &str = "blocks are not stored";

/// A thread waits at most this long for memory. Each thread holds its memory for one batch of reads, and does not wait for
/// more while it holds some.
const PATIENCE: Duration = Duration::from_secs(300);

/// Cached blocks in a folder, bounded in bytes. Cheap to clone; any number of processes may open the folder.
///
/// It serves as many backends as need it: see [`CachedBackend`](super::CachedBackend).
#[derive(Clone, Debug)]
pub struct DiskCache {
    pub(super) core: Arc<CacheCore>,
}

#[derive(Debug)]
pub(super) struct CacheCore {
    /// Why the folder cannot be used, if it cannot.
    folder: Result<CacheFolder, String>,
    pub(super) options: DiskCacheOptions,
    /// Reads the blocks.
    pub(super) reader: Arc<dyn ReadBackend>,
    /// For blocks that are being fetched from the store.
    pub(super) fetch_memory: BufferPool,
    /// For parts of cached blocks that are being verified. Apart, because fetched blocks wait for the store.
    pub(super) scratch_memory: BufferPool,
    /// The alignment of reads that go to the device of the folder without a copy.
    pub(super) alignment: Alignment,
    known: PerProcess<LocalBlocks>,
    pub(super) counters: Counters,
    pub(super) storing: Health,
    pub(super) reading: Health,
    reuse: Reuse,
    opened: Instant,
    /// For each shelf, when its part was last found to be full of blocks in use.
    full_at_ms: [AtomicU64; SHELVES],
    /// For each shelf, whether its part was brought within the limit.
    is_trimmed: [AtomicBool; SHELVES],
}

impl DiskCache {
    /// Opens the cache in a folder, which is made if it does not exist.
    ///
    /// Returns an error if the options cannot work, or if the folder has other files in it. If the folder cannot be read or
    /// written, the cache works without it, and [`stats`](Self::stats) says why.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use ringmain_object_store::disk_cache::{DiskCache, DiskCacheOptions};
    ///
    /// let cache = DiskCache::open(dir.path().join("cache"), DiskCacheOptions::new(10 << 30))?;
    /// assert_eq!(cache.stats().degraded, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(folder: impl AsRef<Path>, options: DiskCacheOptions) -> Result<Self> {
        options.validate()?;
        let reader = open_backend(BackendKind::Auto, &options.backend)?;
        let when_spent = WhenSpent::Wait { timeout: PATIENCE };
        let pool = |limit_bytes| BufferPool::new(PoolOptions { limit_bytes, when_spent });
        let scratch_bytes = options.scratch_bytes();
        let fetch_memory = pool(options.memory_bytes - scratch_bytes)?;
        let scratch_memory = pool(scratch_bytes)?;
        let storing = Health::new(STORING);
        let reading = Health::new("cached blocks are not read");
        let folder = CacheFolder::create(folder.as_ref())?
            .map_err(|error| reason_of(STORING, &error, &way_out(&error, folder.as_ref())));
        let tag = folder.as_ref().ok().and_then(|folder| reader.open(&folder.tag()).ok());
        let known_max = options.known_blocks_max;
        let core = CacheCore {
            folder,
            options,
            reader,
            fetch_memory,
            scratch_memory,
            alignment: tag.map_or(Alignment::NONE, |tag| tag.alignment()),
            known: PerProcess::new(move |_inherited| LocalBlocks::new(known_max)),
            counters: Counters::default(),
            storing,
            reading,
            reuse: Reuse::new(SystemTime::now()),
            opened: Instant::now(),
            full_at_ms: [const { AtomicU64::new(0) }; SHELVES],
            is_trimmed: [const { AtomicBool::new(false) }; SHELVES],
        };
        Ok(Self { core: Arc::new(core) })
    }

    /// Returns the counters of this process.
    #[must_use]
    pub fn stats(&self) -> DiskCacheStats {
        self.core.counters.get(self.core.degraded())
    }

    /// The folder; `None` if it cannot be used.
    #[must_use]
    pub fn folder(&self) -> Option<&CacheFolder> {
        self.core.folder.as_ref().ok()
    }
}

impl CacheCore {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The block, if it is in the folder.
    pub(super) fn find(&self, id: &BlockId, expected: Expected) -> Option<Arc<LocalBlock>> {
        let block = self.find_open(id)?;
        if let Some(expectation) = block.expect(expected) {
            // A hint: the block is read all the same if the backend makes no use of it.
            let _is_expected = self.reader.expect(&[&block.file], &expectation);
        }
        Some(block)
    }

    fn find_open(&self, id: &BlockId) -> Option<Arc<LocalBlock>> {
        if let Some(block) = self.known.get().get(id) {
            if self.now_ms().saturating_sub(block.touched_ms.load(Ordering::Relaxed))
                >= TOUCH_AFTER.as_millis() as u64
            {
                block.touched_ms.store(self.now_ms(), Ordering::Relaxed);
                self.touch(block.file.path());
            }
            return Some(block);
        }
        let folder = self.folder.as_ref().ok()?;
        self.trim_once(folder, id);
        match self.open_block(id, &folder.block_path(id)) {
            Ok(found) => found,
            Err(error) => {
                self.reading.failed(&error, "");
                None
            }
        }
    }

    fn open_block(&self, id: &BlockId, path: &Path) -> Result<Option<Arc<LocalBlock>>> {
        let file = match self.reader.open(path) {
            Ok(file) => file,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        let len = self.reader.len(&file)?;
        let block = LocalBlock::new(*id, file, self.now_ms());
        if len != file_bytes(id.len) as u64 {
            self.remove_damaged(&Arc::new(block));
            return Ok(None);
        }
        self.touch(path);
        self.reading.succeeded();
        Ok(Some(self.known.get().add(block)))
    }

    /// Marks a block as used, unless another process has just done so. A folder that is read-only keeps its order.
    fn touch(&self, path: &Path) {
        let now = SystemTime::now();
        let used = fs::metadata(path).and_then(|metadata| metadata.modified());
        let unused = used.ok().and_then(|used| now.duration_since(used).ok());
        if let Some(unused) = unused.filter(|unused| *unused >= TOUCH_AFTER) {
            self.reuse.saw(unused);
            let _is_marked = File::open(path).and_then(|file| file.set_modified(now));
        }
    }

    /// Forgets a block whose file another process has removed or replaced.
    pub(super) fn forget_vanished(&self, block: &Arc<LocalBlock>) {
        self.known.get().forget(block);
        self.counters.vanished.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a block that is not what it should be.
    pub(super) fn remove_damaged(&self, block: &Arc<LocalBlock>) {
        self.known.get().forget(block);
        self.counters.damaged.fetch_add(1, Ordering::Relaxed);
        let _gone = fs::remove_file(block.file.path());
    }

    /// The part of the cache that a block belongs to. It has its part of the limit. Looking at one part needs no lock, and
    /// takes about a millisecond for 2000 blocks.
    fn part_of(&self, id: &BlockId) -> (Range<usize>, u64) {
        let blocks = self.options.limit_bytes / file_bytes(self.options.block_bytes) as u64;
        let wanted = (blocks / PART_BLOCKS).clamp(1, SHELVES as u64);
        let parts = 1 << wanted.ilog2();
        let shelves = SHELVES / parts;
        let first = shelf_of(id) / shelves * shelves;
        (first..first + shelves, self.options.limit_bytes / parts as u64)
    }

    /// Returns `true` if the block should be fetched as a whole and stored.
    pub(super) fn admits(&self, id: &BlockId, wanted_bytes: u64, dice: &mut Dice) -> bool {
        let Ok(folder) = &self.folder else { return false };
        if self.storing.is_paused() {
            return false;
        }
        let (shelves, part_limit_bytes) = self.part_of(id);
        let full_at_ms = &self.full_at_ms[shelves.start];
        let (since_ms, now_ms) = (full_at_ms.load(Ordering::Relaxed), self.now_ms());
        let was_full = since_ms > 0 && now_ms < since_ms + FULL_FOR_MS;
        if !was_full {
            let mut entries = match folder.entries(shelves) {
                Ok(entries) => entries,
                Err(error) => {
                    self.storing.failed(&error, &way_out(&error, folder.path()));
                    return false;
                }
            };
            let used_bytes = bytes_of(&entries);
            let has_room = used_bytes.saturating_add(file_bytes(id.len) as u64) <= part_limit_bytes;
            if has_room || self.victim(&mut entries, Leaving::Stale, dice).is_some() {
                return true;
            }
            full_at_ms.store(now_ms.max(1), Ordering::Relaxed);
        }
        let is_admitted = is_admitted(wanted_bytes, id.len as u64, dice);
        if !is_admitted {
            self.counters.not_admitted.fetch_add(1, Ordering::Relaxed);
        }
        is_admitted
    }

    fn victim(&self, entries: &mut [Entry], leaving: Leaving, dice: &mut Dice) -> Option<usize> {
        let last_use = |entry: &Entry| entry.last_use().filter(|_| !entry.is_temporary);
        self.reuse.victim(entries, last_use, leaving, SystemTime::now(), dice)
    }

    /// Writes a sealed block to the folder. Failures are reported in the state of the cache.
    pub(super) fn store(&self, id: &BlockId, bytes: &[u8]) {
        let Ok(folder) = &self.folder else { return };
        if self.storing.is_paused() {
            // A batch may have many blocks. If the lock of the first one cannot be had, the others do not wait for it too.
            return;
        }
        if folder.block_path(id).exists() {
            // Another process was faster. A new file would only make readers open it again, and room for it would cost
            // another block.
            return;
        }
        let written = match self.reserve(folder, id, bytes.len() as u64) {
            Ok(Some(file)) => writer::write(file, &folder.block_path(id), bytes),
            Ok(None) => {
                self.counters.not_admitted.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Err(error) => Err(error),
        };
        match written {
            Ok(()) => {
                self.counters.stored.add(bytes.len() as u64);
                self.storing.succeeded();
            }
            // Another process took the file for one that was left.
            Err(error) if error.kind() == ErrorKind::NotFound && folder.tag().exists() => {}
            Err(error) => self.storing.failed(&error, &way_out(&error, folder.path())),
        }
    }

    /// Makes room for a file, and makes it. Writers of all processes do so in turn, because two that list a part at once
    /// would both use the same free bytes. `None` if there is no room now.
    ///
    /// A block gets its name after the turn of its writer. A writer that lists the part meanwhile, with several calls of the
    /// system, may find neither name and count one block too few. The next writer counts it again.
    fn reserve(
        &self,
        folder: &CacheFolder,
        id: &BlockId,
        file_bytes: u64,
    ) -> io::Result<Option<Temporary>> {
        let _turn = folder.turn(self.part_of(id).0.start)?;
        match self.make_room(folder, id, file_bytes)? {
            true => writer::create(folder, id).map(Some),
            false => Ok(None),
        }
    }

    /// Brings the part of the block within the limit when this process first reads from it, as the limit may have been
    /// higher.
    fn trim_once(&self, folder: &CacheFolder, id: &BlockId) {
        let (shelves, _) = self.part_of(id);
        if !self.is_trimmed[shelves.start].swap(true, Ordering::Relaxed) {
            // If blocks cannot be removed, they are still good to read. Storing reports the failure.
            let _is_within = self.make_room(folder, id, 0);
        }
    }

    /// Removes blocks of the part of this block until a file of this size fits, and what killed processes left. Returns
    /// `false` if it does not fit, because too many blocks are being written.
    fn make_room(&self, folder: &CacheFolder, id: &BlockId, file_bytes: u64) -> io::Result<bool> {
        let (shelves, part_limit_bytes) = self.part_of(id);
        let mut entries = folder.entries(shelves)?;
        entries.retain(|entry| {
            let is_left = entry.is_temporary && is_left(&entry.path);
            !(is_left && fs::remove_file(&entry.path).is_ok())
        });
        let mut used_bytes = bytes_of(&entries);
        let mut dice = Dice::new();
        while used_bytes.saturating_add(file_bytes) > part_limit_bytes {
            let Some(at) = self.victim(&mut entries, Leaving::Any, &mut dice) else {
                return Ok(false);
            };
            let victim = entries.swap_remove(at);
            used_bytes = used_bytes.saturating_sub(victim.bytes);
            match fs::remove_file(&victim.path) {
                Ok(()) => self.counters.evicted.add(victim.bytes),
                // Another process was faster.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Why blocks are not stored or not read now.
    fn degraded(&self) -> Option<String> {
        match &self.folder {
            Ok(_) => self.storing.reason().or_else(|| self.reading.reason()),
            Err(reason) => Some(reason.clone()),
        }
    }

    /// A sentence for people.
    pub(super) fn describe(&self) -> String {
        let block_bytes = self.options.block_bytes as u64;
        match &self.folder {
            Ok(folder) => format!(
                "blocks of {} are cached in {}, up to {}, and read by `auto`{}",
                bytes_text(block_bytes),
                folder.path().display(),
                bytes_text(self.options.limit_bytes),
                self.degraded().map(|reason| format!("; now {reason}")).unwrap_or_default()
            ),
            Err(reason) => format!("there is no cache: {reason}"),
        }
    }

    pub(super) fn report_read_failure(&self, error: &Error) {
        self.reading.failed(error, "");
    }
}

fn bytes_of(entries: &[Entry]) -> u64 {
    entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.bytes))
}

fn bytes_text(bytes: u64) -> String {
    let (unit_bytes, unit) = match bytes {
        0..1_048_576 => (1 << 10, "KiB"),
        1_048_576..1_073_741_824 => (1 << 20, "MiB"),
        _ => (1 << 30, "GiB"),
    };
    match bytes % unit_bytes {
        0 => format!("{} {unit}", bytes / unit_bytes),
        _ => format!("{:.1} {unit}", bytes as f64 / unit_bytes as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::super::key::{CacheKey, Object};
    use super::*;

    /// Each block of a batch waited for a second for a lock that another process kept.
    #[test]
    fn nothing_is_stored_in_a_pause() {
        let dir = tempfile::tempdir().unwrap();
        let options = DiskCacheOptions { block_bytes: 4096, ..DiskCacheOptions::new(1 << 30) };
        let cache = DiskCache::open(dir.path(), options).unwrap();
        let id = Object::new(CacheKey::new("a", "1"), 4096, 4096).block_at(0);
        let sealed = vec![0; file_bytes(id.len)];
        cache.core.storing.pause_for_ever();
        cache.core.store(&id, &sealed);
        assert_eq!(cache.stats().stored.reads, 0);
        cache.core.storing.failed(&"a failure", "");
        cache.core.storing.succeeded();
        cache.core.store(&id, &sealed);
        assert_eq!(cache.stats().stored.reads, 1);
    }

    /// If nothing had to be stored after a failure, it was reported for as long as the program ran.
    #[test]
    fn a_failure_is_reported_until_it_may_have_passed() {
        let dir = tempfile::tempdir().unwrap();
        let cache = DiskCache::open(dir.path(), DiskCacheOptions::new(1 << 30)).unwrap();
        let reason = Some("blocks are not stored: a failure".to_owned());
        for _ in 0..2 {
            cache.core.storing.failed(&"a failure", "");
            cache.core.storing.pause_for_ever();
            assert_eq!(cache.stats().degraded, reason);
            cache.core.storing.end_pause();
            assert_eq!(cache.stats().degraded, None);
        }
        let folder = dir.path().join("file");
        std::fs::write(&folder, "text").unwrap();
        let none = DiskCache::open(folder.join("cache"), DiskCacheOptions::new(1 << 30)).unwrap();
        none.core.storing.end_pause();
        assert!(none.stats().degraded.unwrap().starts_with("blocks are not stored: "));
        assert!(none.core.describe().starts_with("there is no cache: blocks are not stored: "));
    }
}
