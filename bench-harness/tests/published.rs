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

/// Returns the fields of each row of the first table below a heading, without its head.
fn table<'a>(page: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let below = page.split_once(&format!("\n## {heading}\n")).unwrap().1;
    let lines = below.lines().skip_while(|line| !line.starts_with('|'));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// Returns the numbers in a text, each with its digits after the point.
fn numbers(text: &str) -> Vec<(f64, i32)> {
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    let words = text.split(|c: char| !is_part(c)).filter(|word| word.contains(char::is_numeric));
    words
        .map(|word| {
            let digits = word.split_once('.').map_or(0, |(_, after)| after.len());
            (word.parse().unwrap(), i32::try_from(digits).unwrap())
        })
        .collect()
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
        let values = expected.remove(name).unwrap_or_default();
        let found = numbers(text);
        assert_eq!(found.len(), values.len(), "`{name}` shows `{text}`, published: {values:?}");
        for ((number, digits), value) in found.iter().zip(values) {
            let last_digit = 10f64.powi(-digits);
            assert!((number - value).abs() < last_digit, "`{name}` shows {number}, not {value}");
        }
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

/// The tables of `cargo bench` in `docs/performance.md` have the same ratios and ranges.
#[test]
fn every_comparison_of_the_page_is_published_with_its_range() {
    let (page, published) = (read("docs/performance.md"), published());
    let mut compared = 0;
    for line in page.lines().filter(|line| line.contains(" MB/s | ")) {
        let fields: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [name, _, _, ratio, range] = fields[..] else { continue };
        let Some((low, high)) = range.split_once('-') else { continue };
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
