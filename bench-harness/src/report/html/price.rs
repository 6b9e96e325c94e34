//! Processor time against throughput on log scales: the best backend is at the bottom right.

use super::look::Looks;
use super::plot::{self, Line};
use super::scale::Log;
use crate::report::summary::{BackendSummary, GroupSummary};
use crate::text::format::rate;

const HEIGHT_PX: f64 = 110.0;

/// More numbers would touch each other on a phone, or at the side.
const TICKS_MAX: usize = 4;

/// Returns a picture with a mark for each backend; the table of costs is its key. Returns nothing for a single backend.
pub(crate) fn picture(group: &GroupSummary<'_>, looks: &Looks) -> String {
    let known = |backend: &BackendSummary<'_>| {
        Some((backend.throughput_median()?, backend.median(|cell| cell.cpu_s_per_gb)?))
    };
    let backends = group.backends.iter().filter(|backend| !backend.is_fio());
    let found: Vec<_> = backends.filter_map(|b| Some((b.name.as_str(), known(b)?))).collect();
    if found.len() < 2 {
        return String::new();
    }
    let x = around(found.iter().map(|(_, at)| at.0));
    let y = around(found.iter().map(|(_, at)| at.1));
    let marks = found.iter().map(|(name, (rate, cost))| {
        let points = vec![(x.share(*rate), y.share(*cost))];
        Line { name, look: looks.get(name), points }
    });
    let marks: Vec<Line<'_>> = marks.collect();
    let feet = few(x.ticks()).map(|tick| (x.share(tick), rate(tick)));
    let levels = few(y.ticks()).map(|tick| (y.share(tick), number(tick)));
    format!(
        "<div class=\"frame price\"><svg height=\"{HEIGHT_PX}\" role=\"img\" aria-label=\"Processor \
         seconds for a gigabyte against throughput, on log scales, a mark for each backend; the table has the \
         numbers\"><g class=\"axes\">{levels}{feet}<text class=\"unit\" x=\"0\" y=\"-8\">CPU \
         s/GB over throughput, log scales</text></g>{marks}</svg></div>\n",
        levels = plot::levels(levels, HEIGHT_PX),
        feet = plot::feet(feet, HEIGHT_PX),
        marks = plot::marks(&marks, HEIGHT_PX),
    )
}

/// Returns a scale with room around the positive values. Over a factor of four there is at least one tick.
fn around(values: impl Iterator<Item = f64> + Clone) -> Log {
    let positive = values.filter(|value| *value > 0.0);
    let low = positive.clone().fold(f64::INFINITY, f64::min);
    Log::covering(low / 2.0, positive.fold(0.0, f64::max) * 2.0)
}

/// Leaves out ticks at equal distances until few are left.
fn few(ticks: Vec<f64>) -> impl Iterator<Item = f64> {
    let step = ticks.len().div_ceil(TICKS_MAX).max(1);
    ticks.into_iter().step_by(step)
}

/// Formats a tick, which has one significant digit.
fn number(tick: f64) -> String {
    let text = format!("{tick:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::report::summary::summarize;

    #[test]
    fn each_backend_has_a_mark_and_fio_has_none() {
        let run = fixture::small_run();
        let groups = summarize(&run).unwrap();
        let html = picture(&groups[0], &Looks::of(&run));
        assert_eq!(html.matches("class=\"mark").count(), 3, "{html}");
        // Of two backends, one that takes a thousand times as long as the other does not press it to the edge.
        let scale = around([0.02, 20.0, 0.0].into_iter());
        assert!((0.05..0.2).contains(&scale.share(0.02)) && scale.share(20.0) < 0.95, "{scale:?}");
        assert_eq!(few(scale.ticks()).count(), 4, "{:?}", scale.ticks());
        assert_eq!(around([0.0, 0.0].into_iter()), around(std::iter::empty()));
        assert!(html.contains("CPU s/GB") && html.contains("B/s</text>"), "{html}");
        let texts = [0.001, 0.05, 2.0].map(number);
        assert_eq!(texts, ["0.001", "0.05", "2"]);
    }
}
