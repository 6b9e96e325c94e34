//! Puts the page cache into a known state and verifies it.
//!
//! Data is made once for each cache state: a copy that stays warm, one that stays cold, one whose
//! first half is warm. With one copy for all states, many cells would first have to read the file through the
//! page cache again, which takes longer than the measurement.
//!
//! Cold means that `cachestat(2)` finds no cached pages just before the clock starts, when the
//! files are already open. Opening a format reads headers. Their pages are dropped again, after `mmap` has
//! released them; a few pages around them, which a mapping still holds, are tolerated. The bytes must then
//! come from the device (`/proc/self/io`), because a backend that copies the file into its own memory in
//! `open` leaves the page cache empty too. Backends that read past the cache must leave it as it was. `auto`
//! may bring in streams and data that is read again; scattered reads of cold data may bring in only a few
//! pages, unless the filesystem refuses direct reads. The state is prepared again for every cell, so that no
//! repetition warms the next.
//!
//! The kernel answers `cachestat(2)` only to a file's owner and to users who may write it. For other readers
//! (`--file` of a shared data set), one byte of each of 128 pages is read with `RWF_NOWAIT` before each cell:
//! one page in each of 128 equal parts of the data, and different pages in each repetition. A miss makes the
//! kernel read the page, so it is dropped again. If all samples are as wanted, at most 2.3 % of the pages are
//! not (95 % confidence). The result records this for each cell (`cache_check`: method, pages, pages checked,
//! pages in the wrong state); the console and the report say it once. In this case the pages that a cell
//! leaves in the cache cannot be counted. One sample may be in the wrong state: if the device delivers a page
//! while the kernel still looks for it, the page seems cached. `bench` refuses the data only if neither call
//! works.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringmain::backends::probe::{CacheSampler, cached_pages_in, drop_cached};

use super::sample;
use crate::failure::Failure;
use crate::result::{CacheCheck, CacheCheckMethod, CacheState};

/// Pages of each file that opening it may bring into the page cache: those around a header that is
/// mapped. The header of a model has 24 KiB for 200 tensors, and a fault reads the sixteen pages around
/// it.
const HEADER_PAGES: u64 = 64;
/// At most one in this many pages of the data may be such a page.
const OPENED_SHARE_MAX: u64 = 10;
/// How often, and how far apart, the state is verified after the files were opened. The device of a busy
/// machine may take a second for pages that the kernel is still reading ahead.
const SETTLE_TRIES: u32 = 100;
const SETTLE_PAUSE: Duration = Duration::from_millis(10);
/// After this many tries, a few pages of files with headers may stay: those of a mapped header never go away.
const HEADER_TRIES: u32 = 10;

/// Whether opening the files has read some of their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    ReadsNothing,
    ReadsHeaders,
}

/// Returns the size of a page of this kernel.
pub(crate) fn page_bytes() -> u64 {
    let found = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    found.and_then(|bytes| u64::try_from(bytes).ok()).filter(|bytes| *bytes > 0).unwrap_or(4096)
}

/// The state of the page cache after it was prepared.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Cached pages of all files; `None` if the kernel does not count them for this user.
    pub(crate) cached_pages: Option<u64>,
    /// How the state was verified; `None` if it could not be.
    pub(crate) check: Option<CacheCheck>,
    /// Why the state is not the requested one.
    pub(crate) problem: Option<String>,
}

/// Brings the files into the state and verifies it. If that does not work, this is not an error but a
/// reason why a measurement does not count. If pages have to be sampled, `seed` selects them.
pub(crate) fn prepare(
    files: &[PathBuf],
    state: CacheState,
    seed: u64,
) -> Result<Prepared, Failure> {
    let mut parts = Vec::with_capacity(files.len());
    for path in files {
        let failed = |source| Failure::ReadFile { path: path.clone(), source };
        let part = Part::of(path, state).map_err(failed)?;
        part.bring().map_err(failed)?;
        parts.push(part);
    }
    Ok(verify(&parts, state, seed))
}

