//! Measures how long requests wait for the beginning of their answers.

use std::sync::Mutex;
use std::time::Duration;

use super::HedgeOptions;
use crate::locked::locked;

/// The number of latest requests that count.
const REMEMBERED: usize = 128;
/// With fewer, nothing is known about what is usual.
const NEEDED: usize = 20;

/// The waiting times of the last requests.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    waited: Vec<Duration>,
    next: usize,
}

impl Latencies {
    pub(super) fn add(&self, waited: Duration) {
        let mut ring = locked(&self.ring);
        let next = ring.next;
        match ring.waited.get_mut(next) {
            Some(oldest) => *oldest = waited,
            None => ring.waited.push(waited),
        }
        ring.next = (next + 1) % REMEMBERED;
    }

    /// Returns how long a request waits before it is sent a second time. `None` while too little is known.
    pub(super) fn hedge_after(&self, options: &HedgeOptions) -> Option<Duration> {
        let mut waited = locked(&self.ring).waited.clone();
        if waited.len() < NEEDED {
            return None;
        }
        let at = (waited.len() - 1) * 19 / 20;
        let (_, usual, _) = waited.select_nth_unstable(at);
        let limit = usual.as_secs_f64() * options.times_slower;
        Some(Duration::try_from_secs_f64(limit).unwrap_or(Duration::MAX).max(options.wait_min))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_follows_the_last_requests() {
        let latencies = Latencies::default();
        let options = HedgeOptions { times_slower: 2.0, wait_min: Duration::from_millis(5) };
        (1..NEEDED).for_each(|_| latencies.add(Duration::from_millis(10)));
        assert_eq!(latencies.hedge_after(&options), None);
        latencies.add(Duration::from_secs(9));
        // One of twenty was slow: it does not count.
        for _ in 0..REMEMBERED {
            latencies.add(Duration::from_millis(10));
        }
        assert_eq!(latencies.hedge_after(&options), Some(Duration::from_millis(20)));
        for _ in 0..REMEMBERED {
            latencies.add(Duration::from_millis(1));
        }
        assert_eq!(latencies.hedge_after(&options), Some(Duration::from_millis(5)));
    }
}
