//! The changes from one run to another, and whether they are more than noise.
//!
//! The repetitions of two runs were not interleaved, so they are compared as independent samples
//! (see [`crate::stats::Ratio`]). Each cell is judged by itself, so one in twenty unchanged cells may
//! look changed. The intervals do not cover other changes between the runs, such as a warmer machine.

mod words;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use crate::failure::Failure;
use crate::result::{CacheState, Cell, Group, Run, Setting, is_fio};
use crate::stats::{CONFIDENCE, Ratio, Verdict, median};

/// The changes from `a` to `b`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) a: Side,
    pub(crate) b: Side,
    /// Differences that make the two runs hard to compare.
    pub(crate) warnings: Vec<String>,
    /// The cells of both runs.
    pub(crate) cells: Vec<Change>,
    pub(crate) only_in_a: Vec<CellName>,
    pub(crate) only_in_b: Vec<CellName>,
    /// The threshold; `null` without one.
    fail_on_regression_percent: Option<f64>,
    /// The cells that are worse by more than the threshold.
    regressions: Vec<CellName>,
}

/// One of the two runs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Side {
    pub(crate) started_at: String,
    pub(crate) ringmain_version: String,
    pub(crate) commit: Option<String>,
    /// The number of cells that were left out.
    invalid_cells: usize,
}

/// A backend in a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct CellName {
    workload: String,
    setting: Setting,
    cache: CacheState,
    pub(crate) backend: String,
}

/// A cell of both runs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Change {
    #[serde(flatten)]
    pub(crate) name: CellName,
    /// Better when it rises.
    pub(crate) throughput: Figure,
    /// Better when it falls.
    pub(crate) latency_p99: Figure,
    pub(crate) rss_peak: Growth,
}

/// A figure in both runs: the medians and their ratio.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) a: f64,
    pub(crate) b: f64,
    repetitions: (usize, usize),
    ratio: Option<Ratio>,
    pub(crate) verdict: Verdict,
}

/// The median peak of resident memory in both runs, anonymous and mapped pages together.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Growth {
    pub(crate) a_bytes: f64,
    pub(crate) b_bytes: f64,
}

impl CellName {
    fn of(cell: &Cell) -> Self {
        Self {
            workload: cell.workload.clone(),
            setting: cell.setting.clone(),
            cache: cell.cache,
            backend: cell.backend.clone(),
        }
    }

    pub(crate) fn group(&self) -> Group {
        let Self { workload, setting, cache, .. } = self.clone();
        Group { workload, setting, cache }
    }
}

impl std::fmt::Display for CellName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}", self.group(), self.backend)
    }
}

/// The valid cells of a run by name.
fn by_name(run: &Run) -> BTreeMap<CellName, Vec<&Cell>> {
    let mut cells: BTreeMap<CellName, Vec<&Cell>> = BTreeMap::new();
    for cell in run.cells.iter().filter(|cell| cell.valid) {
        cells.entry(CellName::of(cell)).or_default().push(cell);
    }
    cells
}

impl Comparison {
    pub(crate) fn of(a: &Run, b: &Run) -> Self {
        let (cells_a, cells_b) = (by_name(a), by_name(b));
        let mut cells = Vec::new();
        for (name, of_a) in &cells_a {
            cells.extend(cells_b.get(name).map(|of_b| Change::of(name, of_a, of_b)));
        }
        let only = |here: &BTreeMap<CellName, _>, there: &BTreeMap<CellName, _>| {
            here.keys().filter(|name| !there.contains_key(name)).cloned().collect::<Vec<_>>()
        };
        let mut warnings = warnings(a, b);
        let is_single = |change: &&Change| change.throughput.is_single();
        match cells.iter().filter(is_single).count() {
            0 => {}
            count => warnings.push(format!(
                "{count} of {} cells have only one repetition, so their noise is unknown",
                cells.len()
            )),
        }
        Self {
            a: Side::of(a),
            b: Side::of(b),
            warnings,
            cells,
            only_in_a: only(&cells_a, &cells_b),
            only_in_b: only(&cells_b, &cells_a),
            fail_on_regression_percent: None,
            regressions: Vec::new(),
        }
    }

    /// A cell is a regression if its whole interval lies below the threshold. Cells of fio are not
    /// counted.
    pub(crate) fn find_regressions(&mut self, percent: f64) {
        let threshold = 1.0 - percent / 100.0;
        let is_regression = |change: &&Change| {
            let interval = change.throughput.ratio.and_then(|ratio| ratio.interval);
            let is_below = interval.is_some_and(|(_, high)| high < threshold);
            is_below && change.throughput.verdict == Verdict::Worse && !is_fio(&change.name.backend)
        };
        let found = self.cells.iter().filter(is_regression);
        self.regressions = found.map(|change| change.name.clone()).collect();
        self.fail_on_regression_percent = Some(percent);
    }

