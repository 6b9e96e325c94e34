//! The numbers behind the pictures of a group.

use super::escape::escape;
use super::memory::thinned;
use crate::report::columns::{COLUMNS, Column};
use crate::report::summary::{BackendSummary, EpochSummary, GroupSummary};
use crate::result::Cell;
use crate::result::percentile::growth;
use crate::text::format::{bytes, count, nanoseconds, rate, seconds};

/// The quantiles in the table, more than in the key.
const QUANTILES: [(&str, f64); 11] = [
    ("0 %", 0.0),
    ("25 %", 0.25),
    ("50 %", 0.5),
    ("75 %", 0.75),
    ("90 %", 0.9),
    ("95 %", 0.95),
    ("99 %", 0.99),
    ("99.5 %", 0.995),
    ("99.9 %", 0.999),
    ("99.99 %", 0.9999),
    ("100 %", 1.0),
];

/// Columns that are the same within a group, so that its heading has them.
const OF_THE_GROUP: [&str; 2] = ["workload", "cache"];

/// Returns the tables, which are folded at first.
pub(crate) fn tables(group: &GroupSummary<'_>) -> String {
    format!(
        "<div class=\"numbers\">{}{}{}{}{}</div>\n",
        folded("Medians of each backend", &medians(group)),
        folded("Medians of each epoch", &epochs(group)),
        folded("Latency percentiles", &percentiles(group)),
        folded("Memory over time", &timelines(group)),
        folded("Every number of every repetition", &cells(group)),
    )
}

fn folded(title: &str, table: &str) -> String {
    if table.is_empty() {
        return String::new();
    }
    format!(
        "<details><summary>{title}</summary><div class=\"wide\" tabindex=\"0\" role=\"region\" \
         aria-label=\"{title}\">{table}</div></details>\n"
    )
}

/// Returns a table whose first column names the row. Fields are HTML.
fn table(names: &[&str], rows: impl Iterator<Item = (String, Vec<String>)>) -> String {
    let mut html = String::from("<table class=\"plain\"><thead><tr>");
    for name in names {
        html += &format!("<th scope=\"col\">{name}</th>");
    }
    html += "</tr></thead><tbody>\n";
    for (name, fields) in rows {
        html += &format!("<tr><th scope=\"row\">{name}</th>");
        for field in fields {
            html += &format!("<td>{field}</td>");
        }
        html += "</tr>\n";
    }
    html + "</tbody></table>"
}

fn medians(group: &GroupSummary<'_>) -> String {
    let names = [
        "backend",
        "cells",
        "throughput",
        "smallest",
        "largest",
        "reads",
        "anon RSS growth",
        "file RSS growth",
        "PSS growth",
        "minor faults",
        "major faults",
        "CPU s/GB",
        "user CPU",
        "system CPU",
        "switches, waiting",
        "switches, forced",
        "dTLB misses",
        "from the device",
        "cached pages before",
        "after",
        "state verified",
    ];
    table(&names, group.backends.iter().map(|b| (escape(&b.name), median_fields(b))))
}

fn median_fields(backend: &BackendSummary<'_>) -> Vec<String> {
    let number =
        |of: fn(&Cell) -> f64, text: fn(f64) -> String| backend.median(of).map_or("–".into(), text);
    let known = |of: fn(&Cell) -> Option<u64>, text: fn(f64) -> String| {
        backend.median_of_known(of).map_or("–".into(), text)
    };
    // fio does not report its memory.
    let grown = |of: fn(&Cell) -> f64| match backend.is_fio() {
        true => "–".into(),
        false => number(of, bytes),
    };
    let whole: fn(f64) -> String = |value| count(value.round() as u64);
    let extreme = |of: fn(&crate::stats::Summary) -> f64| {
        backend.throughput.as_ref().map_or("–".into(), |summary| rate(of(summary)))
    };
    vec![
        format!("{} of {}", backend.valid.len(), backend.cells.len()),
        extreme(|summary| summary.median),
        extreme(|summary| summary.min),
        extreme(|summary| summary.max),
        number(|cell| cell.reads as f64, whole),
        grown(|cell| growth(&cell.rss_anon_bytes) as f64),
        grown(|cell| growth(&cell.rss_file_bytes) as f64),
        backend.pss_growth().map_or("–".into(), bytes),
        number(|cell| cell.faults.minor as f64, whole),
        number(|cell| cell.faults.major as f64, whole),
        number(|cell| cell.cpu_s_per_gb, |value| format!("{value:.3}")),
        number(|cell| cell.cpu_s.user, seconds),
        number(|cell| cell.cpu_s.system, seconds),
        number(|cell| cell.context_switches.voluntary as f64, whole),
        number(|cell| cell.context_switches.involuntary as f64, whole),
        known(|cell| cell.dtlb_misses, whole),
        known(|cell| cell.device_bytes, bytes),
        known(|cell| cell.cached_pages.before, whole),
        known(|cell| cell.cached_pages.after, whole),
        backend
            .cells
            .iter()
            .find_map(|cell| cell.cache_check)
            .map_or("–".into(), |it| it.to_string()),
    ]
}

fn epochs(group: &GroupSummary<'_>) -> String {
    let mut rows = Vec::new();
    for backend in &group.backends {
        for (number, epoch) in (1..).zip(backend.epochs()) {
            let fields = [number.to_string()].into_iter().chain(epoch.fields());
            rows.push((escape(&backend.name), fields.collect()));
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let names = [&["backend", "epoch"], &EpochSummary::FIELDS[..]].concat();
    table(&names, rows.into_iter())
}

fn percentiles(group: &GroupSummary<'_>) -> String {
    let mut names = vec!["backend", "operations"];
    names.extend(QUANTILES.iter().map(|(name, _)| *name));
    let recorded: Vec<_> =
        group.backends.iter().filter_map(|b| b.histogram.as_ref().map(|h| (&b.name, h))).collect();
    if recorded.is_empty() {
        return String::new();
    }
    table(
        &names,
        recorded.into_iter().map(|(name, histogram)| {
            let quantiles = QUANTILES.iter().map(|(_, quantile)| *quantile);
            let values = histogram.value_at_quantiles(quantiles).map(|ns| nanoseconds(ns as f64));
            (escape(name), [count(histogram.len())].into_iter().chain(values).collect())
        }),
    )
}

fn timelines(group: &GroupSummary<'_>) -> String {
    let mut rows = Vec::new();
    for backend in &group.backends {
        let samples = backend.typical_cell().map(|cell| thinned(&cell.rss_timeline));
        for sample in samples.unwrap_or_default() {
            let fields = vec![
                format!("{:.1} ms", sample.at_us as f64 / 1e3),
                bytes(sample.anon_bytes as f64),
                bytes(sample.file_bytes as f64),
            ];
            rows.push((escape(&backend.name), fields));
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    table(&["backend", "time", "anonymous", "of files"], rows.into_iter())
}

fn cells(group: &GroupSummary<'_>) -> String {
    let is_shown = |column: &&Column| {
        !OF_THE_GROUP.contains(&column.name) && !column.name.starts_with("setting_")
    };
    let columns: Vec<&Column> = COLUMNS.iter().filter(is_shown).collect();
    let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
    let cells = group.backends.iter().flat_map(|backend| &backend.cells);
    table(
        &names,
        cells.map(|cell| {
            let mut fields = columns.iter().map(|column| escape(&(column.value)(cell)));
            (fields.next().unwrap_or_default(), fields.collect())
        }),
    )
}
