//! What is wished for of a mapping, and which wishes came to nothing.

use std::fmt;

use super::Error;

/// What [`MappedWeights::open_with_options`](super::MappedWeights::open_with_options) does beside
/// mapping the file. Every option is a wish: one that the system cannot grant is told by
/// [`MappedWeights::unmet`](super::MappedWeights::unmet), and the file is mapped all the same.
///
/// ```
/// use ringmain::weights::MmapOptions;
/// let critical_model = MmapOptions::new().huge_pages().populate().lock();
/// let large_model = MmapOptions::new().read_ahead_pages(256);
/// # let _ = (critical_model, large_model);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "options do nothing until a file is opened with them"]
pub struct MmapOptions {
    wishes: Vec<Wish>,
}

/// One thing that is wished for of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Wish {
    /// Huge pages under the mapping.
    HugePages,
    /// The first pages are on their way when the file is open.
    ReadAhead {
        /// How many, of 4096 bytes.
        pages: usize,
    },
    /// All pages are resident when the file is open.
    Populate,
    /// All pages stay in memory.
    Lock,
}

impl MmapOptions {
    /// No wishes: pages are read when they are touched.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins to read the first so many pages (of 4096 bytes). Opening does not wait until they have
    /// arrived, but until the kernel has found memory for them and queued their reads: about a second
    /// for a GiB. [`WeightSource::prepare_tensor`](super::WeightSource::prepare_tensor) leaves that to
    /// a thread.
    pub fn read_ahead_pages(self, pages: usize) -> Self {
        let mut options = self;
        options.wishes.retain(|wish| !matches!(wish, Wish::ReadAhead { .. }));
        options.with(Wish::ReadAhead { pages })
    }

    /// Reads the whole file, and makes all of it resident.
    pub fn populate(self) -> Self {
        self.with(Wish::Populate)
    }

    /// Keeps all pages in memory, within what RLIMIT_MEMLOCK allows.
    pub fn lock(self) -> Self {
        self.with(Wish::Lock)
    }

    /// Advises the kernel to use huge pages. It can for files on some filesystems only, and a file
    /// mapping cannot be made of them by force (`MAP_HUGETLB`).
    pub fn huge_pages(self) -> Self {
        self.with(Wish::HugePages)
    }

    fn with(mut self, wish: Wish) -> Self {
        // In the order in which they help each other.
        if let Err(at) = self.wishes.binary_search(&wish) {
            self.wishes.insert(at, wish);
        }
        self
    }

    pub(super) fn wishes(&self) -> &[Wish] {
        &self.wishes
    }
}

/// A wish that the system did not grant, and why.
#[derive(Debug)]
pub struct UnmetWish {
    /// What was wished for.
    pub wish: Wish,
    /// Why it is not so.
    pub reason: Error,
}

impl fmt::Display for UnmetWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wish = match self.wish {
            Wish::HugePages => "no huge pages",
            Wish::ReadAhead { .. } => "not read ahead",
            Wish::Populate => "not populated",
            Wish::Lock => "not locked",
        };
        write!(f, "{wish}: {}", self.reason)
    }
}
