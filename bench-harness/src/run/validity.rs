//! Reasons why a measured cell does not count.

use std::path::PathBuf;

use ringmain::BackendKind;
use ringmain::backends::BackendOptions;
use ringmain::backends::probe::auto_report;

use super::task::Task;
use super::team::Pass;
use crate::failure::Failure;
use crate::measure::cache;
use crate::plan::CacheUse;
use crate::result::{CacheState, CachedPages};
use crate::text::size::format_bytes_short;
use crate::workload::Workload;

/// Returns why a cell that started in the right cache state does not count.
pub(super) fn problem(
    task: &Task,
    epochs: &[Pass],
    cached_pages: CachedPages,
) -> Result<Option<String>, Failure> {
    let Some(first) = epochs.first().filter(|first| first.operations > 0) else {
        return Ok(Some("nothing was read".into()));
    };
    let workload = task.workload()?;
    let bytes = epochs.iter().map(|pass| pass.bytes).sum();
    let pages_in = cached_pages.before.zip(cached_pages.after);
    let pages_in = pages_in.map_or(0, |(before, after)| after.saturating_sub(before));
    let leaked =
        pages_in_max(task, workload, bytes)?.and_then(|most| leaked_into_cache(pages_in, most));
    // What the first epoch has read may be in the page cache in the second.
    let device_bytes = first.usage.device_bytes;
    let batches = first.operations.saturating_mul(task.setting.batch());
    let batches = usize::try_from(batches).unwrap_or(usize::MAX);
    let uneven = workload.uneven();
    let distinct_bytes =
        uneven.map(|uneven| uneven.distinct_bytes(&task.files, batches)).transpose()?;
    let new_bytes = distinct_bytes.map_or(first.bytes, |distinct| distinct.min(first.bytes));
    let hidden = not_from_the_device(task.cache, new_bytes, device_bytes);
    Ok(leaked.or(hidden).or_else(|| read_for_nothing(workload, first.bytes, device_bytes)))
}

/// Cold bytes come from the device. A backend that copies the file into its own memory when it opens it
/// (`memory`) leaves an empty page cache and is not cold. A tenth of the bytes is enough, since
/// filesystems may compress.
fn not_from_the_device(cache: CacheState, bytes: u64, device_bytes: Option<u64>) -> Option<String> {
    let device_bytes = device_bytes.filter(|_| cache == CacheState::Cold)?;
    (device_bytes < bytes / 10).then(|| {
        format!(
            "the device delivered {device_bytes} of {bytes} bytes: the rest was in memory, or is a hole \
             in the file"
        )
    })
}

/// Returns why a cell of a workload that reads ahead does not count: it ended when much of what the
/// device had read was not delivered yet.
fn read_for_nothing(
    workload: &dyn Workload,
    bytes: u64,
    device_bytes: Option<u64>,
) -> Option<String> {
    let device_bytes = device_bytes.filter(|device_bytes| device_bytes / 2 > bytes)?;
    workload.reads_ahead().then(|| {
        format!(
            "the device read {} and {} of it were delivered: the cell ended while data was still being \
             read ahead; leave out --operations",
            format_bytes_short(device_bytes as f64),
            format_bytes_short(bytes as f64)
        )
    })
}

/// Returns how many pages a cell that reads `bytes` bytes may bring into the page cache; `None` if its
/// backend reads through the page cache.
fn pages_in_max(task: &Task, workload: &dyn Workload, bytes: u64) -> Result<Option<u64>, Failure> {
    Ok(match task.backend.cache_use() {
        CacheUse::Past => Some(0),
        // Data that is read again is kept.
        CacheUse::Routed if task.setting.epochs.is_some() => None,
        CacheUse::Routed if workload.is_scattered() => {
            auto_has_device(&task.cached_files)?.then(|| sampled_pages_max(bytes))
        }
        CacheUse::Routed | CacheUse::Through => None,
    })
}

