//! The backends of this crate, and what each is known not to do.

use ringmain_backends::conformance::Subject;
use ringmain_backends::{
    Advice, AdvisedBackend, BackendKind, BackendOptions, CachePolicy, Residency, open_backend,
};

/// The backend as `open_backend` makes it.
pub(crate) fn of(kind: BackendKind) -> Subject {
    let subject = Subject::new(kind.name(), move |options| open_backend(kind, options));
    match kind {
        BackendKind::Mmap => with_mapping_skips(subject),
        BackendKind::Memory => with_memory_skips(subject),
        _ => subject,
    }
}

/// `mmap` that gives its pages back after each batch.
pub(crate) fn mmap_release() -> Subject {
    let subject = Subject::new("mmap", |options| {
        let residency = Residency::Release;
        open_backend(BackendKind::Mmap, &BackendOptions { residency, ..options.clone() })
    });
    with_mapping_skips(as_variant(subject, "release"))
}

/// `uring` through the page cache.
pub(crate) fn uring_buffered() -> Subject {
    as_variant(uring_with(CachePolicy::Buffered), "buffered")
}

/// `uring` through the page cache and out of it again.
pub(crate) fn uring_uncached() -> Subject {
    as_variant(uring_with(CachePolicy::Uncached), "uncached")
}

fn uring_with(cache_policy: CachePolicy) -> Subject {
    Subject::new("uring", move |options| {
        open_backend(BackendKind::Uring, &BackendOptions { cache_policy, ..options.clone() })
    })
}

/// `auto` that follows an advice: `pread`, which it would not take by itself.
pub(crate) fn auto_with_advice() -> Subject {
    let subject = Subject::new("auto", |options| {
        let backend = Ok(AdvisedBackend {
            kind: BackendKind::Pread,
            options: Box::new(options.clone()),
            measured_on: None,
            only_for: None,
            reason: "pread".into(),
        });
        let advice = Some(Advice { path: "profile.toml".into(), backend });
        open_backend(BackendKind::Auto, &BackendOptions { advice, ..options.clone() })
    });
    as_variant(subject, "advised")
}

fn as_variant(subject: Subject, suffix: &str) -> Subject {
    subject
        .variant(suffix)
        .leaves_out("reads_over_2_gib", "seconds each, and split like those of the backend itself")
}

fn with_mapping_skips(subject: Subject) -> Subject {
    subject
        .fails("short_reads_change_nothing", "a copy out of a mapping is never short")
        .fails("ragged_reads_change_nothing", "a copy out of a mapping is never short")
        .fails("endless_interruption_ends", "a copy out of a mapping is not interrupted")
}

fn with_memory_skips(subject: Subject) -> Subject {
    const SNAPSHOT: &str = "it keeps the file as it was when it was opened";
    const NO_DEVICE: &str = "there is no device below it that could fail";
    subject
        .leaves_out("reads_over_2_gib", "it would hold three copies of them")
        .fails("impossible_options_are_refused", "it has no bounds")
        .with_snapshots(SNAPSHOT)
        .fails("out_of_descriptors_with_an_idle_file", "it keeps no file open that it could close")
        .fails("short_reads_change_nothing", NO_DEVICE)
        .fails("ragged_reads_change_nothing", NO_DEVICE)
        .fails("interruptions_change_nothing", NO_DEVICE)
        .without_device(NO_DEVICE)
}
