//! Which way the reads of a file go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use super::known_file::KnownFile;
use super::residency::Belief;
use crate::overlap::CacheAnswer;
use crate::thread_number::thread_number;
use crate::trace::event;
use crate::{Access, Expectation, Read};

/// Single reads of a stream below this size are left to the kernel's readahead. The device serves
/// larger ones faster by itself: 1 MiB reads one after the other get 3 GB/s from a device that
/// gives 0.7 GB/s to readahead.
const STREAM_READ_BYTES_MAX: usize = 128 << 10;

/// Reads whose ways are chosen together: enough for any device, and few enough to be remembered on
/// the stack.
pub(super) const ROUTED_READS_MAX: usize = 4096;

/// Where a read is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By the backend that was advised.
    Advised,
    /// From the device.
    Device,
    /// From the page cache. If it does not have the pages, the read waits for them.
    Cache,
    /// From the page cache, into which the data around the read is brought.
    Bring,
}

/// The ways that are open to the reads of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenWays {
    /// The device and the page cache: every read is routed.
    Both,
    /// The backend that was advised reads the file.
    Advised,
    /// The filesystem refuses direct reads of the file, or this build has none.
    CacheOnly,
    /// The file could not be opened for direct reads, because the process had no descriptor or memory left.
    CacheOnlyByShortage,
    /// The file cannot be opened for reads through the page cache any more.
    DeviceOnly,
}

impl OpenWays {
    const ALL: [Self; 5] =
        [Self::Both, Self::Advised, Self::CacheOnly, Self::CacheOnlyByShortage, Self::DeviceOnly];

    /// The value that was stored as `number`.
    fn of(number: u8) -> Self {
        Self::ALL[usize::from(number)]
    }

    fn is_cache_only(self) -> bool {
        matches!(self, Self::CacheOnly | Self::CacheOnlyByShortage)
    }
}

/// How the reads of one handle go, and what is known about its file.
#[derive(Debug)]
pub(super) struct FileRoute {
    file: Arc<KnownFile>,
    /// An [`OpenWays`].
    open_ways: AtomicU8,
    /// The kernel says which parts of it are in the page cache.
    can_ask: AtomicBool,
    /// Its reader wants the data to stay in the page cache once it is read.
    is_kept: AtomicBool,
    access: AtomicU8,
    /// Its reader has not said how much it is going to read again, so that is observed.
    is_observed: AtomicBool,
    /// Where the last single read of a thread ended, and in the highest bit whether it followed the
    /// one before. Threads with different numbers stream beside each other.
    last_single: [AtomicU64; 4],
}

const FOLLOWED: u64 = 1 << 63;

impl FileRoute {
    pub(super) fn new(file: Arc<KnownFile>, access: Access, is_kept: bool) -> Self {
        Self {
            file,
            open_ways: AtomicU8::new(OpenWays::Both as u8),
            can_ask: AtomicBool::new(true),
            is_kept: AtomicBool::new(is_kept),
            access: AtomicU8::new(access as u8),
            is_observed: AtomicBool::new(true),
            last_single: Default::default(),
        }
    }

    /// The route of a file that is read through the page cache only.
    pub(super) fn cache_only() -> Self {
        Self::with_ways(OpenWays::CacheOnly)
    }

    /// As [`cache_only`](Self::cache_only), of a file that was opened while the process had no descriptor or
    /// memory left for another open file.
    pub(super) fn in_shortage() -> Self {
        Self::with_ways(OpenWays::CacheOnlyByShortage)
    }

