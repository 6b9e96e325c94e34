//! The backends of this crate, and what each is known not to do.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ringmain_backends::conformance::Subject;
use ringmain_backends::{
    BackendKind, BackendOptions, CachePolicy, Profile, ProfileSource, Recording, RecordingBackend,
    Residency, open_backend,
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

/// `auto` that goes by a profile: `pread`, which it would not take by itself.
pub(crate) fn auto_with_a_profile() -> Subject {
    let subject = Subject::new("auto", |options| {
        let path = scratch_path("toml");
        Profile::new(BackendKind::Pread).save(&path).unwrap();
        let profile = ProfileSource::File(path.clone());
        let backend =
            open_backend(BackendKind::Auto, &BackendOptions { profile, ..options.clone() });
        std::fs::remove_file(path).unwrap();
        backend
    });
    as_variant(subject, "profile")
}

/// `pread` with everything that passes written down.
pub(crate) fn pread_recorded() -> Subject {
    let subject = Subject::new("pread", |options| {
        let inner = open_backend(BackendKind::Pread, options)?;
        let path = scratch_path("rec");
        let recording = Recording::create(&path)?;
        // Windows keeps a name as long as the file is open.
        let _ = std::fs::remove_file(path);
        Ok(Arc::new(RecordingBackend::new(inner, recording)))
    });
    as_variant(subject, "recorded")
}

/// In the folder for temporary files: a case that gives up its privileges can write there too.
fn scratch_path(extension: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    std::env::temp_dir().join(format!("ringmain-{process}-{number}.{extension}"))
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
        .fails("file_that_grew", SNAPSHOT)
        .fails("length_follows_the_file", SNAPSHOT)
        .fails("truncated_file", SNAPSHOT)
        .fails("truncated_while_being_read", SNAPSHOT)
        .fails("out_of_descriptors_with_an_idle_file", "it keeps no file open that it could close")
        .fails("short_reads_change_nothing", NO_DEVICE)
        .fails("ragged_reads_change_nothing", NO_DEVICE)
        .fails("interruptions_change_nothing", NO_DEVICE)
        .fails("endless_interruption_ends", NO_DEVICE)
        .fails("device_error_surfaces", NO_DEVICE)
        .fails("placed_reads_name_the_range_that_failed", NO_DEVICE)
        .fails("device_error_among_neighbours", NO_DEVICE)
        .fails("first_device_error_is_named", NO_DEVICE)
        .fails("nothing_in_flight_after_an_error", NO_DEVICE)
}