/// Drops all files from the page cache, so that their pages are charged to the process that reads them
/// next.
pub(crate) fn forget(files: &[PathBuf]) -> Result<(), Failure> {
    prepare(files, CacheState::Cold, 0).map(drop)
}

/// Prepares the files again after they were opened, just before the clock starts. A backend that reads
/// ahead when it opens a file must not be measured as cold. Headers that were read are dropped again.
pub(crate) fn settle(
    files: &[PathBuf],
    state: CacheState,
    seed: u64,
    opening: Opening,
) -> Result<Prepared, Failure> {
    let exact_tries = match opening {
        Opening::ReadsNothing => SETTLE_TRIES,
        Opening::ReadsHeaders => HEADER_TRIES,
    };
    let mut settled = settle_once(files, state, seed)?;
    // Pages that the kernel is still reading ahead cannot be dropped yet.
    for retry in 0..SETTLE_TRIES {
        let is_exact = settled.check.is_some_and(|check| check.pages_off == 0);
        if settled.problem.is_none() && (is_exact || retry >= exact_tries) {
            break;
        }
        std::thread::sleep(SETTLE_PAUSE);
        settled = settle_once(files, state, seed)?;
    }
    Ok(settled)
}

fn settle_once(files: &[PathBuf], state: CacheState, seed: u64) -> Result<Prepared, Failure> {
    let mut settled = prepare(files, state, seed)?;
    // In a half-warm file, pages after the boundary stay if they share a large folio with warm ones.
    let may_be_off = state != CacheState::Warm;
    if may_be_off && settled.check.is_some_and(|it| are_headers(&it, files.len())) {
        settled.problem = None;
    }
    Ok(settled)
}

/// Returns whether so few pages are in another state that opening the files can have read them, or
/// that they share a folio with the last warm page.
fn are_headers(check: &CacheCheck, files: usize) -> bool {
    let allowed = (check.pages / OPENED_SHARE_MAX).min(HEADER_PAGES * files as u64);
    check.pages_off <= sample::off_max(check, allowed)
}

/// Returns an error if the state of a file in the page cache cannot be verified, because no
/// measurement of it would count.
pub(crate) fn check_verifiable(files: &[PathBuf]) -> Result<(), Failure> {
    for path in files {
        let part = Part::of(path, CacheState::Cold)
            .map_err(|source| Failure::ReadFile { path: path.clone(), source })?;
        if let Err(refusal) = part.count() {
            let first_page = CacheSampler::open(path).and_then(|it| it.is_cached(0..page_bytes()));
            first_page
                .map_err(|error| Failure::Usage { message: unverified(path, &refusal, &error) })?;
        }
    }
    Ok(())
}

/// Returns why a measurement of the file does not count, and what to do.
fn unverified(path: &Path, refusal: &io::Error, sampling: &io::Error) -> String {
    let why = format!(
        "cannot verify what the page cache holds of {}, so no measurement of it would count: \
         {refusal}; and it cannot be sampled with RWF_NOWAIT: {sampling}",
        path.display()
    );
    match (refusal.kind(), sampling.kind()) {
        // Every reader of a file may sample it, so a filter refuses it.
        (_, io::ErrorKind::PermissionDenied) => {
            format!("{why}; allow cachestat, or preadv2 with flags, in the seccomp profile")
        }
        (io::ErrorKind::PermissionDenied, _) => {
            format!("{why}; measure a copy of your own, or run as the owner of the file")
        }
        _ => why,
    }
}

/// Says what was tried. Every reader of a file may ask for it, so a refusal is one of a filter.
fn undropped(error: io::Error) -> io::Error {
    let way_out = match error.kind() {
        io::ErrorKind::PermissionDenied => "; allow fadvise64 in the seccomp profile",
        _ => "",
    };
    let message = format!("it cannot be dropped from the page cache: {error}{way_out}");
    io::Error::new(error.kind(), message)
}

