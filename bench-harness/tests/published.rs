//! The published figures: `docs/results/published.toml` has the numbers that the README and `docs/performance.md` show.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::Deserialize;

#[derive(Deserialize)]
struct Published {
    commands: BTreeMap<String, String>,
    figure: Vec<Figure>,
    rates: Vec<Rates>,
}

/// A row of the table "Every workload", in GB/s.
#[derive(Deserialize)]
struct Rates {
    group: String,
    row: String,
    #[serde(flatten)]
    backends: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    id: String,
    part: String,
    about: String,
    row: Option<String>,
    find: Option<String>,
    value: f64,
    #[serde(rename = "unit")]
    _unit: Option<String>,
    low: Option<f64>,
    high: Option<f64>,
    summary: Option<String>,
    readme: Option<String>,
    shown_in_summary: Option<Vec<f64>>,
    shown_in_readme: Option<Vec<f64>>,
    shown: Option<(String, String, usize)>,
    shown_in_table: Option<Vec<f64>>,
    commit: String,
}

impl Figure {
    /// Returns the row of the table "All ratios" that shows it, and the numbers there.
    fn in_summary(&self) -> Option<(&str, Vec<f64>)> {
        let numbers = self.shown_in_summary.clone().unwrap_or_else(|| vec![self.value]);
        self.summary.as_deref().map(|row| (row, numbers))
    }

    /// The same for the table of the README.
    fn in_readme(&self) -> Option<(&str, Vec<f64>)> {
        let numbers = self.shown_in_readme.clone().unwrap_or_else(|| vec![self.value]);
        self.readme.as_deref().map(|row| (row, numbers))
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(path)).unwrap()
}

fn published() -> Published {
    toml::from_str(&read("docs/results/published.toml")).unwrap()
}

/// A table of a page: the heading above it, the names of its columns, and its rows.
struct Table<'a> {
    heading: &'a str,
    columns: Vec<&'a str>,
    rows: Vec<Vec<&'a str>>,
}

fn fields(line: &str) -> Vec<&str> {
    line.trim_matches('|').split(" | ").map(str::trim).collect()
}

/// Returns the tables of a page, in order.
fn tables(page: &str) -> Vec<Table<'_>> {
    let (mut found, mut heading, mut previous): (Vec<Table<'_>>, _, _) = (Vec::new(), "", "");
    for line in page.lines() {
        if line.starts_with("##") {
            heading = line.trim_start_matches('#').trim();
        } else if line.starts_with("|--") {
            found.push(Table { heading, columns: fields(previous), rows: Vec::new() });
        } else if line.starts_with('|') && previous.starts_with('|') {
            found.last_mut().unwrap().rows.push(fields(line));
        }
        previous = line;
    }
    found
}

/// Returns the rows of the first table below a heading.
fn table<'a>(page: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    tables(page).into_iter().find(|table| table.heading == heading).unwrap().rows
}

/// Returns the numbers in a text, each with its digits after the point.
fn numbers(text: &str) -> Vec<(f64, i32)> {
    // 2,120 is one number; a comma between numbers has a space after it.
    let text = text.replace(", ", " ").replace(',', "");
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    let words = text.split(|c: char| !is_part(c)).filter(|word| word.contains(char::is_numeric));
    words
        .map(|word| {
            let digits = word.split_once('.').map_or(0, |(_, after)| after.len());
            (word.parse().unwrap(), i32::try_from(digits).unwrap())
        })
        .collect()
}

/// A text shows these values and no others, to the digits that it has.
fn assert_numbers(name: &str, text: &str, values: &[f64]) {
    let found = numbers(text);
    assert_eq!(found.len(), values.len(), "`{name}` shows `{text}`, published: {values:?}");
    for ((number, digits), value) in found.iter().zip(values) {
        let last_digit = 10f64.powi(-digits);
        assert!((number - value).abs() < last_digit, "`{name}` shows {number}, not {value}");
    }
}

/// Each row of a table shows the figures that name it, in order, to the digits that it has.
fn assert_shown(rows: &[Vec<&str>], place: impl Fn(&Figure) -> Option<(&str, Vec<f64>)>) {
    let published = published();
    let mut expected: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (row, numbers) in published.figure.iter().filter_map(place) {
        expected.entry(row).or_default().extend(numbers);
    }
    for row in rows {
        let (name, text) = (row[0], row[1]);
        assert_numbers(name, text, &expected.remove(name).unwrap_or_default());
    }
    assert!(expected.is_empty(), "no row shows {expected:?}");
}

#[test]
fn the_readme_shows_the_published_figures() {
    assert_shown(&table(&read("README.md"), "Measured"), Figure::in_readme);
}

#[test]
fn the_table_of_all_ratios_shows_the_published_figures() {
    let page = read("docs/performance.md");
    assert_shown(&table(&page, "All ratios"), Figure::in_summary);
}

/// The rows of `cargo bench` in `docs/performance.md` have the same ratios and ranges.
#[test]
fn every_comparison_of_the_page_is_published_with_its_range() {
    let (page, published) = (read("docs/performance.md"), published());
    let mut compared = 0;
    for row in tables(&page).iter().filter(|table| is_comparison(table)).flat_map(|it| &it.rows) {
        let [name, _, _, ratio, range] = row[..] else { panic!("{row:?} has other columns") };
        let (low, high) = range.split_once('-').unwrap();
        let name = name.replace('`', "");
        let is_it =
            |figure: &&Figure| figure.row.as_deref().is_some_and(|row| row.ends_with(&name));
        let Some(figure) = published.figure.iter().find(is_it) else {
            panic!("`{name}` is not in docs/results/published.toml");
        };
        let expected = [ratio, low, high].map(|text| text.parse::<f64>().unwrap());
        assert_eq!([Some(figure.value), figure.low, figure.high], expected.map(Some), "{name}");
        compared += 1;
    }
    assert_eq!(compared, published.figure.iter().filter(|figure| figure.row.is_some()).count());
}

