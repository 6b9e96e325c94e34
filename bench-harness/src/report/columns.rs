//! Every scalar of a cell by name: the columns of the CSV file and of the last table of the report.

use std::fmt::Display;

use crate::result::Cell;

/// One scalar of a cell.
pub(crate) struct Column {
    /// Its path in `run.json`, with `_` between the levels; the unit is part of the name.
    pub(crate) name: &'static str,
    /// Returns the value as text; empty if there is none.
    pub(crate) value: fn(&Cell) -> String,
}

const fn column(name: &'static str, value: fn(&Cell) -> String) -> Column {
    Column { name, value }
}

fn optional<T: Display>(value: Option<T>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// All columns, in the order of `run.json`.
pub(crate) const COLUMNS: [Column; 50] = [
    column("backend", |c| c.backend.clone()),
    column("workload", |c| c.workload.clone()),
    column("setting_variant", |c| optional(c.setting.variant.as_ref())),
    column("setting_block_bytes", |c| optional(c.setting.block_bytes)),
    column("setting_batch", |c| optional(c.setting.batch)),
    column("setting_depth", |c| optional(c.setting.depth)),
    column("setting_processes", |c| optional(c.setting.processes)),
    column("setting_threads", |c| optional(c.setting.threads)),
    column("setting_window_bytes", |c| optional(c.setting.window_bytes)),
    column("setting_rate_per_s", |c| optional(c.setting.rate_per_s)),
    column("setting_epochs", |c| optional(c.setting.epochs)),
    column("cache", |c| c.cache.to_string()),
    column("repetition", |c| c.repetition.to_string()),
    column("valid", |c| c.valid.to_string()),
    column("invalid_reason", |c| optional(c.invalid_reason.as_ref())),
    column("bytes", |c| c.bytes.to_string()),
    column("reads", |c| c.reads.to_string()),
    column("operations", |c| c.operations.to_string()),
    column("seconds", |c| c.seconds.to_string()),
    column("throughput_bytes_per_s", |c| c.throughput_bytes_per_s.to_string()),
    column("latency_ns_p50", |c| c.latency_ns.p50.to_string()),
    column("latency_ns_p90", |c| c.latency_ns.p90.to_string()),
    column("latency_ns_p99", |c| c.latency_ns.p99.to_string()),
    column("latency_ns_p999", |c| c.latency_ns.p999.to_string()),
    column("latency_ns_max", |c| c.latency_ns.max.to_string()),
    column("rss_anon_bytes_start", |c| c.rss_anon_bytes.start.to_string()),
    column("rss_anon_bytes_peak", |c| c.rss_anon_bytes.peak.to_string()),
    column("rss_anon_bytes_end", |c| c.rss_anon_bytes.end.to_string()),
    column("rss_file_bytes_start", |c| c.rss_file_bytes.start.to_string()),
    column("rss_file_bytes_peak", |c| c.rss_file_bytes.peak.to_string()),
    column("rss_file_bytes_end", |c| c.rss_file_bytes.end.to_string()),
    column("pss_bytes_start", |c| optional(c.pss_bytes.map(|pss| pss.start))),
    column("pss_bytes_peak", |c| optional(c.pss_bytes.map(|pss| pss.peak))),
    column("pss_bytes_end", |c| optional(c.pss_bytes.map(|pss| pss.end))),
    column("faults_minor", |c| c.faults.minor.to_string()),
    column("faults_major", |c| c.faults.major.to_string()),
    column("cpu_s_user", |c| c.cpu_s.user.to_string()),
    column("cpu_s_system", |c| c.cpu_s.system.to_string()),
    column("cpu_s_per_gb", |c| c.cpu_s_per_gb.to_string()),
    column("context_switches_voluntary", |c| c.context_switches.voluntary.to_string()),
    column("context_switches_involuntary", |c| c.context_switches.involuntary.to_string()),
    column("dtlb_misses", |c| optional(c.dtlb_misses)),
    column("device_bytes", |c| optional(c.device_bytes)),
    column("cached_pages_before", |c| optional(c.cached_pages.before)),
    column("cached_pages_after", |c| optional(c.cached_pages.after)),
    column("cache_check_method", |c| optional(c.cache_check.map(|check| check.method))),
    column("cache_check_pages", |c| optional(c.cache_check.map(|check| check.pages))),
    column("cache_check_pages_checked", |c| {
        optional(c.cache_check.map(|check| check.pages_checked))
    }),
    column("cache_check_pages_off", |c| optional(c.cache_check.map(|check| check.pages_off))),
    column("checksum", |c| c.checksum.clone()),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;

    use super::*;
    use crate::fixture;

    fn flatten(name: &str, value: &Value, found: &mut BTreeMap<String, String>) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    let name = if name.is_empty() { key.clone() } else { format!("{name}_{key}") };
                    flatten(&name, value, found);
                }
            }
            Value::String(text) => drop(found.insert(name.to_owned(), text.clone())),
            Value::Null => drop(found.insert(name.to_owned(), String::new())),
            Value::Array(_) => {}
            scalar => drop(found.insert(name.to_owned(), scalar.to_string())),
        }
    }

    #[test]
    fn every_scalar_of_a_cell_has_a_column() {
        let cell = fixture::full_cell();
        let mut scalars = BTreeMap::new();
        flatten("", &serde_json::to_value(&cell).unwrap(), &mut scalars);
        scalars.remove("latency_histogram");
        for (name, value) in scalars {
            let column = COLUMNS.iter().find(|column| column.name == name);
            let column = column.unwrap_or_else(|| panic!("no column `{name}`"));
            assert_eq!((column.value)(&cell), value, "{name}");
        }
    }
}