/// Returns the cached pages of all files; `None` if the kernel does not count them for this user.
pub(crate) fn cached_pages(files: &[PathBuf]) -> Option<u64> {
    files.iter().map(|path| ringmain::backends::probe::cached_pages(path).ok()).sum()
}

/// A file of the data.
pub(super) struct Part {
    pub(super) path: PathBuf,
    file: File,
    len: u64,
    /// How many of its first bytes are to be cached.
    pub(super) warm_len: u64,
}

/// Returns about half of the length of a file. The kernel may keep up to 2 MiB of a file in one large
/// folio and drops it only as a whole, so the halves meet between two folios. Files of less than 4 MiB
/// are divided between two pages.
fn mixed_len(len: u64) -> u64 {
    const PIECE_BYTES_MAX: u64 = 2 << 20;
    let unit = if len < 2 * PIECE_BYTES_MAX { page_bytes() } else { PIECE_BYTES_MAX };
    (len / 2).next_multiple_of(unit).min(len)
}

impl Part {
    fn of(path: &Path, state: CacheState) -> io::Result<Self> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let warm_len = match state {
            CacheState::Cold => 0,
            CacheState::Warm => len,
            CacheState::Mixed => mixed_len(len),
        };
        Ok(Self { path: path.to_owned(), file, len, warm_len })
    }

    pub(super) fn pages(&self) -> u64 {
        self.len.div_ceil(page_bytes())
    }

    fn bring(&self) -> io::Result<()> {
        warm(&self.file, 0..self.warm_len)?;
        if self.warm_len < self.len {
            // Dirty pages are not dropped; syncing a file that was only read needs no permission.
            self.file.sync_all()?;
            drop_cached(&self.file, self.warm_len..self.len).map_err(undropped)?;
        }
        Ok(())
    }

    /// Returns the cached pages of the warm part and of the cold part.
    fn count(&self) -> io::Result<(u64, u64)> {
        let warm = cached_pages_in(&self.file, 0..self.warm_len)?;
        Ok((warm, cached_pages_in(&self.file, self.warm_len..self.len)?))
    }
}

/// Counts the cached pages, or samples them if the kernel does not count for this user.
fn verify(parts: &[Part], state: CacheState, seed: u64) -> Prepared {
    let (path, refusal) = match count(parts) {
        Ok(counted) => return counted,
        Err(refused) => refused,
    };
    match sample::check(parts, seed) {
        Ok(check) => Prepared {
            cached_pages: None,
            check: Some(check),
            problem: (check.pages_off > sample::off_max(&check, 0))
                .then(|| sample::problem(&check, state)),
        },
        Err(error) => {
            let problem = Some(unverified(path, &refusal, &error));
            Prepared { cached_pages: None, check: None, problem }
        }
    }
}

/// Counts the cached pages. Returns the first file for which the kernel refuses to count.
fn count(parts: &[Part]) -> Result<Prepared, (&Path, io::Error)> {
    let (mut cached_pages, mut pages, mut pages_off, mut problem) = (0, 0, 0, None);
    for part in parts {
        let (warm, cold) = part.count().map_err(|error| (part.path.as_path(), error))?;
        let wanted = part.warm_len.div_ceil(page_bytes());
        cached_pages += warm + cold;
        pages += part.pages();
        pages_off += cold + wanted.saturating_sub(warm);
        let path = part.path.display();
        problem = problem.or_else(|| {
            if cold > 0 && part.warm_len > 0 {
                Some(format!(
                    "{cold} pages of {path} after byte {} stay in the page cache, although only \
                     those before it should: {STAYS}, or keeps large folios",
                    part.warm_len
                ))
            } else if cold > 0 {
                Some(format!("{cold} pages of {path} stay in the page cache: {STAYS}"))
            } else if warm < wanted {
                Some(format!(
                    "only {warm} of {wanted} pages of {path} stay in the page cache: {SHORT}"
                ))
            } else {
                None
            }
        });
    }
    let method = CacheCheckMethod::Counted;
    let check = Some(CacheCheck { method, pages, pages_checked: pages, pages_off });
    Ok(Prepared { cached_pages: Some(cached_pages), check, problem })
}

