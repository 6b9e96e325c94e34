//! The ways to read that a run goes through: every backend, some with other options.

use std::time::Duration;

use ringmain::backends::Error as BackendError;
use ringmain::{BackendKind, CachePolicy, Engine, EngineBuilder, Residency, Warmth};

/// One way to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) kind: BackendKind,
    /// Reads go to the device, or copies are checked afterwards. Other reads may see the zeros that the
    /// kernel puts after the new end of a file while it cuts it.
    pub(crate) never_sees_zeros: bool,
    /// Needs io_uring at least for some reads.
    pub(crate) uses_rings: bool,
    tune: fn(EngineBuilder) -> EngineBuilder,
}

/// All ways, in the order of the counters.
pub(crate) const WAYS: [Way; 11] = [
    way("pread", BackendKind::Pread, |engine| engine),
    Way { never_sees_zeros: true, ..way("mmap", BackendKind::Mmap, |engine| engine) },
    Way {
        never_sees_zeros: true,
        ..way("mmap, release", BackendKind::Mmap, |engine| engine.residency(Residency::Release))
    },
    Way { never_sees_zeros: true, ..way("direct", BackendKind::Direct, |engine| engine) },
    Way { never_sees_zeros: true, ..ring("uring", BackendKind::Uring, |engine| engine) },
    ring("uring, buffered", BackendKind::Uring, |engine| {
        engine.cache_policy(CachePolicy::Buffered).rings_max(2).depth_max(4)
    }),
    ring("uring, uncached", BackendKind::Uring, |engine| {
        engine.cache_policy(CachePolicy::Uncached)
    }),
    way("uncached", BackendKind::Uncached, |engine| engine),
    Way { never_sees_zeros: true, ..ring("tokio-uring", BackendKind::TokioUring, |engine| engine) },
    ring("auto", BackendKind::Auto, |engine| engine),
    ring("auto, keep", BackendKind::Auto, |engine| engine.warmth(Warmth::Keep)),
];

const fn way(
    name: &'static str,
    kind: BackendKind,
    tune: fn(EngineBuilder) -> EngineBuilder,
) -> Way {
    Way { name, kind, never_sees_zeros: false, uses_rings: false, tune }
}

const fn ring(
    name: &'static str,
    kind: BackendKind,
    tune: fn(EngineBuilder) -> EngineBuilder,
) -> Way {
    Way { uses_rings: true, ..way(name, kind, tune) }
}

/// The bounds of the engines of one crew.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) memory_limit_bytes: usize,
    pub(crate) open_files_max: usize,
}

/// Longer than a read waits for memory on a busy machine: a longer wait is a failure.
pub(crate) const MEMORY_PATIENCE: Duration = Duration::from_secs(100);

impl Way {
    /// Opens an engine for this way.
    pub(crate) fn open(&self, bounds: Bounds) -> Result<Engine, ringmain::Error> {
        let engine = Engine::builder()
            .backend(self.kind)
            .ignore_profile()
            .memory_limit_bytes(bounds.memory_limit_bytes)
            .memory_patience(MEMORY_PATIENCE)
            .open_files_max(bounds.open_files_max);
        (self.tune)(engine).build()
    }

    /// The machine does not have it, or not for the files of the run.
    pub(crate) fn is_unavailable(error: &ringmain::Error) -> bool {
        error.backend_error().is_some_and(BackendError::is_unsupported)
    }
}
