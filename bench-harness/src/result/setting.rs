//! The parameters of a cell.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The parameters of a workload, those that apply to it.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct Setting {
    /// Bytes of one read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<u64>,
    /// Reads handed over at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u32>,
    /// Device requests in flight at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// Threads that read at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Bytes read ahead at most, for those that have a window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_bytes: Option<u64>,
    /// Operations a second at which an open loop starts them; none: as fast as they go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<u64>,
    /// Which form of the workload: `sequential`, `shuffled`, `fresh`, `recycled`, `recorded times`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl Setting {
    /// The form of `replay` that starts each operation when it was recorded.
    pub(crate) const RECORDED_TIMES: &'static str = "recorded times";

    /// Whether operations start at given times, so that their latency is what ranks.
    pub(crate) fn is_open_loop(&self) -> bool {
        self.rate_per_s.is_some() || self.variant.as_deref() == Some(Self::RECORDED_TIMES)
    }
}

impl fmt::Display for Setting {
    /// `64 KiB × 32, depth 128`; nothing when there is nothing to say.
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
        parts.extend(self.threads.filter(|n| *n > 1).map(|n| format!("{n} threads")));
        parts.extend(self.rate_per_s.map(|rate| format!("{rate}/s")));
        f.write_str(&parts.join(", "))
    }
}
