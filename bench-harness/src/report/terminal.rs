//! The tables at the end of a run.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};

use super::Exporter;
use crate::failure::Failure;
use crate::report::summary::{BackendSummary, EpochSummary, GroupSummary, summarize};
use crate::result::percentile::{Percentile, growth};
use crate::result::{Cell, Run};
use crate::text::format::{self, bytes, count, nanoseconds, percent};

/// Writes a table for each group, for a terminal or a log. Latencies are those of operations: of batches,
/// or of single reads if the batch is 1.
#[derive(Debug)]
pub(crate) struct Terminal;

impl Exporter for Terminal {
    fn export(&self, run: &Run) -> Result<String, Failure> {
        let groups = summarize(run)?;
        let tables = groups.iter().map(|group| {
            let epochs = epochs(group).map(|table| format!("{table}\n")).unwrap_or_default();
            format!("\n{}\n{}\n{epochs}", group.group, table(group))
        });
        Ok(tables.collect())
    }
}

const HEADER: [&str; 11] = [
    "backend", "median", "range", "reads/s", "p50", "p99", "p99.9", "anon", "file", "CPU s/GB",
    "device",
];

fn table(group: &GroupSummary<'_>) -> Table {
    let (fio, has_pss) = (group.best_fio(), group.has_pss());
    let mut header = HEADER.to_vec();
    header.extend(has_pss.then_some("PSS"));
    header.extend(fio.map(|_| "of fio"));
    aligned(&header, group.backends.iter().map(|backend| row(backend, has_pss, fio)))
}

/// Returns a table of the epochs, one below the other; `None` for cells without epochs.
fn epochs(group: &GroupSummary<'_>) -> Option<Table> {
    let mut rows = Vec::new();
    for backend in &group.backends {
        for (number, epoch) in (1..).zip(backend.epochs()) {
            let name = format!("{}, epoch {number}", backend.name);
            rows.push([name].into_iter().chain(epoch.fields()).collect());
        }
    }
    let header = [&["backend"], &EpochSummary::FIELDS[..]].concat();
    (!rows.is_empty()).then(|| aligned(&header, rows.into_iter()))
}

/// Returns a table with numbers on the right.
fn aligned(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn row(backend: &BackendSummary<'_>, has_pss: bool, fio: Option<f64>) -> Vec<String> {
    let Some(rate) = backend.throughput else {
        // The warnings say why.
        return vec![backend.name.clone(), "invalid".into()];
    };
    let known = |value: Option<f64>, format: fn(f64) -> String| value.map_or("–".into(), format);
    let latency = |at| known(backend.latency_ns(at), nanoseconds);
    // fio does not report its memory.
    let grown = |of: fn(&Cell) -> f64| match backend.is_fio() {
        true => "–".into(),
        false => known(backend.median(of), |grown| format!("+{}", bytes(grown))),
    };
    let invalid = match backend.cells.len() - backend.valid.len() {
        0 => String::new(),
        invalid => format!(" ({invalid} invalid)"),
    };
    let mut row = vec![
        format!("{}{invalid}", backend.name),
        format::rate(rate.median),
        format!("{}–{}", format::rate(rate.min), format::rate(rate.max)),
        known(backend.median(|cell| cell.reads as f64 / cell.seconds.max(1e-9)), |n| {
            count(n as u64)
        }),
        latency(Percentile::P50),
        latency(Percentile::P99),
        latency(Percentile::P999),
        grown(|cell| growth(&cell.rss_anon_bytes) as f64),
        grown(|cell| growth(&cell.rss_file_bytes) as f64),
        known(backend.median(|cell| cell.cpu_s_per_gb), |cpu_s| format!("{cpu_s:.2}")),
    ];
    // The bytes from the device as a share of the requested bytes.
    let device = backend.median_of_known(|cell| cell.device_bytes);
    let asked = backend.median(|cell| cell.bytes as f64).filter(|bytes| *bytes > 0.0);
    row.push(known(device.zip(asked).map(|(device, asked)| device / asked), percent));
    row.extend(has_pss.then(|| known(backend.pss_growth(), |grown| format!("+{}", bytes(grown)))));
    row.extend(fio.map(|fio| percent(rate.median / fio)));
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn every_group_and_backend_has_its_line() {
        let run = fixture::small_run();
        let text = Terminal.export(&run).unwrap();
        for (group, backends) in run.grouped() {
            assert!(text.contains(&format!("\n{group}\n")), "{group} is missing in:\n{text}");
            for (name, _) in backends {
                assert!(text.contains(&format!("\n {name} ")), "{name} is missing in:\n{text}");
            }
        }
        assert!(text.contains("of fio") && text.contains("invalid"), "{text}");
        assert!(!text.contains("PSS") && !text.contains("epoch"), "{text}");
    }

    #[test]
    fn epochs_and_processes_have_their_figures() {
        let text = Terminal.export(&fixture::epochs_run()).unwrap();
        assert!(text.contains("2 processes, 3 epochs) cold"), "{text}");
        assert!(text.contains("pread, epoch 3") && text.contains("major faults"), "{text}");
        assert!(text.contains("PSS"), "{text}");
    }
}
