//! Throughput over the number of threads and of processes, if a run has several numbers.

use std::collections::BTreeMap;

use super::group::{Chapter, heading_text};
use super::look::Looks;
use super::plot::{self, Line, Row};
use super::scale::Linear;
use crate::report::summary::GroupSummary;
use crate::result::{Group, Setting};
use crate::text::format::rate;

/// The largest number of points of a curve.
const COUNTS_MAX: usize = 64;

/// The kind of readers that is counted.
#[derive(Clone, Copy)]
enum Readers {
    Threads,
    Processes,
}

/// Groups that differ only in the number of readers, by that number.
type Family<'a> = BTreeMap<u32, &'a GroupSummary<'a>>;
/// The throughput of each backend, by the place of the number of readers.
type Rates<'a> = BTreeMap<&'a str, BTreeMap<usize, f64>>;

/// Returns a section with a picture for each family of groups; nothing for a run without any.
pub(crate) fn section(chapters: &[Chapter<'_>], looks: &Looks) -> String {
    let mut figures = String::new();
    for readers in [Readers::Threads, Readers::Processes] {
        for (group, family) in readers.families(chapters) {
            figures += &figure(readers, &group, &family, looks);
        }
    }
    if figures.is_empty() {
        return figures;
    }
    format!(
        "<section id=\"scaling\"><h2>More readers</h2>\n<p class=\"lead\">Median throughput over \
         the number of threads or processes that read at the same time.</p>\n<div \
         class=\"pair\">\n{figures}</div></section>\n"
    )
}

impl Readers {
    fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Processes => "processes",
        }
    }

    /// Takes the number of readers out of a setting.
    fn take(self, setting: &mut Setting) -> u32 {
        let count = match self {
            Self::Threads => setting.threads.take(),
            Self::Processes => setting.processes.take(),
        };
        count.unwrap_or(1)
    }

    fn families<'a>(self, chapters: &[Chapter<'a>]) -> BTreeMap<Group, Family<'a>> {
        let mut families: BTreeMap<Group, Family<'a>> = BTreeMap::new();
        for summary in chapters.iter().map(|chapter| chapter.summary) {
            let mut group = summary.group.clone();
            let count = self.take(&mut group.setting);
            families.entry(group).or_default().insert(count, summary);
        }
        // A result with more numbers was made to waste memory.
        families.retain(|_, family| (2..=COUNTS_MAX).contains(&family.len()));
        families
    }
}

fn figure(readers: Readers, group: &Group, family: &Family<'_>, looks: &Looks) -> String {
    let rates = rates_of(family);
    let largest = rates.values().flat_map(BTreeMap::values).copied().fold(1.0, f64::max);
    let y = Linear::decimal(largest * 1.02, 4);
    // Numbers of readers are steps, usually doublings, so they are at equal distances.
    let place = |at: usize| at as f64 / (family.len() - 1) as f64;
    let lines = rates.iter().map(|(name, rates)| {
        let points = rates.iter().map(|(at, rate)| (place(*at), y.share(*rate))).collect();
        Line { name, look: looks.get(name), points }
    });
    let lines: Vec<Line<'_>> = lines.collect();
    let feet = family.keys().enumerate().map(|(at, count)| (place(at), count.to_string()));
    let levels = y.ticks.iter().map(|tick| (y.share(*tick), tick_rate(*tick)));
    let what = format!("throughput over {}", readers.name());
    let table = table(readers, family, &rates, looks);
    plot::figure(&heading_text(group), &what, &lines, levels, feet, &table)
}

fn rates_of<'a>(family: &Family<'a>) -> Rates<'a> {
    let mut rates = Rates::new();
    for (at, summary) in family.values().enumerate() {
        for backend in summary.backends.iter().filter(|backend| !backend.is_fio()) {
            if let Some(rate) = backend.throughput_median() {
                rates.entry(backend.name.as_str()).or_default().insert(at, rate);
            }
        }
    }
    rates
}

fn tick_rate(tick: f64) -> String {
    if tick == 0.0 { "0".into() } else { rate(tick) }
}

fn table(readers: Readers, family: &Family<'_>, rates: &Rates<'_>, looks: &Looks) -> String {
    let rows = rates.iter().map(|(name, rates)| {
        let field = |at| rates.get(&at).map_or("–".into(), |found| rate(*found));
        let fields = (0..family.len()).map(field).collect();
        Row { name, look: looks.get(name), fields }
    });
    plot::table(readers.name(), family.keys().map(u32::to_string), rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::result::Run;

    fn page(run: &Run) -> String {
        super::super::section_of(run, section)
    }

    #[test]
    fn only_numbers_of_readers_make_a_curve() {
        assert_eq!(page(&fixture::small_run()), "");
        let html = page(&fixture::scaling_run());
        assert_eq!(html.matches("<figure").count(), 2, "threads and processes: {html}");
        assert_eq!(html.matches("<polyline").count(), 2 * 2, "two backends in each");
        for part in ["over threads", "over processes", "<th scope=\"col\">4</th>"] {
            assert!(html.contains(part), "`{part}` is missing in {html}");
        }
    }
}
