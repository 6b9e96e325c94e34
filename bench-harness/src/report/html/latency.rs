//! Latency by percentile, both on log scales, so that the tail gets as much room as the rest.

use hdrhistogram::Histogram;

use super::escape;
use super::look::{Look, Looks};
use super::plot::{self, Line};
use super::scale::Log;
use crate::report::summary::{BackendSummary, GroupSummary};
use crate::result::percentile::Percentile;
use crate::text::format::nanoseconds;

/// The height of the picture. Widths are relative.
const HEIGHT_PX: f64 = 230.0;

/// Points of a curve for each factor of ten.
const POINTS_PER_DECADE: f64 = 12.0;

/// Operations rarer than one in a hundred million are drawn at the edge.
const RARITY_MAX: f64 = 1e8;

struct Curve<'a> {
    name: &'a str,
    look: Look,
    /// `1 / (1 - quantile)` and nanoseconds.
    points: Vec<(f64, f64)>,
}

impl<'a> Curve<'a> {
    fn line(&self, x: &Log, y: &Log) -> Line<'a> {
        let points = self.points.iter().map(|(rarity, ns)| (x.share(*rarity), y.share(*ns)));
        Line { name: self.name, look: self.look, points: points.collect() }
    }
}

/// Returns the curves, and a table of their main points that is also their key.
pub(crate) fn figure(group: &GroupSummary<'_>, looks: &Looks) -> String {
    let curves: Vec<Curve<'_>> =
        group.backends.iter().filter_map(|backend| curve(backend, looks)).collect();
    if curves.is_empty() {
        return "<figure class=\"latency\"><figcaption>Latency</figcaption><p \
                class=\"empty\">No latencies were recorded.</p></figure>\n"
            .into();
    }
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let x = Log::covering(1.0, points().map(|p| p.0).fold(10.0, f64::max));
    let lowest = points().map(|p| p.1).fold(f64::INFINITY, f64::min);
    let y = Log::covering(lowest * 0.9, points().map(|p| p.1).fold(0.0, f64::max) * 1.1);
    let lines: Vec<Line<'_>> = curves.iter().map(|curve| curve.line(&x, &y)).collect();
    format!(
        "<figure class=\"latency\"><figcaption>Latency <span>by percentile, all repetitions \
         together</span></figcaption>\n<div class=\"frame\"><svg class=\"lines\" \
         height=\"{HEIGHT_PX}\" role=\"img\" aria-label=\"Latency by percentile, a line for each \
         backend; the table below has the numbers\" data-x-high=\"{:.0}\" data-y-low=\"{:.1}\" \
         data-y-high=\"{:.1}\">{}{}{}{}</svg></div>\n{}</figure>\n",
        x.high,
        y.low,
        y.high,
        axes(&x, &y),
        plot::lines(&lines),
        marks(&curves, &x, &y),
        plot::names(&lines, HEIGHT_PX),
        key(group, looks),
    )
}

fn curve<'a>(backend: &'a BackendSummary<'_>, looks: &Looks) -> Option<Curve<'a>> {
    let points = match &backend.histogram {
        Some(histogram) => sampled(histogram),
        None => known_points(backend),
    };
    let look = looks.get(&backend.name);
    (!points.is_empty()).then_some(Curve { name: &backend.name, look, points })
}

fn sampled(histogram: &Histogram<u64>) -> Vec<(f64, f64)> {
    let rarest = (histogram.len() as f64).clamp(2.0, RARITY_MAX);
    let steps = (rarest.log10() * POINTS_PER_DECADE).ceil().max(1.0) as u32;
    let rarity = |step: u32| rarest.powf(f64::from(step) / f64::from(steps));
    let values = histogram.value_at_quantiles((0..steps).map(|step| 1.0 - 1.0 / rarity(step)));
    let mut points: Vec<(f64, f64)> =
        (0..steps).zip(values).map(|(step, ns)| (rarity(step), ns.max(1) as f64)).collect();
    // The last operation is the slowest.
    points.push((rarest, histogram.max().max(1) as f64));
    points
}