    pub(crate) fn verdict(&self) -> Result<(), Failure> {
        if self.cells.is_empty() {
            // A check without cells must not look as if it had passed.
            let message =
                "the two results have no valid cell in common: there is nothing to compare";
            return Err(Failure::Usage { message: message.into() });
        }
        let Some(percent) = self.fail_on_regression_percent else { return Ok(()) };
        let Some(first) = self.regressions.first() else { return Ok(()) };
        let message = match self.regressions.len() {
            1 => format!("{first} is worse by more than {percent} %, beyond noise"),
            count => format!(
                "{count} cells are worse by more than {percent} %, beyond noise: {first}, …"
            ),
        };
        Err(Failure::Regression { message })
    }

    pub(crate) fn to_text(&self, a: &Path, b: &Path) -> String {
        words::text(self, a, b)
    }

    /// Returns how many cells are better, worse and within noise, in a sentence.
    pub(crate) fn summary(&self) -> String {
        words::summary(&self.cells)
    }
}

impl Side {
    fn of(run: &Run) -> Self {
        Self {
            started_at: run.started_at.clone(),
            ringmain_version: run.ringmain_version.clone(),
            commit: run.host.commit.clone(),
            invalid_cells: run.cells.iter().filter(|cell| !cell.valid).count(),
        }
    }
}

impl Change {
    fn of(name: &CellName, a: &[&Cell], b: &[&Cell]) -> Self {
        let rss = |cells: &[&Cell]| {
            let peaks = values(cells, |cell| cell.memory_peak_bytes() as f64);
            median(&peaks).unwrap_or(0.0)
        };
        let throughput = Figure::of(a, b, |cell| cell.throughput_bytes_per_s);
        let mut latency_p99 = Figure::of(a, b, |cell| cell.latency_ns.p99 as f64);
        latency_p99.verdict = latency_p99.verdict.of_cost();
        let rss_peak = Growth { a_bytes: rss(a), b_bytes: rss(b) };
        Self { name: name.clone(), throughput, latency_p99, rss_peak }
    }
}

fn values(cells: &[&Cell], figure: fn(&Cell) -> f64) -> Vec<f64> {
    cells.iter().map(|cell| figure(cell)).collect()
}

impl Figure {
    fn is_single(&self) -> bool {
        self.repetitions.0 < 2 || self.repetitions.1 < 2
    }

    fn of(a: &[&Cell], b: &[&Cell], figure: fn(&Cell) -> f64) -> Self {
        let (a, b) = (values(a, figure), values(b, figure));
        let ratio = Ratio::independent(&a, &b, CONFIDENCE);
        Self {
            a: median(&a).unwrap_or(0.0),
            b: median(&b).unwrap_or(0.0),
            repetitions: (a.len(), b.len()),
            ratio,
            verdict: ratio.map_or(Verdict::Noise, |ratio| ratio.verdict()),
        }
    }
}

/// Returns the differences between machines and plans of the two runs.
fn warnings(a: &Run, b: &Run) -> Vec<String> {
    let (host_a, host_b) = (&a.host, &b.host);
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".into());
    let memory = |bytes: Option<u64>| bytes.map_or("unknown".into(), |bytes| bytes.to_string());
    let mount = |run: &Run| format!("{:?}", run.host.storage.mount_point);
    let pairs = [
        ("kernel", host_a.kernel.clone(), host_b.kernel.clone()),
        ("processor", text(&host_a.cpu), text(&host_b.cpu)),
        ("number of processors", host_a.cpus.to_string(), host_b.cpus.to_string()),
        ("frequency governor", text(&host_a.governor), text(&host_b.governor)),
        ("memory", memory(host_a.memory_bytes), memory(host_b.memory_bytes)),
        ("filesystem", text(&host_a.storage.filesystem), text(&host_b.storage.filesystem)),
        ("device", text(&host_a.storage.device), text(&host_b.storage.device)),
        ("mount point", mount(a), mount(b)),
    ];
    let differing = pairs.into_iter().filter(|(_, a, b)| a != b);
    let mut warnings: Vec<String> =
        differing.map(|(what, a, b)| format!("the {what} differs: {a}, then {b}")).collect();
    let plans = plan_differences(a, b);
    if !plans.is_empty() {
        warnings.push(format!("the plans differ in: {}", plans.join(", ")));
    }
    for (name, run) in [("first", a), ("second", b)] {
        if !run.complete {
            warnings.push(format!("the {name} run was interrupted"));
        }
    }
    warnings
}

/// Returns the keys whose values differ between the plans. Differences in backends, workloads and
/// repetitions show in the cells and are left out.
fn plan_differences(a: &Run, b: &Run) -> Vec<String> {
    const HARMLESS: [&str; 3] = ["backends", "workloads", "repetitions"];
    let plans = (serde_json::to_value(&a.plan), serde_json::to_value(&b.plan));
    let (Ok(serde_json::Value::Object(a)), Ok(serde_json::Value::Object(b))) = plans else {
        return Vec::new();
    };
    let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let differing = keys.into_iter().filter(|key| !HARMLESS.contains(&key.as_str()));
    differing.filter(|key| a.get(*key) != b.get(*key)).cloned().collect()
}

#[cfg(test)]
mod tests;
