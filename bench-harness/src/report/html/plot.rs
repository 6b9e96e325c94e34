//! Lines, marks and names that several pictures share.

use super::escape::{escape, shortened};
use super::look::Look;

/// The distance between the names of lines.
const LABEL_PX: f64 = 14.0;
/// The height of a picture of curves.
const CURVES_PX: f64 = 170.0;

/// A line of a picture.
pub(super) struct Line<'a> {
    pub(super) name: &'a str,
    pub(super) look: Look,
    /// As shares of the width, from the left, and of the height, from below.
    pub(super) points: Vec<(f64, f64)>,
}

/// Returns the lines in a picture that is stretched to the width without stretching the strokes.
pub(super) fn lines(lines: &[Line<'_>]) -> String {
    let mut svg = String::from(
        "<svg class=\"plot\" width=\"100%\" height=\"100%\" viewBox=\"0 0 1000 1000\" \
         preserveAspectRatio=\"none\">",
    );
    for line in lines {
        let point = |(x, y): &(f64, f64)| format!("{:.0},{:.0}", x * 1000.0, (1.0 - y) * 1000.0);
        svg += &format!(
            "<polyline class=\"{}\" stroke-dasharray=\"{}\" data-name=\"{}\" points=\"{}\"/>",
            line.look.class(),
            line.look.dashes(),
            escape(line.name),
            line.points.iter().map(point).collect::<Vec<_>>().join(" ")
        );
    }
    svg + "</svg>"
}

/// Returns a mark at each point of each line, in a picture of this height.
pub(super) fn marks(lines: &[Line<'_>], height_px: f64) -> String {
    let mut svg = String::new();
    for line in lines {
        for (x, y) in &line.points {
            svg += &line.look.mark(&format!("{:.2}%", x * 100.0), (1.0 - y) * height_px);
        }
    }
    svg
}

/// Returns the names at the ends of the lines, moved apart if they would overlap.
pub(super) fn names(lines: &[Line<'_>], height_px: f64) -> String {
    let end = |line: &Line<'_>| (1.0 - line.points.last().map_or(0.0, |point| point.1)) * height_px;
    let mut sorted: Vec<(f64, &Line<'_>)> = lines.iter().map(|line| (end(line), line)).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let places = spread(&sorted.iter().map(|(y, _)| *y).collect::<Vec<_>>(), height_px);
    let mut svg = String::from("<svg class=\"ends\" x=\"100%\" overflow=\"visible\">");
    for ((_, line), place) in sorted.iter().zip(places) {
        svg += &line.look.mark("14", place);
        svg += &format!(
            "<text x=\"22\" y=\"{:.1}\">{}</text>",
            place + 4.0,
            escape(&shortened(line.name, 16))
        );
    }
    svg + "</svg>"
}

/// Returns a figure of curves with the table of their numbers. `what` is what the curves show, such as `throughput over
/// threads`; the numbers at the axes are those of [`levels`] and [`feet`].
pub(super) fn figure(
    heading: &str,
    what: &str,
    lines: &[Line<'_>],
    level_ticks: impl Iterator<Item = (f64, String)>,
    foot_ticks: impl Iterator<Item = (f64, String)>,
    table: &str,
) -> String {
    format!(
        "<figure class=\"latency\"><figcaption>{heading} <span>{what}</span></figcaption>\n\
         <div class=\"frame\"><svg class=\"curves\" height=\"{CURVES_PX}\" role=\"img\" \
         aria-label=\"{what}, a line for each backend; the table below has the numbers\"><g \
         class=\"axes\">{levels}{feet}</g>{lines}{marks}{names}</svg></div>\n{table}</figure>\n",
        levels = levels(level_ticks, CURVES_PX),
        feet = feet(foot_ticks, CURVES_PX),
        marks = marks(lines, CURVES_PX),
        names = names(lines, CURVES_PX),
        lines = self::lines(lines),
    )
}

/// A row of [`table`].
pub(super) struct Row<'a> {
    pub(super) name: &'a str,
    pub(super) look: Look,
    pub(super) fields: Vec<String>,
}

/// Returns the numbers of a picture, which are also its key: a row for each backend.
pub(super) fn table<'a>(
    what: &str,
    columns: impl Iterator<Item = String>,
    rows: impl Iterator<Item = Row<'a>>,
) -> String {
    let mut html = format!("<table class=\"key\"><thead><tr><th scope=\"col\">{what}</th>");
    html.extend(columns.map(|column| format!("<th scope=\"col\">{column}</th>")));
    html += "</tr></thead><tbody>\n";
    for Row { name, look, fields } in rows {
        html += &format!(
            "<tr class=\"{}\"><th scope=\"row\">{}{}</th>",
            look.class(),
            swatch(look),
            super::escape::name(name)
        );
        html.extend(fields.iter().map(|field| format!("<td class=\"num\">{field}</td>")));
        html += "</tr>\n";
    }
    html + "</tbody></table>"
}

/// Returns a piece of the line of a backend, for the key of a picture.
pub(super) fn swatch(look: Look) -> String {
    format!(
        "<svg class=\"swatch\" width=\"26\" height=\"10\" aria-hidden=\"true\"><line x1=\"0\" \
         x2=\"26\" y1=\"5\" y2=\"5\" stroke-dasharray=\"{}\"/>{}</svg>",
        look.dashes(),
        look.mark("13", 5.0)
    )
}

/// Returns the horizontal lines of a picture, each with its number. Places are shares of the height, from below.
pub(super) fn levels(ticks: impl Iterator<Item = (f64, String)>, height_px: f64) -> String {
    let mut svg = String::new();
    for (share, text) in ticks {
        let at = (1.0 - share) * height_px;
        svg += &format!(
            "<line class=\"grid\" x1=\"0\" x2=\"100%\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text \
             class=\"y\" x=\"-8\" y=\"{:.1}\">{text}</text>",
            at + 4.0
        );
    }
    svg
}

/// Returns the numbers below a picture. Places are shares of the width.
pub(super) fn feet(ticks: impl Iterator<Item = (f64, String)>, height_px: f64) -> String {
    let foot = |(share, text): (f64, String)| {
        let below = height_px + 17.0;
        format!("<text class=\"x\" x=\"{:.2}%\" y=\"{below}\">{text}</text>", share * 100.0)
    };
    ticks.map(foot).collect()
}

/// Returns sorted places that are at least [`LABEL_PX`] apart, within the picture if they fit.
fn spread(wanted: &[f64], height_px: f64) -> Vec<f64> {
    let mut places = Vec::with_capacity(wanted.len());
    let mut next_min = f64::NEG_INFINITY;
    for place in wanted {
        let place = place.max(next_min);
        places.push(place);
        next_min = place + LABEL_PX;
    }
    let mut next_max = height_px;
    for place in places.iter_mut().rev() {
        *place = place.min(next_max);
        next_max = *place - LABEL_PX;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_distance() {
        let places = spread(&[10.0, 11.0, 12.0, 225.0, 229.0], 230.0);
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= LABEL_PX - 1e-9), "{places:?}");
        assert!(places.iter().all(|place| (0.0..=230.0).contains(place)), "{places:?}");
        assert!(spread(&[], 230.0).is_empty());
    }
}
