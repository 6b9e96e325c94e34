//! Tables to paste into a README.

use super::Exporter;
use crate::failure::Failure;
use crate::report::summary::{BackendSummary, EpochSummary, GroupSummary, summarize};
use crate::result::Run;
use crate::result::percentile::{Percentile, growth};
use crate::text::format::{bytes, nanoseconds, percent, rate};

/// Writes a table for each group, with the machine and the command below.
#[derive(Debug)]
pub(crate) struct Markdown;

impl Exporter for Markdown {
    fn export(&self, run: &Run) -> Result<String, Failure> {
        let tables = summarize(run)?.iter().map(table).collect::<Vec<_>>().join("\n");
        let command = run.command.join(" ").replace('`', "'");
        let commit = run.host.commit.as_ref().map(|c| format!(", commit {}", escape(c)));
        Ok(format!(
            "{tables}\nMedian of the repetitions, smallest and largest in brackets; latencies of \
             all repetitions together.\n\n{machine}; ringmain {version}{commit}, {started}: \
             `{command}`\n",
            machine = machine(run),
            version = escape(&run.ringmain_version),
            commit = commit.unwrap_or_default(),
            started = escape(&run.started_at),
        ))
    }
}

fn machine(run: &Run) -> String {
    let host = &run.host;
    let cpus = format!("{} CPUs", host.cpus);
    let parts = [
        host.cpu.clone(),
        Some(cpus),
        host.memory_bytes.map(|memory| bytes(memory as f64)),
        Some(format!("{} {}", host.os, host.kernel)),
        host.storage.filesystem.clone(),
        host.storage.device_model.clone().or_else(|| host.storage.device.clone()),
    ];
    parts.into_iter().flatten().map(|part| escape(&part)).collect::<Vec<_>>().join(", ")
}

fn table(group: &GroupSummary<'_>) -> String {
    let fio = group.best_fio();
    let mut names =
        vec!["backend", "throughput", "p50", "p99", "RSS growth", "CPU s/GB", "from the device"];
    let more = More::of(group);
    names.extend(more.names());
    names.extend(fio.map(|_| "of fio"));
    let mut text = format!("### {}\n\n", escape(&group.group.to_string()));
    text += &line(names.iter().map(|name| (*name).to_owned()));
    text +=
        &line(names.iter().enumerate().map(|(i, _)| if i == 0 { "---" } else { "---:" }.into()));
    for backend in &group.backends {
        text += &line(row(backend, &more, fio).into_iter());
    }
    text + &epochs(group)
}

/// The columns that only some groups have.
struct More {
    has_pss: bool,
    has_dtlb_misses: bool,
}

impl More {
    fn of(group: &GroupSummary<'_>) -> Self {
        let mut cells = group.backends.iter().flat_map(|backend| &backend.valid);
        let has_dtlb_misses = cells.any(|cell| cell.dtlb_misses.is_some());
        Self { has_pss: group.has_pss(), has_dtlb_misses }
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        let pss = self.has_pss.then_some("PSS growth");
        pss.into_iter().chain(self.has_dtlb_misses.then_some("dTLB misses"))
    }

    fn fields(&self, backend: &BackendSummary<'_>) -> impl Iterator<Item = String> {
        let known = |value: Option<f64>, text: fn(f64) -> String| value.map_or("–".into(), text);
        let pss = self.has_pss.then(|| known(backend.pss_growth(), bytes));
        let misses = backend.median_of_known(|cell| cell.dtlb_misses);
        let misses = self.has_dtlb_misses.then(|| known(misses, |count| format!("{count:.0}")));
        pss.into_iter().chain(misses)
    }
}

