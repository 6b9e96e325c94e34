//! Two runs side by side.

use super::escape::{self, escape};
use super::group::heading_text;
use super::head;
use super::look::{Look, Looks};
use super::scale::Linear;
use crate::comparison::{Change, Comparison, Side};
use crate::text::format::{nanoseconds, rate};

/// The height of the two bars of a cell.
const ROW_PX: u32 = 24;

/// Returns the page of a comparison.
pub(crate) fn page(both: &Comparison) -> String {
    let names = both.cells.iter().map(|change| change.name.backend.as_str());
    let looks = Looks::of_names(names);
    let mut html = head("ringmain: two runs");
    html += &format!(
        "<header>\n<p class=\"eyebrow\">ringmain report</p>\n<h1>Two runs side by side</h1>\n<section \
         class=\"recommendation\" aria-label=\"Summary\"><p class=\"first\">{}</p></section>\n\
         <dl>{}{}</dl>\n</header>\n<main>\n",
        escape(&both.summary()),
        side("First, grey", &both.a),
        side("Second, coloured", &both.b)
    );
    html += &warnings(&both.warnings);
    for changes in both.cells.chunk_by(|a, b| a.name.group() == b.name.group()) {
        html += &section(changes, &looks);
    }
    html += &left_out(both);
    html + "</main>\n</body>\n</html>\n"
}

fn side(name: &str, side: &Side) -> String {
    let commit = side.commit.as_ref().map(|commit| format!(", commit {}", escape(commit)));
    format!(
        "<div><dt>{name}</dt><dd>{}, ringmain {}{}</dd></div>",
        escape(&side.started_at),
        escape(&side.ringmain_version),
        commit.unwrap_or_default()
    )
}

fn warnings(warnings: &[String]) -> String {
    if warnings.is_empty() {
        return String::new();
    }
    let items = warnings.iter().map(|warning| format!("<li>{}</li>", escape(warning)));
    format!(
        "<section class=\"warnings\" aria-label=\"Warnings\"><h2>Differences between the runs</h2>\
         <ul>{}</ul></section>\n",
        items.collect::<String>()
    )
}

/// Returns the cells of one group, which share a scale.
fn section(changes: &[Change], looks: &Looks) -> String {
    let Some(first) = changes.first() else {
        return String::new();
    };
    let largest = changes.iter().map(|change| change.throughput.a.max(change.throughput.b));
    let scale = Linear::decimal(largest.fold(1.0, f64::max), 4);
    let rows = changes.iter().map(|change| row(change, looks.get(&change.name.backend), &scale));
    let columns = [
        "backend",
        "",
        "first",
        "second",
        "ratio",
        "interval",
        "",
        "p99 first",
        "p99 second",
        "",
        "RSS peak",
    ];
    let heads = columns.map(|name| format!("<th scope=\"col\">{name}</th>"));
    format!(
        "<section class=\"group\"><h2>{}</h2>\n<div class=\"wide\" tabindex=\"0\" role=\"region\" \
         aria-label=\"Changes\"><table class=\"plain changes\"><thead><tr>{}</tr></thead><tbody>\n{}\
         </tbody></table></div></section>\n",
        heading_text(&first.name.group()),
        heads.concat(),
        rows.collect::<String>()
    )
}

fn row(change: &Change, look: Look, scale: &Linear) -> String {
    let (throughput, p99) = (&change.throughput, &change.latency_p99);
    let verdict = |verdict: crate::stats::Verdict| {
        format!("<td class=\"{}\">{verdict}</td>", verdict.to_string().replace(' ', "-"))
    };
    format!(
        "<tr class=\"{class}\"><th scope=\"row\">{name}</th><td class=\"plot\">{bars}</td><td>{a}</td>\
         <td>{b}</td><td>{ratio}</td><td>{interval}</td>{faster}<td>{p99_a}</td><td>{p99_b}</td>\
         {sooner}<td>{rss}</td></tr>\n",
        class = look.class(),
        name = escape::name(&change.name.backend),
        bars = bars(change, scale),
        a = rate(throughput.a),
        b = rate(throughput.b),
        ratio = throughput.estimate(),
        interval = throughput.interval(),
        faster = verdict(throughput.verdict),
        p99_a = nanoseconds(p99.a),
        p99_b = nanoseconds(p99.b),
        sooner = verdict(p99.verdict),
        rss = change.rss_peak.text(),
    )
}

/// Returns the throughput in both runs, the first above the second.
fn bars(change: &Change, scale: &Linear) -> String {
    let width = |rate: f64| format!("{:.2}%", scale.share(rate) * 100.0);
    let (a, b) = (change.throughput.a, change.throughput.b);
    format!(
        "<svg height=\"{ROW_PX}\" role=\"img\" aria-label=\"first {}, second {}\"><rect class=\"first\" \
         y=\"2\" height=\"8\" width=\"{}\"/><rect class=\"second\" y=\"13\" height=\"8\" \
         width=\"{}\"/></svg>",
        rate(a),
        rate(b),
        width(a),
        width(b)
    )
}

fn left_out(both: &Comparison) -> String {
    let mut items = String::new();
    for (which, cells) in [("first", &both.only_in_a), ("second", &both.only_in_b)] {
        for cell in cells {
            items += &format!("<li>only in the {which} run: {}</li>", escape(&cell.to_string()));
        }
    }
    if items.is_empty() {
        return items;
    }
    format!("<section><h2>Not in both runs</h2><ul>{items}</ul></section>\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn every_common_cell_has_two_bars() {
        let (first, mut second) = (fixture::small_run(), fixture::small_run());
        second.host.kernel = "9.9".into();
        for cell in second.cells.iter_mut().filter(|cell| cell.backend == "pread") {
            cell.throughput_bytes_per_s *= 2.0;
        }
        second.cells.retain(|cell| cell.backend != "mmap");
        let html = page(&Comparison::of(&first, &second));
        // pread, uring and fio in four groups.
        assert_eq!(html.matches("<rect class=\"second\"").count(), 3 * 4, "{html}");
        assert_eq!(html.matches("<td class=\"better\">").count(), 4);
        for part in ["only in the first run: rand", "the kernel differs", "4 better"] {
            assert!(html.contains(part), "`{part}` is missing in {html}");
        }
    }

    #[test]
    fn hostile_names_stay_text() {
        let run = fixture::hostile_run();
        let html = page(&Comparison::of(&run, &run));
        assert!(!html.contains("<script") && !html.contains("<img"), "{html}");
        assert!(!html.contains("onmouseover=\"alert"), "{html}");
    }
}