/// Whether the rows of a table are comparisons of `cargo bench`.
fn is_comparison(table: &Table<'_>) -> bool {
    table.columns[0] == "comparison"
}

/// The values of the figures that a cell of a table shows.
fn in_cell<'a>(
    published: &'a Published,
    heading: &str,
    line: &str,
    column: usize,
) -> Vec<&'a Figure> {
    let is_there = |figure: &&Figure| {
        figure.shown.as_ref().is_some_and(|(its_heading, row, its_column)| {
            its_heading == heading && line.starts_with(&format!("{row} |")) && *its_column == column
        })
    };
    published.figure.iter().filter(is_there).collect()
}

/// If a figure is in a column, the other numbers of that column are published too. In every table there is such a column,
/// unless the rows are comparisons, which another test checks.
#[test]
fn every_table_of_the_page_shows_published_figures() {
    let (page, published) = (read("docs/performance.md"), published());
    let mut shown = 0;
    for table in tables(&page) {
        let of_another_test =
            is_comparison(&table) || ["All ratios", "Every workload"].contains(&table.heading);
        let columns = published_columns(&published, &table);
        assert!(of_another_test || !columns.is_empty(), "nothing of {:?}", table.columns);
        for (row, column) in
            table.rows.iter().flat_map(|row| columns.iter().map(move |at| (row, *at)))
        {
            shown += assert_cell(&published, &table, row, column);
        }
    }
    let placed = published.figure.iter().filter(|figure| figure.shown.is_some()).count();
    assert_eq!(shown, placed, "a figure names a row or column that is not there");
}

/// Returns the columns that show a figure in any row.
fn published_columns(published: &Published, table: &Table<'_>) -> BTreeSet<usize> {
    let cells = table.rows.iter().flat_map(|row| (0..row.len()).map(move |at| (row, at)));
    let shows = |(row, column): &(&Vec<&str>, usize)| {
        !in_cell(published, table.heading, &row.join(" | "), *column).is_empty()
    };
    cells.filter(shows).map(|(_, column)| column).collect()
}

/// A cell shows its figures, and their range if it is there or in the next column. Returns how many they are.
fn assert_cell(published: &Published, table: &Table<'_>, row: &[&str], column: usize) -> usize {
    let line = row.join(" | ");
    let figures = in_cell(published, table.heading, &line, column);
    // The side that others are divided by.
    if figures.is_empty() && row[column] == "1.00" && row[0] == "np.memmap" {
        return 0;
    }
    let mut expected: Vec<f64> = figures
        .iter()
        .flat_map(|figure| figure.shown_in_table.clone().unwrap_or_else(|| vec![figure.value]))
        .collect();
    let range = figures.first().and_then(|figure| Some([figure.low?, figure.high?]));
    if row[column].contains(" to ") {
        expected.extend(range.unwrap());
    }
    assert_numbers(&line, row[column], &expected);
    if table.columns.get(column + 1) == Some(&"range") {
        assert_numbers(&line, row[column + 1], &range.unwrap());
    }
    figures.len()
}

#[test]
fn the_table_of_every_workload_shows_the_published_rates() {
    let (page, published) = (read("docs/performance.md"), published());
    let table = tables(&page).into_iter().find(|table| table.heading == "Every workload").unwrap();
    let mut groups = BTreeSet::new();
    assert_eq!(table.rows.len(), published.rates.len());
    for (row, rates) in table.rows.iter().zip(&published.rates) {
        assert!(groups.insert(&rates.group), "{} is there twice", rates.group);
        assert_eq!(row[..2].join(" | "), rates.row);
        assert_eq!(table.columns.len() - 2, rates.backends.len(), "{}", rates.row);
        for (backend, text) in table.columns.iter().zip(row).skip(2) {
            let rate = rates.backends[backend.trim_matches('`')];
            assert_numbers(&rates.row, text.trim_matches('*'), &[rate]);
        }
    }
}

#[test]
fn every_figure_can_be_found_and_judged() {
    let (published, script) = (published(), read("scripts/reproduce.sh"));
    let (_, parts) = script.split_once("\nall=(").unwrap();
    let parts: BTreeSet<&str> = parts.split_once(')').unwrap().0.split_whitespace().collect();
    let commands: BTreeSet<&str> = published.commands.keys().map(String::as_str).collect();
    assert_eq!(parts, commands);
    let mut ids = BTreeSet::new();
    for figure in &published.figure {
        assert!(ids.insert(&figure.id), "{} is there twice", figure.id);
        assert!(commands.contains(figure.part.as_str()), "{}: {}", figure.id, figure.part);
        assert!(figure.row.is_some() != figure.find.is_some(), "{}: row or find", figure.id);
        assert!(!figure.about.is_empty() && figure.commit.len() >= 7, "{}", figure.id);
        let (low, high) = (figure.low.unwrap_or(figure.value), figure.high.unwrap_or(figure.value));
        assert!(low <= figure.value && figure.value <= high, "{}: outside its range", figure.id);
        assert_eq!(figure.low.is_some(), figure.high.is_some(), "{}", figure.id);
    }
}
