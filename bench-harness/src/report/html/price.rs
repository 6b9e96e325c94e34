//! Processor time against throughput: the best backend is on the right and low.

use super::look::Looks;
use super::plot::{self, Line};
use super::scale::Linear;
use crate::report::summary::{BackendSummary, GroupSummary};
use crate::text::format::rate;

const HEIGHT_PX: f64 = 110.0;

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
    let x = Linear::decimal(found.iter().map(|(_, at)| at.0).fold(0.0, f64::max) * 1.05, 3);
    let y = Linear::decimal(found.iter().map(|(_, at)| at.1).fold(0.0, f64::max) * 1.05, 2);
    let marks = found.iter().map(|(name, (rate, cost))| {
        let points = vec![(x.share(*rate), y.share(*cost))];
        Line { name, look: looks.get(name), points }
    });
    let marks: Vec<Line<'_>> = marks.collect();
    let feet = x.ticks.iter().skip(1).map(|tick| (x.share(*tick), rate(*tick)));
    let levels = y.ticks.iter().map(|tick| (y.share(*tick), number(*tick)));
    format!(
        "<div class=\"frame price\"><svg height=\"{HEIGHT_PX}\" role=\"img\" aria-label=\"Processor \
         seconds for a gigabyte against throughput, a mark for each backend; the table has the \
         numbers\"><g class=\"axes\">{levels}{feet}<text class=\"unit\" x=\"0\" y=\"-8\">CPU \
         s/GB</text></g>{marks}</svg></div>\n",
        levels = plot::levels(levels, HEIGHT_PX),
        feet = plot::feet(feet, HEIGHT_PX),
        marks = plot::marks(&marks, HEIGHT_PX),
    )
}

/// Formats a tick, which has one significant digit.
fn number(tick: f64) -> String {
    let text = format!("{tick:.4}");
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
        assert!(html.contains("CPU s/GB") && html.contains("B/s</text>"), "{html}");
        let texts = [0.0, 0.05, 2.0].map(number);
        assert_eq!(texts, ["0", "0.05", "2"]);
    }
}