    /// Why a file is read through the page cache only.
    pub(super) fn why_cache_only(&self) -> &'static str {
        if self.open_ways() == OpenWays::CacheOnlyByShortage {
            "it was opened when the process had no file descriptor or memory left; open it again"
        } else {
            "direct reads are not possible on its filesystem, or in this build"
        }
    }

    /// The route of a file that the advised backend has opened.
    pub(super) fn advised() -> Self {
        Self::with_ways(OpenWays::Advised)
    }

    /// The route of a file whose reads all go one way.
    fn with_ways(ways: OpenWays) -> Self {
        let open_ways = AtomicU8::new(ways as u8);
        let nothing = Arc::new(KnownFile::of_len(0));
        Self { open_ways, ..Self::new(nothing, Access::AsItComes, false) }
    }

    fn open_ways(&self) -> OpenWays {
        OpenWays::of(self.open_ways.load(Ordering::Relaxed))
    }

    pub(super) fn is_advised(&self) -> bool {
        self.open_ways() == OpenWays::Advised
    }

    pub(super) fn is_cache_only(&self) -> bool {
        self.open_ways().is_cache_only()
    }

    /// Reads go through the page cache from now on. False if they do already.
    pub(super) fn stop_using_device(&self) -> bool {
        let leave = |ways: u8| {
            let is_there = OpenWays::of(ways).is_cache_only();
            (!is_there).then_some(OpenWays::CacheOnly as u8)
        };
        self.open_ways.fetch_update(Ordering::Relaxed, Ordering::Relaxed, leave).is_ok()
    }

    /// Reads go to the device from now on. False if they cannot.
    pub(super) fn stop_using_cache(&self) -> bool {
        let leave = |ways: u8| {
            let can = matches!(OpenWays::of(ways), OpenWays::Both | OpenWays::DeviceOnly);
            can.then_some(OpenWays::DeviceOnly as u8)
        };
        self.open_ways.fetch_update(Ordering::Relaxed, Ordering::Relaxed, leave).is_ok()
    }

    /// Returns `true` if the kernel has refused to say what is in the page cache.
    pub(super) fn is_unknown(&self) -> bool {
        !self.can_ask.load(Ordering::Relaxed)
    }

    pub(super) fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::Relaxed) || (self.is_observed() && self.file.is_kept())
    }

    /// Returns `true` if cold reads bring their data into the page cache.
    pub(super) fn brings(&self) -> bool {
        self.open_ways() == OpenWays::Both && self.is_kept()
    }

    fn is_observed(&self) -> bool {
        self.is_observed.load(Ordering::Relaxed)
    }

    pub(super) fn expect(&self, expectation: &Expectation, is_kept: bool) {
        self.access.store(expectation.access as u8, Ordering::Relaxed);
        self.is_observed.store(expectation.reread_bytes.is_none(), Ordering::Relaxed);
        self.is_kept.store(is_kept, Ordering::Relaxed);
    }

    /// Notes bytes that were read from the device. Returns the file if they show that it is read once more, though
    /// its reader has not said so.
    pub(super) fn add_device_bytes(&self, bytes: u64) -> Option<&KnownFile> {
        let counts = self.is_observed() && !self.is_kept();
        (counts && self.file.add_device_bytes(bytes)).then_some(&*self.file)
    }

    /// Returns how this file differs from others, as the rest of a sentence. Before the first read, `sample`
    /// asks the kernel how many percent of the file are in the page cache.
    pub(super) fn explain(
        &self,
        is_left_on_device: bool,
        sample: impl FnOnce() -> Option<usize>,
    ) -> String {
        let mut text = String::new();
        if self.open_ways() == OpenWays::DeviceOnly {
            return "; this file was deleted or replaced, so all reads go to the device".into();
        }
        if self.is_unknown() {
            text += "; the kernel does not say which parts of this file are in the page cache \
                     (cachestat(2) needs Linux 6.5, and a file that you own or may write), so some \
                     reads try the page cache first";
        }
        if self.is_kept() && is_left_on_device {
            text += "; reads of some sizes are fastest from the device, so their data is not kept in the page \
                     cache";
        } else if self.is_kept() {
            text += "; data that is read stays in the page cache for the next time";
        }
        if let Some(percent) = self.file.estimate.cached_percent() {
            return text + &format!("; about {percent} % of it is believed to be cached");
        }
        text + &match sample() {
            Some(percent) => format!("; about {percent} % of it is cached now, by a sample"),
            None => "; how much of it is cached is not known before the first read".to_owned(),
        }
    }

    /// The way of a read. If it may not be routed, it goes to the device where that can read the file. `dice` returns
    /// a different number for each read, and `ask` asks the kernel.
    pub(super) fn way(
        &self,
        offset: u64,
        may_route: bool,
        dice: impl FnOnce() -> u64,
        ask: impl FnOnce() -> CacheAnswer,
    ) -> Way {
        match self.open_ways() {
            OpenWays::Both if may_route => {}
            OpenWays::Both | OpenWays::DeviceOnly => return Way::Device,
            OpenWays::Advised => return Way::Advised,
            OpenWays::CacheOnly | OpenWays::CacheOnlyByShortage => return Way::Cache,
        }
        match self.file.estimate.belief(offset, dice) {
            Belief::Cached => Way::Cache,
            Belief::Cold => self.way_of_cold(),
            // Then the read itself is the question.
            Belief::Ask if self.is_unknown() => Way::Cache,
            Belief::Ask => self.way_by_answer(offset, ask()),
        }
    }

    fn way_by_answer(&self, offset: u64, answer: CacheAnswer) -> Way {
        match answer {
            CacheAnswer::Cached => {
                self.learn(offset, true);
                Way::Cache
            }
            CacheAnswer::NotCached => {
                self.learn(offset, false);
                self.way_of_cold()
            }
            CacheAnswer::Refused => {
                event!(debug, "the kernel does not say what the page cache has of a file");
                self.can_ask.store(false, Ordering::Relaxed);
                Way::Cache
            }
            CacheAnswer::NoFile => Way::Device,
        }
    }

    fn way_of_cold(&self) -> Way {
        if self.is_kept() { Way::Bring } else { Way::Device }
    }

    /// Returns `true` if a read at `offset` may go through the page cache and is believed to be cached.
    pub(super) fn is_sure(&self, offset: u64) -> bool {
        match self.open_ways() {
            OpenWays::Both => self.file.estimate.belief(offset, || 1) == Belief::Cached,
            ways => ways.is_cache_only(),
        }
    }

    /// Notes whether the page cache had all of a read. Returns true if the read was believed to be
    /// cached and was not.
    pub(super) fn learn(&self, offset: u64, was_cached: bool) -> bool {
        !self.is_cache_only() && self.file.estimate.learn(offset, was_cached)
    }

    /// Returns `true` if a single read is one of a stream that the kernel's readahead serves best: small, and
    /// the third of three that follow one another.
    pub(super) fn is_stream(&self, read: &Read<'_>) -> bool {
        let is_elsewhere = matches!(self.open_ways(), OpenWays::Advised | OpenWays::DeviceOnly);
        if is_elsewhere || read.len() >= STREAM_READ_BYTES_MAX {
            return false;
        }
        let access = self.access.load(Ordering::Relaxed);
        if access != Access::AsItComes as u8 {
            return access == Access::Sequential as u8;
        }
        // No read follows one that ends beyond the largest file.
        let end = read.end().unwrap_or(FOLLOWED - 1);
        let last_single = &self.last_single[thread_number() as usize % self.last_single.len()];
        let last = last_single.load(Ordering::Relaxed);
        let follows = last & !FOLLOWED == read.offset();
        last_single.store(end | if follows { FOLLOWED } else { 0 }, Ordering::Relaxed);
        follows && last & FOLLOWED != 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::auto::known_file::KnownFiles;
    use crate::{FileHandle, MemoryBackend, ReadBackend};

    fn of_len(len: u64) -> Arc<KnownFile> {
        Arc::new(KnownFile::of_len(len))
    }

    #[test]
    fn a_file_that_has_left_a_way_does_not_return_to_it() {
        for ways in OpenWays::ALL {
            assert_eq!(OpenWays::of(ways as u8), ways);
            let route = FileRoute::with_ways(ways);
            let can_leave_cache = matches!(ways, OpenWays::Both | OpenWays::DeviceOnly);
            assert_eq!(route.stop_using_cache(), can_leave_cache, "{ways:?}");
            assert_eq!(route.stop_using_device(), !ways.is_cache_only(), "{ways:?}");
            assert!(
                route.is_cache_only() && !route.stop_using_device() && !route.stop_using_cache()
            );
            let is_short = ways == OpenWays::CacheOnlyByShortage;
            assert_eq!(route.why_cache_only().contains("open it again"), is_short);
        }
    }

    fn handle() -> FileHandle {
        let memory = MemoryBackend::new();
        memory.insert("data", vec![0; 10]);
        memory.open("data".as_ref()).unwrap()
    }

    fn streams(reads: &[(u64, usize)]) -> Vec<bool> {
        let file = handle();
        let route = FileRoute::new(of_len(1 << 40), Access::AsItComes, false);
        let mut dst = vec![0; 1 << 20];
        let is_stream = |(offset, len): &(u64, usize)| {
            route.is_stream(&Read::new(&file, *offset, &mut dst[..*len]))
        };
        reads.iter().map(is_stream).collect()
    }

    #[test]
    fn a_reader_that_says_what_it_reads_again_is_not_observed() {
        let file = of_len(100);
        let route = || FileRoute::new(Arc::clone(&file), Access::AsItComes, false);
        let (views, other) = ([route(), route()], route());
        assert!(views[0].add_device_bytes(60).is_none());
        let expectation = Expectation { access: Access::Random, reread_bytes: Some(1 << 60) };
        other.expect(&expectation, false);
        assert!(other.add_device_bytes(1000).is_none(), "its reader has said that it does not fit");
        let known = views[1].add_device_bytes(60).expect("both have read more than the file has");
        assert!(KnownFiles::default().keep_if_it_fits(&handle(), known, u64::MAX));
        assert!(views[0].is_kept() && views[1].is_kept() && !other.is_kept());
    }

    #[test]
    fn the_third_read_in_a_row_makes_a_stream() {
        let reads = [(50, 10), (60, 10), (70, 10), (80, 5), (85, 1)];
        assert_eq!(streams(&reads), [false, false, true, true, true]);
        // From the front of the file the second does.
        assert_eq!(streams(&[(0, 10), (10, 10), (20, 1)]), [false, true, true]);
    }

    #[test]
    fn reads_here_and_there_and_large_ones_are_no_stream() {
        let jumps = [(50, 10), (60, 10), (60, 10), (70, 10), (10, 10), (20, 10), (0, 10)];
        assert_eq!(streams(&jumps), [false; 7]);
        let large = STREAM_READ_BYTES_MAX;
        let reads = [(0, large), (large as u64, large), (2 * large as u64, large)];
        assert_eq!(streams(&reads), [false; 3]);
    }

    proptest! {
        /// Whatever the kernel answers, a read has a way, and after a refusal the kernel is not
        /// asked again.
        #[test]
        fn answers_decide_the_way(answers in proptest::collection::vec(0..4u8, 1..300), kept: bool) {
            let route = FileRoute::new(of_len(1 << 20), Access::AsItComes, kept);
            let mut refused = false;
            for (turn, answer) in (1..).zip(answers) {
                let answer = [CacheAnswer::Cached, CacheAnswer::NotCached, CacheAnswer::Refused, CacheAnswer::NoFile]
                    [usize::from(answer)];
                let mut is_asked = false;
                let way = route.way(0, true, || turn, || {
                    is_asked = true;
                    answer
                });
                prop_assert!(!(is_asked && refused));
                refused |= is_asked && answer == CacheAnswer::Refused;
                if is_asked {
                    let expected = match answer {
                        CacheAnswer::Cached | CacheAnswer::Refused => Way::Cache,
                        CacheAnswer::NotCached if kept => Way::Bring,
                        CacheAnswer::NotCached | CacheAnswer::NoFile => Way::Device,
                    };
                    prop_assert_eq!(way, expected);
                }
            }
        }
    }
}
