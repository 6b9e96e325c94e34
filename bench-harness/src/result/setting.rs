//! The parameters of a cell.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The parameters of a workload; those that do not apply are `None`.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct Setting {
    /// Bytes of one read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<u64>,
    /// Reads that are handed to the backend at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u32>,
    /// The largest number of device requests in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// Forked processes that read at the same time; `None`: one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    /// Threads of a process that read at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// The largest number of bytes read ahead, for workloads with a window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_bytes: Option<u64>,
    /// Operations that an open loop starts in a second; `None`: as fast as possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<u64>,
    /// Passes over all of the data, one after the other; `None`: a part of one, or as many as the time allows if the
    /// data is warm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u32>,
    /// Which form of the workload: `sequential`, `shuffled`, `fresh`, `recycled`, `recorded times`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl Setting {
    /// The form of `replay` that starts each operation when it was recorded.
    pub(crate) const RECORDED_TIMES: &'static str = "recorded times";

    /// Returns the number of threads of all processes together.
    pub(crate) fn readers(&self) -> u64 {
        u64::from(self.processes.unwrap_or(1).max(1)) * self.threads_of_process()
    }

    /// Returns the number of threads of each process.
    pub(crate) fn threads_of_process(&self) -> u64 {
        self.threads.unwrap_or(1).max(1).into()
    }

    /// Returns the number of reads that are handed to the backend at once, where one is the default.
    pub(crate) fn batch(&self) -> u64 {
        self.batch.unwrap_or(1).max(1).into()
    }

    /// Returns whether operations start at given times, so that their latency ranks.
    pub(crate) fn is_open_loop(&self) -> bool {
        self.rate_per_s.is_some() || self.variant.as_deref() == Some(Self::RECORDED_TIMES)
    }
}

impl fmt::Display for Setting {
    /// `64 KiB × 32, depth 128`; empty without parameters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.variant.clone());
        let block = self.block_bytes.map(crate::text::size::format_bytes);
        match (block, self.batch.filter(|batch| *batch > 1)) {
            (Some(block), Some(batch)) => parts.push(format!("{block} × {batch}")),
            (Some(block), None) => parts.push(block),
            (None, Some(batch)) => parts.push(format!("× {batch}")),
            (None, None) => {}
        }
        let window = self.window_bytes.map(crate::text::size::format_bytes);
        parts.extend(window.map(|window| format!("window {window}")));
        parts.extend(self.depth.map(|depth| format!("depth {depth}")));
        parts.extend(self.processes.map(|n| format!("{n} processes")));
        parts.extend(self.threads.filter(|n| *n > 1).map(|n| format!("{n} threads")));
        parts.extend(self.rate_per_s.map(|rate| format!("{rate}/s")));
        parts.extend(self.epochs.map(|n| format!("{n} epochs")));
        f.write_str(&parts.join(", "))
    }
}
