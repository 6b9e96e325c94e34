//! The text of a comparison.

use std::path::Path;

use comfy_table::{Table, presets};

use super::{CellName, Change, Comparison, Figure, Growth};
use crate::stats::Verdict;
use crate::text::format::{counted, nanoseconds, rate};
use crate::text::size::format_bytes_short;

pub(super) fn text(comparison: &Comparison, a: &Path, b: &Path) -> String {
    let mut lines: Vec<String> =
        comparison.warnings.iter().map(|warning| format!("warning: {warning}")).collect();
    for (name, path, side) in [("A", a, &comparison.a), ("B", b, &comparison.b)] {
        let invalid = match side.invalid_cells {
            0 => String::new(),
            count => format!(", left out: {}", counted(count, "invalid cell")),
        };
        lines.push(format!("{name}: {}, {}{invalid}", path.display(), side.started_at));
    }
    lines.push(String::new());
    lines.push(table(&comparison.cells));
    lines.push(String::new());
    lines.extend(only("A", &comparison.only_in_a));
    lines.extend(only("B", &comparison.only_in_b));
    lines.push(summary(&comparison.cells));
    lines.extend(comparison.fail_on_regression_percent.map(|percent| rule(comparison, percent)));
    lines.join("\n") + "\n"
}

fn table(cells: &[Change]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "cell",
        "A",
        "B",
        "B/A",
        "interval",
        "",
        "median p99 A",
        "median p99 B",
        "B/A",
        "",
        "RSS peak",
    ]);
    for change in cells {
        table.add_row([
            change.name.to_string(),
            rate(change.throughput.a),
            rate(change.throughput.b),
            change.throughput.estimate(),
            change.throughput.interval(),
            change.throughput.verdict.to_string(),
            nanoseconds(change.latency_p99.a),
            nanoseconds(change.latency_p99.b),
            change.latency_p99.estimate(),
            change.latency_p99.verdict.to_string(),
            change.rss_peak.text(),
        ]);
    }
    let text = table.to_string();
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

impl Figure {
    /// Returns the ratio of the second run to the first.
    pub(crate) fn estimate(&self) -> String {
        self.ratio.map_or("?".into(), |ratio| format!("{:.3}", ratio.estimate))
    }

    /// Returns the interval of the ratio.
    pub(crate) fn interval(&self) -> String {
        match self.ratio.and_then(|ratio| ratio.interval) {
            Some((low, high)) => format!("{low:.3} to {high:.3}"),
            None => "one repetition".into(),
        }
    }
}

impl Growth {
    /// Returns the second peak, and its difference to the first.
    pub(crate) fn text(&self) -> String {
        let (a, b) = (self.a_bytes, self.b_bytes);
        let sign = if b < a { "-" } else { "+" };
        format!("{} ({sign}{})", format_bytes_short(b), format_bytes_short((b - a).abs()))
    }
}

fn only(name: &str, cells: &[CellName]) -> Vec<String> {
    cells.iter().map(|cell| format!("only in {name}: {cell}")).collect()
}

/// Returns the rule of `--fail-on-regression`, and the cells that are worse without failing it.
fn rule(comparison: &Comparison, percent: f64) -> String {
    let threshold = 1.0 - percent / 100.0;
    let text = format!(
        "--fail-on-regression {percent}: a cell fails when its whole interval lies below \
         {threshold:.2}"
    );
    let passed = comparison.cells.iter().filter(|change| {
        change.throughput.verdict == Verdict::Worse
            && !comparison.regressions.contains(&change.name)
    });
    let names: Vec<String> = passed.map(|change| change.name.to_string()).collect();
    match names.is_empty() {
        true => text,
        false => format!("{text}; worse without failing: {}", names.join("; ")),
    }
}

pub(super) fn summary(cells: &[Change]) -> String {
    let count =
        |verdict| cells.iter().filter(|change| change.throughput.verdict == verdict).count();
    let (better, worse) = (count(Verdict::Better), count(Verdict::Worse));
    let mut text = format!(
        "{} cells compared by throughput: {better} better, {worse} worse, {} within noise",
        cells.len(),
        count(Verdict::Noise),
    );
    if better + worse > 0 && cells.len() >= 10 {
        text +=
            &format!("; by chance alone about {:.0} would look changed", cells.len() as f64 / 20.0);
    }
    text
}
