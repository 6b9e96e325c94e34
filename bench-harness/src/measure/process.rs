//! The counters that the kernel keeps for a process.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::{Deserialize, Serialize};

use crate::result::{ContextSwitches, CpuSeconds, Faults};

/// Counters of this process, all its threads together.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Usage {
    pub(crate) faults: Faults,
    pub(crate) cpu_s: CpuSeconds,
    pub(crate) context_switches: ContextSwitches,
    /// Bytes that the device delivered to the process; `None` if the kernel does not count them.
    pub(crate) device_bytes: Option<u64>,
}

impl Usage {
    /// Reads the counters; unknown ones are 0 or `None`.
    pub(crate) fn now() -> Self {
        let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
            return Self::default();
        };
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        let seconds = |microseconds: i64| microseconds as f64 / 1e6;
        Self {
            faults: Faults {
                minor: count(usage.minor_page_faults()),
                major: count(usage.major_page_faults()),
            },
            cpu_s: CpuSeconds {
                user: seconds(usage.user_time().num_microseconds()),
                system: seconds(usage.system_time().num_microseconds()),
            },
            context_switches: ContextSwitches {
                voluntary: count(usage.voluntary_context_switches()),
                involuntary: count(usage.involuntary_context_switches()),
            },
            device_bytes: device_bytes(),
        }
    }

    /// Returns the difference to an earlier state.
    pub(crate) fn since(self, start: Self) -> Self {
        Self {
            faults: Faults {
                minor: self.faults.minor.saturating_sub(start.faults.minor),
                major: self.faults.major.saturating_sub(start.faults.major),
            },
            cpu_s: CpuSeconds {
                user: (self.cpu_s.user - start.cpu_s.user).max(0.0),
                system: (self.cpu_s.system - start.cpu_s.system).max(0.0),
            },
            context_switches: ContextSwitches {
                voluntary: self
                    .context_switches
                    .voluntary
                    .saturating_sub(start.context_switches.voluntary),
                involuntary: self
                    .context_switches
                    .involuntary
                    .saturating_sub(start.context_switches.involuntary),
            },
            device_bytes: self
                .device_bytes
                .zip(start.device_bytes)
                .map(|(end, start)| end.saturating_sub(start)),
        }
    }

    /// Adds the counters of another process, or of another time.
    pub(crate) fn add(&mut self, other: &Self) {
        self.faults.minor += other.faults.minor;
        self.faults.major += other.faults.major;
        self.cpu_s.user += other.cpu_s.user;
        self.cpu_s.system += other.cpu_s.system;
        self.context_switches.voluntary += other.context_switches.voluntary;
        self.context_switches.involuntary += other.context_switches.involuntary;
        let sum = self.device_bytes.zip(other.device_bytes);
        self.device_bytes = sum.map(|(own, others)| own + others);
    }
}

/// Returns `read_bytes` of `/proc/self/io`: the bytes that this process caused the device to read.
fn device_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.trim().parse().ok())
}
