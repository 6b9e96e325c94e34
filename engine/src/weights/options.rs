//! The options of a mapping, and those that the system did not apply.

use std::fmt;

use super::Error;

/// The options of [`MappedWeights::open_with_options`](super::MappedWeights::open_with_options).
/// Every option is a wish: if the system cannot grant it, the file is mapped anyway, and
/// [`MappedWeights::unmet`](super::MappedWeights::unmet) lists it.
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

/// A wish for a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Wish {
    /// Use huge pages for the mapping.
    HugePages,
    /// Start to read the first pages when the file is opened.
    ReadAhead {
        /// The number of pages, of 4096 bytes.
        pages: usize,
    },
    /// Make all pages resident when the file is opened.
    Populate,
    /// Keep all pages in memory.
    Lock,
}

impl MmapOptions {
    /// Returns options without wishes: pages are read when they are touched.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts to read the first `pages` pages (of 4096 bytes). Opening does not wait for the data,
    /// only for the kernel to find memory and queue the reads: about a second for a GiB.
    /// [`WeightSource::prepare_tensor`](super::WeightSource::prepare_tensor) leaves that to a
    /// thread.
    pub fn read_ahead_pages(self, pages: usize) -> Self {
        let mut options = self;
        options.wishes.retain(|wish| !matches!(wish, Wish::ReadAhead { .. }));
        options.with(Wish::ReadAhead { pages })
    }

    /// Reads the whole file and makes all of it resident.
    pub fn populate(self) -> Self {
        self.with(Wish::Populate)
    }

    /// Keeps all pages in memory, as far as RLIMIT_MEMLOCK allows.
    pub fn lock(self) -> Self {
        self.with(Wish::Lock)
    }

    /// Advises the kernel to use huge pages. It supports them for files on some filesystems only,
    /// and `MAP_HUGETLB` cannot force them for a file.
    pub fn huge_pages(self) -> Self {
        self.with(Wish::HugePages)
    }

    fn with(mut self, wish: Wish) -> Self {
        // Sorted in the order in which the wishes help each other.
        if let Err(at) = self.wishes.binary_search(&wish) {
            self.wishes.insert(at, wish);
        }
        self
    }

    pub(super) fn wishes(&self) -> &[Wish] {
        &self.wishes
    }
}

/// A wish that the system did not grant.
#[derive(Debug)]
pub struct UnmetWish {
    /// The wish.
    pub wish: Wish,
    /// The reason.
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