pub(super) const STAYS: &str = "another process, or the reader that is measured, has them mapped or \
                                locked, or the filesystem keeps its data there (tmpfs)";
pub(super) const SHORT: &str = "the kernel dropped them because memory is short";

/// Reads the parts of the range that are not cached yet.
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
        // Beside the test program and not in /tmp, which may be in memory.
        let program = std::env::current_exe().unwrap();
        let dir = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let path = dir.path().join("data");
        std::fs::write(&path, vec![7; bytes]).unwrap();
        (dir, path)
    }

    #[test]
    fn each_state_is_reached_and_verified() {
        let (_dir, path) = file_of(1_000_000);
        let files = [path];
        for (state, pages) in
            [(CacheState::Warm, 245), (CacheState::Cold, 0), (CacheState::Mixed, 123)]
        {
            let prepared = settle(&files, state, 1, Opening::ReadsNothing).unwrap();
            assert_eq!(prepared.problem, None, "{state}");
            assert_eq!(prepared.cached_pages, Some(pages), "{state}");
            let check = prepared.check.unwrap();
            assert_eq!((check.method, check.pages_off), (CacheCheckMethod::Counted, 0));
        }
    }

    /// Cold samples that may look cached because the device is fast; far more than were ever seen.
    const CHANCE: u64 = 8;

    /// Samples see what `cachestat(2)` counts, and leave the page cache as it was.
    #[test]
    fn samples_agree_with_the_count_and_leave_the_cache_as_it_was() {
        let (_dir, path) = file_of(9_000_001);
        let files = [path];
        for (state, pages) in
            [(CacheState::Warm, 2198), (CacheState::Mixed, 1536), (CacheState::Cold, 0)]
        {
            assert_eq!(
                settle(&files, state, 1, Opening::ReadsNothing).unwrap().problem,
                None,
                "{state}"
            );
            let check = sample::check(&[Part::of(&files[0], state).unwrap()], 7).unwrap();
            assert_eq!((check.pages, check.pages_checked), (2198, 128), "{state}");
            assert!(check.pages_off <= CHANCE, "{state}: {check:?}");
            let after = cached_pages(&files).unwrap();
            // Sampling that drops what it looks at would drop up to 128 pages. The kernel takes a few.
            assert!(after + 64 > pages && after <= pages + check.pages_off, "{state}: {after}");
        }
    }

    #[test]
    fn samples_notice_another_state() {
        let (_dir, path) = file_of(9_000_001);
        let files = [path];
        for (state, off) in [(CacheState::Cold, 1536), (CacheState::Warm, 2198 - 1536)] {
            prepare(&files, CacheState::Mixed, 1).unwrap();
            let check = sample::check(&[Part::of(&files[0], state).unwrap()], 7).unwrap();
            assert!(check.pages_off.abs_diff(128 * off / 2198) <= CHANCE, "{state}: {check:?}");
            assert!(!are_headers(&check, 1));
            assert!(sample::problem(&check, state).contains("of 128 sampled pages"));
        }
    }

    #[test]
    fn a_few_pages_of_headers_are_allowed_for() {
        let check = |pages, pages_checked, pages_off| CacheCheck {
            method: CacheCheckMethod::Sampled,
            pages,
            pages_checked,
            pages_off,
        };
        assert!(are_headers(&check(1 << 20, 1 << 20, 64), 1));
        assert!(!are_headers(&check(1 << 20, 1 << 20, 65), 1));
        assert!(are_headers(&check(1 << 20, 128, 1), 1));
        assert!(!are_headers(&check(1 << 20, 128, 2), 1));
        assert!(!are_headers(&check(5, 5, 1), 1));
    }
}
