//! Putting the page cache into a known state, and making sure that it is.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringmain::backends::probe::{cached_pages_in, drop_cached};

use crate::failure::Failure;
use crate::result::CacheState;

/// What opening the files may bring into the page cache: the pages around a header that a mapping
/// holds, for each file. The header of a model has 24 KiB for 200 tensors, and a fault brings the
/// sixteen pages around it.
const HEADER_PAGES: u64 = 64;
/// And never more than this part of the data: one in so many pages.
const OPENED_SHARE_MAX: u64 = 10;
/// How often, and how long apart, the cold state is tried for once the files are open.
const SETTLE_TRIES: u32 = 50;
const SETTLE_PAUSE: Duration = Duration::from_millis(10);

/// Bytes of a page of this kernel.
pub(crate) fn page_bytes() -> u64 {
    let found = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    found.and_then(|bytes| u64::try_from(bytes).ok()).filter(|bytes| *bytes > 0).unwrap_or(4096)
}

/// Whether the cache is as wanted.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Pages of all files that are cached now; `None` where the kernel does not tell.
    pub(crate) cached_pages: Option<u64>,
    /// Why the state could not be had.
    pub(crate) problem: Option<String>,
}

/// Brings the files into the state and verifies it. That they cannot be brought there is not a
/// failure but a reason why a measurement does not count.
pub(crate) fn prepare(files: &[PathBuf], state: CacheState) -> Result<Prepared, Failure> {
    let mut prepared = Prepared { cached_pages: Some(0), problem: None };
    for path in files {
        let (pages, problem) = prepare_file(path, state)
            .map_err(|source| Failure::ReadFile { path: path.clone(), source })?;
        prepared.cached_pages = prepared.cached_pages.zip(pages).map(|(a, b)| a + b);
        prepared.problem = prepared.problem.or(problem);
    }
    Ok(prepared)
}

/// Forgets all of the files, so that whoever warms them next pays for their pages.
pub(crate) fn forget(files: &[PathBuf]) -> Result<(), Failure> {
    prepare(files, CacheState::Cold).map(drop)
}

/// Looks again once the files are open, just before the clock starts: a backend that reads ahead
/// when it opens a file must not be measured as cold. Headers that were read are dropped again.
pub(crate) fn settle(files: &[PathBuf], state: CacheState) -> Result<Prepared, Failure> {
    let mut settled = settle_once(files, state)?;
    // Pages that the kernel reads ahead behind a header cannot be dropped before they are there.
    for _ in 0..SETTLE_TRIES {
        if settled.problem.is_none() {
            break;
        }
        std::thread::sleep(SETTLE_PAUSE);
        settled = settle_once(files, state)?;
    }
    Ok(settled)
}

fn settle_once(files: &[PathBuf], state: CacheState) -> Result<Prepared, Failure> {
    let mut settled = prepare(files, state)?;
    if state == CacheState::Cold
        && let Some(pages) = settled.cached_pages
    {
        let total_bytes: u64 =
            files.iter().filter_map(|path| path.metadata().ok()).map(|found| found.len()).sum();
        let share_max = total_bytes.div_ceil(page_bytes()) / OPENED_SHARE_MAX;
        if pages <= share_max.min(HEADER_PAGES * files.len() as u64) {
            settled.problem = None;
        }
    }
    Ok(settled)
}

/// Refuses files whose state in the page cache the kernel does not tell this user: no measurement of
/// them would count.
pub(crate) fn check_rights(files: &[PathBuf]) -> Result<(), Failure> {
    for path in files {
        let file =
            File::open(path).map_err(|source| Failure::ReadFile { path: path.clone(), source })?;
        match cached_pages_in(&file, 0..1) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let message = unverified(path, &error);
                return Err(Failure::Usage { message });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Why a measurement of the file does not count, and what to do.
fn unverified(path: &Path, error: &io::Error) -> String {
    let why = format!(
        "cannot verify what the page cache holds of {}, so no measurement of it would count: {error}",
        path.display()
    );
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("{why}; measure a copy of your own, or run as the owner of the file")
        }
        _ => why,
    }
}

/// Pages of all files that are cached; `None` where the kernel does not tell.
pub(crate) fn cached_pages(files: &[PathBuf]) -> Option<u64> {
    files.iter().map(|path| ringmain::backends::probe::cached_pages(path).ok()).sum()
}

fn prepare_file(path: &Path, state: CacheState) -> io::Result<(Option<u64>, Option<String>)> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let warm_len = warm_len(len, state);
    warm(&file, 0..warm_len)?;
    if warm_len < len {
        // Dirty pages are not dropped; syncing a file that was only read needs no permission.
        file.sync_all()?;
        drop_cached(&file, warm_len..len)?;
    }
    Ok(verify(path, &file, warm_len, len))
}

/// How much of the file, from its start, is to be cached. Whole pages, so that none is both.
fn warm_len(len: u64, state: CacheState) -> u64 {
    match state {
        CacheState::Cold => 0,
        CacheState::Warm => len,
        CacheState::Mixed => (len / 2).next_multiple_of(page_bytes()).min(len),
    }
}

fn verify(path: &Path, file: &File, warm_len: u64, len: u64) -> (Option<u64>, Option<String>) {
    let counted = cached_pages_in(file, 0..warm_len)
        .and_then(|warm| Ok((warm, cached_pages_in(file, warm_len..len)?)));
    let (warm_pages, cold_pages) = match counted {
        Ok(counted) => counted,
        Err(error) => {
            return (None, Some(unverified(path, &error)));
        }
    };
    let wanted = warm_len.div_ceil(page_bytes());
    let problem = if cold_pages > 0 {
        Some(format!(
            "{cold_pages} pages of {} stay in the page cache: somebody has them mapped or \
             locked, or the filesystem keeps its data there (tmpfs)",
            path.display()
        ))
    } else if warm_pages < wanted {
        Some(format!(
            "only {warm_pages} of {wanted} pages of {} stay in the page cache: memory is short",
            path.display()
        ))
    } else {
        None
    };
    (Some(warm_pages + cold_pages), problem)
}

/// Reads what is not cached yet.
fn warm(file: &File, range: Range<u64>) -> io::Result<()> {
    const STEP_BYTES: u64 = 8 << 20;
    let mut bytes = vec![0; 1 << 20];
    for start in range.clone().step_by(STEP_BYTES as usize) {
        let step = start..range.end.min(start + STEP_BYTES);
        let pages = (step.end - step.start).div_ceil(page_bytes());
        if cached_pages_in(file, step.clone()).is_ok_and(|cached| cached >= pages) {
            continue;
        }
        let mut offset = step.start;
        while offset < step.end {
            let len = bytes.len().min((step.end - offset) as usize);
            file.read_exact_at(&mut bytes[..len], offset)?;
            offset += len as u64;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_of(bytes: usize) -> (tempfile::TempDir, PathBuf) {
        // Beside the test program, not in /tmp, which may lie in memory.
        let program = std::env::current_exe().unwrap();
        let dir = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let path = dir.path().join("data");
        std::fs::write(&path, vec![7; bytes]).unwrap();
        (dir, path)
    }

    #[test]
    fn each_state_can_be_had_and_is_verified() {
        let (_dir, path) = file_of(1_000_000);
        let files = [path];
        for (state, pages) in
            [(CacheState::Warm, 245), (CacheState::Cold, 0), (CacheState::Mixed, 123)]
        {
            let prepared = prepare(&files, state).unwrap();
            assert_eq!(prepared.problem, None, "{state}");
            assert_eq!(prepared.cached_pages, Some(pages), "{state}");
        }
    }
}
