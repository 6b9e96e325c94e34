//! Latency over load, if a run starts operations at several rates.

use std::collections::{BTreeMap, BTreeSet};

use super::group::{Chapter, heading_text};
use super::latency::tick_ns;
use super::look::Looks;
use super::plot::{self, Line, Row};
use super::scale::Log;
use crate::report::summary::{BackendSummary, GroupSummary};
use crate::result::Group;
use crate::result::percentile::Percentile;
use crate::text::format::{count, nanoseconds};

/// The largest number of points of a curve.
const RATES_MAX: usize = 64;

/// The latency that is typical, and the one that a loader waits for.
const PERCENTILES: [Percentile; 2] = [Percentile::P50, Percentile::P99];

/// Groups that differ only in the rate, by that rate.
type Family<'a> = BTreeMap<u64, &'a GroupSummary<'a>>;

/// Returns a section with a picture for each family of groups and each percentile; nothing for a run without any.
pub(crate) fn section(chapters: &[Chapter<'_>], looks: &Looks) -> String {
    let mut figures = String::new();
    for (group, family) in families(chapters) {
        let y = latency_scale(&family);
        for percentile in PERCENTILES {
            figures += &figure(&group, &family, percentile, &y, looks);
        }
    }
    if figures.is_empty() {
        return figures;
    }
    format!(
        "<section id=\"load\"><h2>Latency over load</h2>\n<p class=\"lead\">Latency over the \
         number of operations that are started in a second, on log scales. A rate that a backend \
         did not keep up with has no point.</p>\n<div class=\"pair\">\n{figures}</div></section>\n"
    )
}

fn families<'a>(chapters: &[Chapter<'a>]) -> BTreeMap<Group, Family<'a>> {
    let mut families: BTreeMap<Group, Family<'a>> = BTreeMap::new();
    for summary in chapters.iter().map(|chapter| chapter.summary) {
        let mut group = summary.group.clone();
        if let Some(rate) = group.setting.rate_per_s.take() {
            families.entry(group).or_default().insert(rate, summary);
        }
    }
    // A result with more rates was made to waste memory.
    families.retain(|_, family| (2..=RATES_MAX).contains(&family.len()));
    families
}

/// A backend at one rate.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Latency(f64),
    /// Its latencies grow with the length of the measurement.
    MissesRate,
    /// It has too few valid operations.
    Unknown,
}

impl Answer {
    fn of(backend: &BackendSummary<'_>, percentile: Percentile) -> Self {
        if backend.valid.iter().any(|cell| cell.misses_rate()) {
            return Self::MissesRate;
        }
        backend.latency_ns(percentile).map_or(Self::Unknown, |ns| Self::Latency(ns.max(1.0)))
    }

    fn ns(self) -> Option<f64> {
        match self {
            Self::Latency(ns) => Some(ns),
            Self::MissesRate | Self::Unknown => None,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Latency(ns) => nanoseconds(ns),
            Self::MissesRate => "too slow".into(),
            Self::Unknown => "–".into(),
        }
    }
}

/// Returns the answers of a backend to each rate.
fn answers(family: &Family<'_>, name: &str, percentile: Percentile) -> Vec<Answer> {
    let answer = |summary: &&GroupSummary<'_>| {
        let backend = summary.backends.iter().find(|backend| backend.name == name);
        backend.map_or(Answer::Unknown, |backend| Answer::of(backend, percentile))
    };
    family.values().map(answer).collect()
}

fn names<'a>(family: &Family<'a>) -> BTreeSet<&'a str> {
    let backends = family.values().flat_map(|summary| &summary.backends);
    backends.map(|backend| backend.name.as_str()).collect()
}

/// Returns one scale for all percentiles, so that their pictures can be compared.
fn latency_scale(family: &Family<'_>) -> Log {
    let all = names(family).into_iter().flat_map(|name| {
        PERCENTILES.into_iter().flat_map(move |percentile| answers(family, name, percentile))
    });
    let all: Vec<f64> = all.filter_map(Answer::ns).collect();
    let lowest = all.iter().copied().fold(f64::INFINITY, f64::min);
    Log::covering(lowest * 0.9, all.iter().copied().fold(0.0, f64::max) * 1.1)
}

fn figure(
    group: &Group,
    family: &Family<'_>,
    percentile: Percentile,
    y: &Log,
    looks: &Looks,
) -> String {
    let rates: Vec<f64> = family.keys().map(|rate| *rate as f64).collect();
    let x = Log::covering(rates[0], rates[rates.len() - 1]);
    let answered: Vec<(&str, Vec<Answer>)> =
        names(family).into_iter().map(|name| (name, answers(family, name, percentile))).collect();
    let lines = answered.iter().map(|(name, answers)| {
        let points = rates.iter().zip(answers);
        let points = points.filter_map(|(rate, it)| Some((x.share(*rate), y.share(it.ns()?))));
        Line { name, look: looks.get(name), points: points.collect() }
    });
    let lines: Vec<Line<'_>> = lines.filter(|line| !line.points.is_empty()).collect();
    let levels = y.ticks().into_iter().map(|ns| (y.share(ns), tick_ns(ns)));
    let feet = x.ticks().into_iter().map(|rate| (x.share(rate), count(rate as u64)));
    let rows = answered.iter().map(|(name, answers)| Row {
        name,
        look: looks.get(name),
        fields: answers.iter().map(|answer| answer.text()).collect(),
    });
    let columns = family.keys().map(|rate| count(*rate));
    let table = plot::table("operations a second", columns, rows);
    let what = format!("{} latency over load", percentile.name());
    plot::figure(&heading_text(group), &what, &lines, levels, feet, &table)
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
    fn only_several_rates_make_a_curve() {
        assert_eq!(page(&fixture::small_run()), "");
        let mut run = fixture::load_run();
        let html = page(&run);
        assert_eq!(html.matches("<figure").count(), 2, "p50 and p99: {html}");
        assert_eq!(html.matches("<polyline").count(), 2 * 2, "two backends in each");
        run.cells.retain(|cell| cell.setting.rate_per_s == Some(1000));
        assert_eq!(page(&run), "");
    }

    /// Only `uring` keeps up with the highest rate. The latencies of `pread` say nothing there.
    #[test]
    fn a_rate_that_is_missed_has_no_point() {
        let html = page(&fixture::load_run());
        let points = |name: &str| {
            let (_, line) = html.split_once(&format!("data-name=\"{name}\" points=\"")).unwrap();
            line.split_once('"').unwrap().0.split(' ').count()
        };
        assert_eq!((points("pread"), points("uring")), (2, 3));
        assert_eq!(html.matches(">too slow</td>").count(), 2, "in the tables of p50 and p99");
    }

    /// A cell without latencies, as of a backend that failed.
    #[test]
    fn missing_numbers_are_a_dash() {
        let mut run = fixture::load_run();
        run.cells.iter_mut().for_each(|cell| cell.valid = false);
        let html = page(&run);
        assert!(html.contains("<td class=\"num\">–</td>") && !html.contains("NaN"), "{html}");
    }
}
