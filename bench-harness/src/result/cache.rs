//! The state of the page cache in which a cell is measured, and how it was verified.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stats::{CONFIDENCE, share_max};

/// The part of the data that is in the page cache when a measurement starts.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum CacheState {
    /// Nothing of the data is in the page cache.
    Cold,
    /// All of the data is in the page cache.
    Warm,
    /// The first half of the data is in the page cache.
    Mixed,
}

impl fmt::Display for CacheState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
            Self::Mixed => "mixed",
        })
    }
}

/// Pages of the data in the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CachedPages {
    /// Before the measurement.
    pub before: Option<u64>,
    /// After it.
    pub after: Option<u64>,
}

/// How the state of the page cache was verified before a measurement, and how sure that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CacheCheck {
    /// The method.
    pub method: CacheCheckMethod,
    /// Pages of the data.
    pub pages: u64,
    /// Pages that were checked.
    pub pages_checked: u64,
    /// Checked pages that were, or seemed to be, in another state than requested: headers that were read
    /// when the data was opened, and one sample by chance.
    pub pages_off: u64,
}

/// How pages in the page cache are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CacheCheckMethod {
    /// `cachestat(2)` counted the pages.
    Counted,
    /// Single pages were tried, because the kernel does not count them for this user.
    Sampled,
}

impl fmt::Display for CacheCheckMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Counted => "counted",
            Self::Sampled => "sampled",
        })
    }
}

impl CacheCheck {
    /// Returns the largest share of pages that may be in another state than requested, with 95 %
    /// confidence.
    #[must_use]
    pub fn off_share_max(&self) -> f64 {
        if self.pages_checked >= self.pages {
            return self.pages_off as f64 / self.pages.max(1) as f64;
        }
        share_max(self.pages_checked, self.pages_off, 1.0 - CONFIDENCE)
    }
}

impl fmt::Display for CacheCheck {
    /// `counted, 131072 pages`; `sampled, 128 of 131072 pages`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.method {
            CacheCheckMethod::Counted => write!(f, "{}, {} pages", self.method, self.pages),
            CacheCheckMethod::Sampled => {
                write!(f, "{}, {} of {} pages", self.method, self.pages_checked, self.pages)
            }
        }
    }
}