/// Returns a table of the epochs, one below the other; nothing for cells without epochs.
fn epochs(group: &GroupSummary<'_>) -> String {
    let mut lines = String::new();
    for backend in &group.backends {
        for (number, epoch) in (1..).zip(backend.epochs()) {
            let names = [escape(&backend.name), number.to_string()];
            lines += &line(names.into_iter().chain(epoch.fields()));
        }
    }
    if lines.is_empty() {
        return lines;
    }
    let names = [&["backend", "epoch"], &EpochSummary::FIELDS[..]].concat();
    let head = line(names.iter().map(|name| (*name).to_owned()));
    let rule = line((0..names.len()).map(|at| if at == 0 { "---" } else { "---:" }.into()));
    format!("\n{head}{rule}{lines}")
}

fn line(fields: impl Iterator<Item = String>) -> String {
    format!("| {} |\n", fields.collect::<Vec<_>>().join(" | "))
}

fn row(backend: &BackendSummary<'_>, more: &More, fio: Option<f64>) -> Vec<String> {
    let throughput = match &backend.throughput {
        Some(t) => format!("{} ({} – {})", rate(t.median), rate(t.min), rate(t.max)),
        None => "invalid".into(),
    };
    let known = |value: Option<f64>, text: fn(f64) -> String| value.map_or("–".into(), text);
    // fio does not report its memory.
    let ours = |value: Option<f64>| value.filter(|_| !backend.is_fio());
    let grown = ours(backend.median(|cell| {
        growth(&cell.rss_anon_bytes).saturating_add(growth(&cell.rss_file_bytes)) as f64
    }));
    let cpu = backend.median(|cell| cell.cpu_s_per_gb);
    let mut fields = vec![
        escape(&backend.name),
        throughput,
        known(backend.latency_ns(Percentile::P50), nanoseconds),
        known(backend.latency_ns(Percentile::P99), nanoseconds),
        known(grown, bytes),
        known(cpu, |seconds| format!("{seconds:.3}")),
        known(backend.median_of_known(|cell| cell.device_bytes), bytes),
    ];
    fields.extend(more.fields(backend));
    let share = |fio: f64| backend.throughput_median().map_or("–".into(), |t| percent(t / fio));
    fields.extend(fio.map(share));
    fields
}

/// Escapes a name so that it stays within its field.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '|' | '\\' | '`' | '*' | '_' | '<' | '>' | '[' | ']' | '#' => {
                escaped.push('\\');
                escaped.push(c);
            }
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn each_group_is_a_table_with_all_backends() {
        let run = fixture::small_run();
        let text = Markdown.export(&run).unwrap();
        let headings = text.lines().filter(|line| line.starts_with("### ")).count();
        assert_eq!(headings, run.grouped().len());
        let rows: usize = run.grouped().values().map(Vec::len).sum();
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(lines.len(), rows + 2 * headings);
        assert!(text.contains("| of fio |"), "{text}");
        for line in lines {
            let fields = line.matches(" |").count();
            assert!(fields == 7 || fields == 8, "{line}");
        }
    }

    #[test]
    fn epochs_are_a_table_of_their_own() {
        let text = Markdown.export(&fixture::epochs_run()).unwrap();
        assert!(text.contains("| backend | epoch | time |"), "{text}");
        let of_pread = text.lines().filter(|line| line.starts_with("| pread | ")).count();
        assert_eq!(of_pread, 1 + 3, "{text}");
    }

    #[test]
    fn figures_that_few_machines_count_have_a_column_where_they_are_known() {
        let text = Markdown.export(&fixture::small_run()).unwrap();
        assert!(!text.contains("PSS") && !text.contains("dTLB"), "{text}");
        let mut run = fixture::epochs_run();
        run.cells.iter_mut().for_each(|cell| cell.dtlb_misses = Some(123_456));
        let text = Markdown.export(&run).unwrap();
        assert!(text.contains("| PSS growth | dTLB misses |"), "{text}");
        let row = text.lines().find(|line| line.starts_with("| pread | ")).unwrap();
        assert!(row.ends_with("| 2.0 MiB | 123456 |"), "{row}");
    }

    #[test]
    fn a_name_cannot_leave_its_field() {
        assert_eq!(escape("a|b\n<i>"), "a\\|b \\<i\\>");
    }
}
