//! The heat map: every backend in every group, against the best of the group.

use super::escape;
use super::group::{Chapter, heading_text};
use crate::report::summary::{BackendSummary, GroupSummary};
use crate::stats::Summary;
use crate::text::format::{percent, rate};
use crate::workload::fio_obstacle;

/// Returns a table with shaded cells; the shade only repeats the number.
pub(crate) fn heat_map(chapters: &[Chapter<'_>]) -> String {
    let backends = backends(chapters);
    let has_fio = chapters.iter().any(|chapter| chapter.summary.best_fio().is_some());
    let mut html = String::from(
        "<section id=\"overview\"><h2>At a glance</h2>\n<p class=\"lead\">Median throughput of \
         each backend, as a share of the best in its row. Framed: the best, and those whose \
         repetitions overlap with its own. A row leads to its details.</p>\n\
         <div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Heat map\">\
         <table class=\"heat\"><thead><tr><th scope=\"col\">Workload</th>",
    );
    for backend in &backends {
        html += &format!("<th scope=\"col\">{}</th>", escape::name(backend));
    }
    if has_fio {
        html += "<th scope=\"col\" class=\"fio\">best vs fio</th>";
    }
    html += "</tr></thead><tbody>\n";
    for chapter in chapters {
        html += &row(chapter, &backends, has_fio);
    }
    html + "</tbody></table></div></section>\n"
}

/// Returns the backends in the order of the plan.
fn backends(chapters: &[Chapter<'_>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for chapter in chapters {
        let mut after = 0;
        for backend in chapter.summary.backends.iter().filter(|backend| !backend.is_fio()) {
            match names.iter().position(|name| *name == backend.name) {
                Some(at) => after = at + 1,
                None => {
                    names.insert(after, backend.name.clone());
                    after += 1;
                }
            }
        }
    }
    names
}

fn row(chapter: &Chapter<'_>, backends: &[String], has_fio: bool) -> String {
    let summary = chapter.summary;
    let best = summary.best_backend();
    let mut html = format!(
        "<tr><th scope=\"row\"><a href=\"#{}\">{}</a></th>",
        chapter.id,
        heading_text(&summary.group)
    );
    for name in backends {
        let backend = summary.backends.iter().find(|backend| backend.name == *name);
        html += &backend.map_or("<td class=\"none\">–</td>".into(), |b| cell(b, best));
    }
    if has_fio {
        html += &fio_cell(summary, best.map(|best| best.median));
    }
    html + "</tr>\n"
}

fn cell(backend: &BackendSummary<'_>, best: Option<Summary>) -> String {
    let (Some(own), Some(best)) = (backend.throughput, best) else {
        return "<td class=\"none\">invalid</td>".into();
    };
    let median = own.median;
    let share = if best.median > 0.0 { (median / best.median).clamp(0.0, 1.0) } else { 0.0 };
    let class = if own.max >= best.min { " class=\"best\"" } else { "" };
    format!(
        "<td{class} style=\"--share:{:.0}%\"><b>{}</b><small>{}</small></td>",
        share * 100.0,
        percent(share),
        rate(median)
    )
}

fn fio_cell(summary: &GroupSummary<'_>, best: Option<f64>) -> String {
    match (best, summary.best_fio()) {
        (Some(best), Some(fio)) => format!(
            "<td class=\"fio\"><b>{}</b><small>{}</small></td>",
            percent(best / fio),
            rate(fio)
        ),
        _ => {
            let why = fio_obstacle(&summary.group).unwrap_or("fio has no valid cell");
            format!("<td class=\"none\">{why}</td>")
        }
    }
}