/// Returns how many pages `auto` may bring into the page cache. If it cannot ask the kernel, it finds
/// cached data by reading through the page cache: the first reads of each region and every 64th later.
fn sampled_pages_max(bytes: u64) -> u64 {
    const SAMPLED_SHARE: u64 = 10;
    const SAMPLED_PAGES_MIN: u64 = 64;
    bytes / cache::page_bytes() / SAMPLED_SHARE + SAMPLED_PAGES_MIN
}

/// Returns whether `auto` can read these files past the page cache. If their filesystem refuses that,
/// all its reads go through it.
fn auto_has_device(files: &[PathBuf]) -> Result<bool, Failure> {
    for path in files {
        if auto_report(path, &BackendOptions::default())?.choice == BackendKind::Pread {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns why reads past the page cache do not count: they must leave it as it was.
fn leaked_into_cache(pages_in: u64, pages_in_max: u64) -> Option<String> {
    (pages_in > pages_in_max).then(|| {
        format!(
            "{pages_in} pages came into the page cache during reads that should go past it, which \
             may bring in {pages_in_max}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use crate::workload::by_name;

    #[test]
    fn bytes_that_do_not_come_from_the_device_are_not_cold() {
        assert_eq!(not_from_the_device(CacheState::Cold, 1000, Some(1000)), None);
        assert_eq!(not_from_the_device(CacheState::Warm, 1000, Some(0)), None);
        assert_eq!(not_from_the_device(CacheState::Cold, 1000, None), None);
        assert!(not_from_the_device(CacheState::Cold, 1000, Some(0)).is_some());
    }

    /// A window that was read and not delivered makes the throughput of a cell meaningless. Other
    /// workloads may have the kernel read more than they ask for.
    #[test]
    fn a_cell_that_ends_while_its_window_fills_does_not_count() {
        let problem = |workload: &str, bytes, device_bytes| {
            read_for_nothing(by_name(workload).unwrap(), bytes, device_bytes)
        };
        let reason = problem("weights", 2 << 20, Some(256 << 20)).unwrap();
        assert!(reason.contains("256 MiB") && reason.contains("read ahead"), "{reason}");
        assert_eq!(problem("weights", 200 << 20, Some(256 << 20)), None);
        assert_eq!(problem("weights", 2 << 20, None), None);
        assert_eq!(problem("rand", 2 << 20, Some(256 << 20)), None);
    }

    #[test]
    fn reads_past_the_cache_must_not_fill_it() {
        let pages_in_max = |backend: &str, workload: &str| {
            let backend = backend.parse().unwrap();
            let task = Task { backend, ..Task::blank(&Plan::default(), 0) };
            pages_in_max(&task, by_name(workload).unwrap(), 1 << 30).unwrap()
        };
        for workload in ["rand", "seq", "shards"] {
            assert_eq!(pages_in_max("uring", workload), Some(0), "{workload}");
            assert_eq!(pages_in_max("uring+buffered", workload), None, "{workload}");
            assert_eq!(pages_in_max("pread", workload), None, "{workload}");
        }
        assert_eq!(leaked_into_cache(0, 0), None);
        assert!(leaked_into_cache(6, 0).unwrap().starts_with("6 pages"));
    }

    /// Streams go through the kernel's readahead, and epochs may keep what they read. Neither makes
    /// a cell of `auto` invalid. Scattered reads that fill the page cache do.
    #[test]
    fn auto_may_bring_in_streams_and_little_else() {
        let backend = "auto".parse().unwrap();
        let task = Task { backend, ..Task::blank(&Plan::default(), 0) };
        for (workload, is_limited) in [("seq", false), ("shards", false), ("rand", true)] {
            let pages = pages_in_max(&task, by_name(workload).unwrap(), 1 << 30).unwrap();
            assert_eq!(pages.is_some(), is_limited, "{workload}");
        }
        assert!(
            leaked_into_cache((1 << 30) / cache::page_bytes(), sampled_pages_max(1 << 30))
                .is_some()
        );
    }
}
