//! The bounds of remote reads.

use std::time::Duration;

use ringmain_backends::{Error, Result};

/// How remote objects are read. Every default works, and every bound works at its smallest value.
///
/// ```
/// use ringmain_object_store::remote::RemoteOptions;
///
/// let options = RemoteOptions { requests_max: 16, ..RemoteOptions::default() };
/// assert_eq!(options.part_bytes, 8 << 20);
/// ```
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// Requests in flight, of all threads together. Each may have a connection of its own. Default 64.
    pub requests_max: usize,
    /// Bytes that the requests in flight ask for, of all threads together. A request that is larger by itself is
    /// alone. Default 128 MiB.
    pub in_flight_bytes: usize,
    /// The largest range of a request: larger reads are split. Default 8 MiB.
    pub part_bytes: usize,
    /// The largest gap between two ranges that one request reads. Default 64 KiB: at 100 MB/s it takes less than a
    /// millisecond, and a request takes 10 or more.
    pub gap_bytes: usize,
    /// A request that delivers nothing for this long is given up and tried again. Default 30 seconds.
    pub stall_timeout: Duration,
    /// How requests that failed are tried again.
    pub retry: RetryOptions,
    /// Whether a slow request is sent a second time. Default: no.
    pub hedge: Option<HedgeOptions>,
    /// Threads that move bytes between the network and the readers. Default: one for each processor, at most 4.
    pub threads: usize,
}

/// How requests are tried again after failures that may be temporary: a connection that broke, a body that was cut
/// short, the statuses 408, 429 and 5xx (except 501 and 505).
#[derive(Clone, Copy, Debug)]
pub struct RetryOptions {
    /// How long a range is tried without receiving a byte of it. Default 3 minutes. An object that cannot be opened
    /// because nothing of its store was ever reached is given up after [`first_contact`](Self::first_contact).
    pub timeout: Duration,
    /// How long a store that was never reached is tried. Default 5 seconds: a wrong address should not take minutes.
    pub first_contact: Duration,
    /// How long a process without file descriptors waits until a connection that it has is idle. Default 2 seconds.
    pub shortage: Duration,
    /// The pause after the first failure. Each further pause is twice as long, and then shortened by a random part of
    /// up to a half. Default 50 ms.
    pub pause_min: Duration,
    /// The longest pause, unless the server asks for a longer one with `Retry-After`. Default 10 seconds.
    pub pause_max: Duration,
}

/// When a request is sent a second time: the answer that begins first is used, and the other request is dropped.
#[derive(Clone, Copy, Debug)]
pub struct HedgeOptions {
    /// The request has waited this many times as long as nineteen in twenty requests did lately. Default 3.
    pub times_slower: f64,
    /// It has waited at least this long. Default 50 ms.
    pub wait_min: Duration,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            requests_max: 64,
            in_flight_bytes: 128 << 20,
            part_bytes: 8 << 20,
            gap_bytes: 64 << 10,
            stall_timeout: Duration::from_secs(30),
            retry: RetryOptions::default(),
            hedge: None,
            threads: processors.clamp(1, 4),
        }
    }
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(180),
            first_contact: Duration::from_secs(5),
            // A connection is idle a moment after its last answer; on a busy machine it takes longer.
            shortage: Duration::from_secs(2),
            pause_min: Duration::from_millis(50),
            pause_max: Duration::from_secs(10),
        }
    }
}

impl Default for HedgeOptions {
    fn default() -> Self {
        Self { times_slower: 3.0, wait_min: Duration::from_millis(50) }
    }
}

impl RemoteOptions {
    /// Refuses options that cannot work.
    pub(super) fn validate(&self) -> Result<()> {
        let bounds = [
            ("requests_max", self.requests_max, 1, 1 << 16, "it can be 1 to 65536"),
            ("in_flight_bytes", self.in_flight_bytes, 1, 1 << 40, "it can be 1 to 2^40"),
            ("part_bytes", self.part_bytes, 1, 1 << 30, "it can be 1 to 2^30"),
            ("gap_bytes", self.gap_bytes, 0, 1 << 30, "it can be 0 to 2^30"),
            ("threads", self.threads, 1, 1024, "it can be 1 to 1024"),
        ];
        for (option, value, min, max, reason) in bounds {
            if !(min..=max).contains(&value) {
                return Err(Error::InvalidOption { option, value: value.to_string(), reason });
            }
        }
        let invalid =
            |option, value: String, reason| Error::InvalidOption { option, value, reason };
        if self.stall_timeout.is_zero() {
            let reason = "a request needs some time to be answered";
            return Err(invalid("stall_timeout", format!("{:?}", self.stall_timeout), reason));
        }
        let RetryOptions { pause_min, pause_max, .. } = self.retry;
        if pause_min.is_zero() || pause_min > pause_max {
            let reason =
                "pauses must be longer than nothing, and `pause_max` no shorter than `pause_min`";
            return Err(invalid("pause_min", format!("{pause_min:?}"), reason));
        }
        match self.hedge {
            Some(HedgeOptions { times_slower, .. })
                if times_slower.is_nan() || times_slower < 1.0 =>
            {
                let reason = "it can be 1 or more";
                Err(invalid("times_slower", times_slower.to_string(), reason))
            }
            _ => Ok(()),
        }
    }
}