/// Returns a curve from percentiles, if single latencies are unknown (fio).
fn known_points(backend: &BackendSummary<'_>) -> Vec<(f64, f64)> {
    let operations = backend.median(|cell| cell.operations as f64).unwrap_or(0.0);
    let rarity = |percentile: Percentile| match percentile {
        Percentile::Max => operations.clamp(2.0, RARITY_MAX),
        other => 1.0 / (1.0 - other.quantile()),
    };
    let known = Percentile::ALL.iter().filter_map(|percentile| {
        backend.latency_ns(*percentile).map(|ns| (rarity(*percentile), ns.max(1.0)))
    });
    let mut points: Vec<(f64, f64)> = known.collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

fn axes(x: &Log, y: &Log) -> String {
    let mut svg = String::from("<g class=\"axes\">");
    for ns in y.ticks() {
        let at = (1.0 - y.share(ns)) * HEIGHT_PX;
        svg += &format!(
            "<line class=\"grid\" x1=\"0\" x2=\"100%\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text class=\"y\" x=\"-8\" y=\"{:.1}\">{}</text>",
            at + 4.0,
            tick_ns(ns)
        );
    }
    for (rarity, name) in percentile_ticks(x.high) {
        let at = x.share(rarity) * 100.0;
        svg += &format!(
            "<line class=\"grid\" x1=\"{at:.2}%\" x2=\"{at:.2}%\" y1=\"0\" y2=\"{HEIGHT_PX}\"/>\
             <text class=\"x\" x=\"{at:.2}%\" y=\"{}\">{name}</text>",
            HEIGHT_PX + 17.0
        );
    }
    svg + "</g>"
}

/// Formats a tick without needless digits: `20 µs`.
pub(super) fn tick_ns(ns: f64) -> String {
    let units = [("s", 1e9), ("ms", 1e6), ("µs", 1e3)];
    let fits = units.into_iter().find(|(_, worth)| ns >= worth * 0.999);
    let (unit, worth) = fits.unwrap_or(("ns", 1.0));
    format!("{:.0} {unit}", ns / worth)
}

fn percentile_ticks(high: f64) -> Vec<(f64, String)> {
    let mut ticks = vec![(1.0, "0".to_owned())];
    if high < 2e4 {
        ticks.push((2.0, "50".into()));
    }
    let names = ["90", "99", "99.9", "99.99", "99.999", "99.9999", "99.99999"];
    let rarities = (1..).map(|power| 10_f64.powi(power));
    ticks.extend(
        rarities.zip(names.map(String::from)).filter(|(rarity, _)| *rarity <= high * 1.001),
    );
    if let Some((_, last)) = ticks.last_mut() {
        last.push_str(" %");
    }
    ticks
}

/// Returns marks at 50, 90, 99 … %, if the curve reaches them.
fn marks(curves: &[Curve<'_>], x: &Log, y: &Log) -> String {
    let mut svg = String::new();
    for curve in curves {
        let end = curve.points.last().map_or(1.0, |point| point.0);
        let start = curve.points.first().map_or(1.0, |point| point.0);
        let rarities = [2.0, 10.0, 1e2, 1e3, 1e4, 1e5, 1e6];
        let on_curve = |rarity: &f64| (start..=end).contains(rarity);
        for rarity in rarities.into_iter().filter(on_curve).chain([end]) {
            let y = (1.0 - y.share(at(&curve.points, rarity))) * HEIGHT_PX;
            svg += &curve.look.mark(&format!("{:.2}%", x.share(rarity) * 100.0), y);
        }
    }
    svg
}

/// Interpolates a curve linearly on the log scales.
fn at(points: &[(f64, f64)], rarity: f64) -> f64 {
    let after = points.partition_point(|point| point.0 < rarity);
    match (after.checked_sub(1).and_then(|before| points.get(before)), points.get(after)) {
        (Some((x0, y0)), Some((x1, y1))) if x1 > x0 => {
            let share = (rarity / x0).ln() / (x1 / x0).ln();
            y0 * (y1 / y0).powf(share)
        }
        (_, Some((_, y))) | (Some((_, y)), None) => *y,
        (None, None) => 1.0,
    }
}

fn key(group: &GroupSummary<'_>, looks: &Looks) -> String {
    let mut html = String::from("<table class=\"key\"><thead><tr><th scope=\"col\">backend</th>");
    for percentile in Percentile::ALL {
        let name = percentile.name();
        html += &format!("<th scope=\"col\" class=\"{name}\">{name}</th>");
    }
    html += "</tr></thead><tbody>\n";
    for backend in &group.backends {
        let look = looks.get(&backend.name);
        html += &format!(
            "<tr class=\"{}\"><th scope=\"row\">{}{}</th>",
            look.class(),
            plot::swatch(look),
            escape::name(&backend.name)
        );
        for percentile in Percentile::ALL {
            let ns = backend.latency_ns(percentile).map_or("–".into(), nanoseconds);
            html += &format!("<td class=\"num {}\">{ns}</td>", percentile.name());
        }
        html += "</tr>\n";
    }
    html + "</tbody></table>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_ends_at_the_slowest() {
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        (0..10_000).for_each(|value| histogram.record(1000 + value).unwrap());
        let points = sampled(&histogram);
        assert!(points.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1));
        let (rarest, slowest) = *points.last().unwrap();
        assert!((rarest - 10_000.0).abs() < 1e-6 && slowest == histogram.max() as f64);
        let median = at(&points, 2.0);
        assert!((5900.0..6100.0).contains(&median), "{median}");
    }

    #[test]
    fn the_axis_names_what_it_reaches() {
        let names = |high| percentile_ticks(high).into_iter().map(|t| t.1).collect::<Vec<_>>();
        assert_eq!(names(1000.0), ["0", "50", "90", "99", "99.9 %"]);
        assert_eq!(names(2e5).last().unwrap(), "99.999 %");
        assert_eq!((tick_ns(200.0), tick_ns(5e6)), ("200 ns".into(), "5 ms".into()));
    }
}
