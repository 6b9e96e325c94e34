//! The state of the page cache, estimated from samples, for files whose cached pages `cachestat(2)`
//! does not count for this user.

use std::io;

use ringmain::backends::probe::CacheSampler;

use super::cache::{Part, SHORT, STAYS, page_bytes};
use crate::random::mix;
use crate::result::{CacheCheck, CacheCheckMethod, CacheState};

/// The largest number of sampled pages. If all of them are in the requested state, at most 2.3 % of
/// all pages are not, with 95 % confidence. Sampling a cold page costs a read from the device.
const SAMPLES_MAX: u64 = 128;

/// Samples that may be off by chance if not all pages are sampled: a fast device can make a cold page
/// look cached. On a busy virtual machine this happened to one sample in two thousand.
const CHANCE_OFF_MAX: u64 = 1;

/// Returns how many samples may be off if this many of all pages are.
pub(super) fn off_max(check: &CacheCheck, pages_off: u64) -> u64 {
    if check.pages_checked >= check.pages {
        return pages_off;
    }
    check.pages_checked * pages_off / check.pages + CHANCE_OFF_MAX
}

/// Samples pages of the parts; all of them if they are few.
pub(super) fn check(parts: &[Part], seed: u64) -> io::Result<CacheCheck> {
    let pages: u64 = parts.iter().map(Part::pages).sum();
    let pages_checked = pages.min(SAMPLES_MAX);
    let mut places = (0..pages_checked).map(|at| place(at, pages_checked, pages, seed)).peekable();
    let (mut pages_off, mut pages_before) = (0, 0);
    for part in parts {
        let end = pages_before + part.pages();
        if places.peek().is_some_and(|place| *place < end) {
            let sampler = CacheSampler::open(&part.path)?;
            while let Some(place) = places.next_if(|place| *place < end) {
                let start = (place - pages_before) * page_bytes();
                let is_cached = sampler.is_cached(start..start + page_bytes())?;
                pages_off += u64::from(is_cached != (start < part.warm_len));
            }
        }
        pages_before = end;
    }
    Ok(CacheCheck { method: CacheCheckMethod::Sampled, pages, pages_checked, pages_off })
}

/// Returns one page of the stretch `at` of `count` equal stretches, so that pages rise with `at`.
fn place(at: u64, count: u64, pages: u64, seed: u64) -> u64 {
    let start = |at: u64| (u128::from(at) * u128::from(pages) / u128::from(count)) as u64;
    let (first, end) = (start(at), start(at + 1));
    first + mix(seed ^ mix(at)) % (end - first)
}

/// Returns why the samples contradict the state.
pub(super) fn problem(check: &CacheCheck, state: CacheState) -> String {
    let CacheCheck { pages_checked, pages_off, .. } = check;
    let (what, why) = match state {
        CacheState::Cold => ("stay in the page cache", STAYS),
        CacheState::Warm => ("are not in the page cache", SHORT),
        CacheState::Mixed => ("are on the wrong side of the page cache", SHORT),
    };
    format!("{pages_off} of {pages_checked} sampled pages {what}: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampled_pages_rise_and_stay_in_range() {
        for (count, pages) in [(1, 1), (128, 128), (128, 129), (128, 1 << 40), (5, 5)] {
            let places: Vec<u64> = (0..count).map(|at| place(at, count, pages, 3)).collect();
            assert!(places.is_sorted_by(|a, b| a < b), "{count} of {pages}");
            assert!(*places.last().unwrap() < pages);
        }
        assert_ne!(place(0, 128, 1 << 40, 3), place(0, 128, 1 << 40, 4), "the seed decides");
    }
}
