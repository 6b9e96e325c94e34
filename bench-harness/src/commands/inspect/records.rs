//! Lists of records, such as tensors, as tables.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use serde_json::{Map, Value};

use crate::text::format::{percent, seconds};
use crate::text::size::format_bytes_short;

/// The order of these columns; others follow.
const COLUMNS: [&str; 8] =
    ["name", "reads", "dtype", "shape", "bytes", "tensors", "header_bytes", "file"];

/// One row of a table.
type Record = Map<String, Value>;

/// Returns the records of a value if it is a list of records and not empty.
pub(super) fn of(value: &Value) -> Option<Vec<&Record>> {
    let records: Vec<&Record> =
        value.as_array()?.iter().map(Value::as_object).collect::<Option<_>>()?;
    Some(records).filter(|records| !records.is_empty())
}

/// Renders the first records, and says how to see the others.
pub(super) fn render(records: &[&Record], rows_max: usize) -> String {
    let Some(first) = records.first() else { return String::new() };
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    let mut columns: Vec<&String> = first.keys().collect();
    columns
        .sort_by_key(|name| COLUMNS.iter().position(|column| column == name).unwrap_or(usize::MAX));
    table.set_header(&columns);
    for record in records.iter().take(rows_max) {
        let value =
            |name: &&String| record.get(*name).map_or(String::new(), |value| text(name, value));
        table.add_row(columns.iter().map(value));
    }
    for (column, name) in table.column_iter_mut().zip(&columns) {
        if first.get(*name).is_some_and(Value::is_number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut rendered = String::new();
    for line in table.to_string().lines() {
        rendered += &format!(" {}\n", line.trim_end());
    }
    if let Some(more @ 1..) = records.len().checked_sub(rows_max) {
        rendered += &format!("  … and {more} more: --all shows them, --json has them too\n");
    }
    rendered
}

/// Returns the text of a value.
pub(super) fn text(name: &str, value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name}={}", text("", value)));
            fields.collect::<Vec<_>>().join(" ")
        }
        value if name.split('_').any(|part| part == "bytes") => {
            value.as_u64().map_or(value.to_string(), |bytes| format_bytes_short(bytes as f64))
        }
        value if name.ends_with("_share") => value.as_f64().map_or(value.to_string(), percent),
        value if name.ends_with("seconds") && value.is_f64() => {
            seconds(value.as_f64().unwrap_or(0.0))
        }
        Value::Null => "unknown".into(),
        value if value.is_f64() => format!("{:.1}", value.as_f64().unwrap_or(0.0)),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn long_lists_are_cut_and_say_so() {
        let list: Value =
            (0..5).map(|at| json!({"name": format!("t{at}"), "bytes": 2048 << at})).collect();
        let records = of(&list).unwrap();
        let cut = render(&records, 2);
        assert!(cut.contains("t1") && !cut.contains("t2") && cut.contains("and 3 more"), "{cut}");
        let whole = render(&records, 5);
        assert!(whole.contains("32.0 KiB") && !whole.contains("more"), "{whole}");
    }

    #[test]
    fn only_lists_of_records_are_tables() {
        for value in [json!([]), json!([1, 2]), json!({"a": 1}), json!([{"a": 1}, 2])] {
            assert!(of(&value).is_none(), "{value}");
        }
        assert_eq!(text("metadata", &json!({"format": "pt"})), "format=pt");
    }
}
