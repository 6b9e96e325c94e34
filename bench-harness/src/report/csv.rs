//! One line for each cell, for spreadsheets and data frames.

use super::Exporter;
use super::columns::COLUMNS;
use crate::failure::Failure;
use crate::result::Run;

/// Comma-separated values as in RFC 4180, with a line of names first.
#[derive(Debug)]
pub(crate) struct Csv;

impl Exporter for Csv {
    fn export(&self, run: &Run) -> Result<String, Failure> {
        let mut text = line(COLUMNS.iter().map(|column| column.name.to_owned()));
        for cell in &run.cells {
            text += &line(COLUMNS.iter().map(|column| (column.value)(cell)));
        }
        Ok(text)
    }
}

fn line(fields: impl Iterator<Item = String>) -> String {
    fields.map(|field| quoted(&field)).collect::<Vec<_>>().join(",") + "\r\n"
}

fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn there_is_a_line_for_each_cell() {
        let run = fixture::small_run();
        let text = Csv.export(&run).unwrap();
        let lines: Vec<&str> = text.split_terminator("\r\n").collect();
        assert_eq!(lines.len(), run.cells.len() + 1);
        assert!(lines[0].starts_with("backend,workload,setting_variant,"), "{}", lines[0]);
        assert!(lines[1].starts_with(&run.cells[0].backend), "{}", lines[1]);
    }

    #[test]
    fn separators_are_quoted() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a,b"), "\"a,b\"");
        assert_eq!(quoted("say \"no\"\n"), "\"say \"\"no\"\"\n\"");
    }
}
