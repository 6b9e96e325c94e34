//! A whole run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::list::short_list;
use super::{Cell, GroupedCells, Host, is_fio};
use crate::plan::Plan;

/// The version of `run.json`. Readers refuse every other version. It increases when a field changes its
/// meaning or is removed, not when one is added.
pub const SCHEMA_VERSION: u32 = 1;

/// A whole run: the plan, the machine and every measured cell.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// The version of this layout.
    pub schema_version: u32,
    /// The version of the program that measured.
    pub ringmain_version: String,
    /// When the run began, in UTC: `2026-11-16T08:00:00Z`.
    pub started_at: String,
    /// How long the run took so far.
    pub elapsed_s: f64,
    /// Whether all cells were measured: false during the run and if it was interrupted.
    pub complete: bool,
    /// The command line.
    #[serde(deserialize_with = "short_list")]
    pub command: Vec<String>,
    /// The plan that was carried out, with every default filled in.
    pub plan: Plan,
    /// The machine.
    pub host: Host,
    /// Backends that were left out, and why.
    pub skipped: Vec<Skipped>,
    /// Reasons to trust the numbers less.
    #[serde(deserialize_with = "short_list")]
    pub warnings: Vec<String>,
    /// Every cell of every repetition, in the order in which they were measured.
    pub cells: Vec<Cell>,
}

/// A backend that was not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Skipped {
    /// Its name.
    pub backend: String,
    /// Why it cannot run here.
    pub reason: String,
}

impl Run {
    /// Returns all cells by group and backend. The backends are in the order of the plan, fio is last.
    #[must_use]
    pub fn grouped(&self) -> GroupedCells<'_> {
        let mut groups = GroupedCells::new();
        for cell in &self.cells {
            let backends = groups.entry(cell.group()).or_default();
            match backends.iter_mut().find(|(name, _)| *name == cell.backend) {
                Some((_, cells)) => cells.push(cell),
                None => backends.push((cell.backend.clone(), vec![cell])),
            }
        }
        let rank = |name: &str| {
            let planned = self.plan.backends.iter().position(|choice| choice.to_string() == name);
            (is_fio(name), planned, name.to_owned())
        };
        for backends in groups.values_mut() {
            backends.sort_by_key(|(name, _)| rank(name));
            for (_, cells) in backends {
                cells.sort_by_key(|cell| cell.repetition);
            }
        }
        groups
    }
}
