//! The cells that are compared with each other.

use std::collections::BTreeMap;
use std::fmt;

use super::{CacheState, Cell, Setting};

/// The name of a group. Its cells differ only in the backend and the repetition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group {
    /// The workload.
    pub workload: String,
    /// Its parameters.
    pub setting: Setting,
    /// The cache state.
    pub cache: CacheState,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.setting.to_string() {
            setting if setting.is_empty() => write!(f, "{} {}", self.workload, self.cache),
            setting => write!(f, "{} ({setting}) {}", self.workload, self.cache),
        }
    }
}

/// The repetitions of each backend within a group, in the order of the plan.
pub type GroupedCells<'a> = BTreeMap<Group, Vec<(String, Vec<&'a Cell>)>>;
