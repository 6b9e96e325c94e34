//! The options of a mapping.

/// The options of [`MappedWeights::open_with_options`](super::MappedWeights::open_with_options).
/// If the system cannot apply an option, the file is mapped anyway, and
/// [`MappedWeights::unmet`](super::MappedWeights::unmet) lists the option.
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
    steps: Vec<MapStep>,
}

/// One option, which is applied to a new mapping. The steps are ordered so that each helps the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MapStep {
    /// Use huge pages for the mapping.
    HugePages,
    /// Start to read the first pages, of 4096 bytes each.
    ReadAhead { pages: usize },
    /// Make all pages resident.
    Populate,
    /// Keep all pages in memory.
    Lock,
}

impl MapStep {
    /// The name under which [`MappedWeights::unmet`](super::MappedWeights::unmet) lists it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::HugePages => "huge pages",
            Self::ReadAhead { .. } => "pages read ahead",
            Self::Populate => "populated pages",
            Self::Lock => "locked pages",
        }
    }
}

impl MmapOptions {
    /// Returns the default: pages are read when they are touched.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts to read the first `pages` pages (of 4096 bytes). Opening does not wait for the data,
    /// only for the kernel to find memory and queue the reads: about a second for a GiB.
    /// [`WeightSource::prepare_tensor`](super::WeightSource::prepare_tensor) leaves that to a
    /// thread.
    pub fn read_ahead_pages(self, pages: usize) -> Self {
        let mut options = self;
        options.steps.retain(|step| !matches!(step, MapStep::ReadAhead { .. }));
        options.with(MapStep::ReadAhead { pages })
    }

    /// Reads the whole file and makes all of it resident.
    pub fn populate(self) -> Self {
        self.with(MapStep::Populate)
    }

    /// Keeps all pages in memory, as far as RLIMIT_MEMLOCK allows.
    pub fn lock(self) -> Self {
        self.with(MapStep::Lock)
    }

    /// Advises the kernel to use huge pages. It supports them for files on some filesystems only,
    /// and `MAP_HUGETLB` cannot force them for a file.
    pub fn huge_pages(self) -> Self {
        self.with(MapStep::HugePages)
    }

    fn with(mut self, step: MapStep) -> Self {
        if let Err(at) = self.steps.binary_search(&step) {
            self.steps.insert(at, step);
        }
        self
    }

    pub(super) fn steps(&self) -> &[MapStep] {
        &self.steps
    }
}
