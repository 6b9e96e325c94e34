//! Throughput as bars: the median, the range, and each repetition.

use super::escape::escape;
use super::look::Looks;
use super::scale::Linear;
use crate::report::summary::{BackendSummary, GroupSummary};
use crate::stats::Summary;
use crate::text::format::percent;

/// The height of a row's picture: the bar above, the repetitions below it.
const ROW_PX: u32 = 28;

/// One unit for a whole group, so that its numbers can be compared.
#[derive(Clone, Copy, Debug)]
struct Unit {
    name: &'static str,
    bytes_per_s: f64,
    decimals: usize,
}

impl Unit {
    fn covering(smallest: f64, largest: f64) -> Self {
        let units = [("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3), ("B/s", 1.0)];
        let fits = units.into_iter().find(|(_, worth)| largest >= worth * 0.9995);
        let (name, bytes_per_s) = fits.unwrap_or(("B/s", 1.0));
        // At least two digits of the smallest number, and three of most.
        let decimals = match (smallest / bytes_per_s, largest / bytes_per_s) {
            (_, largest) if largest >= 100.0 => 0,
            (smallest, _) if smallest >= 10.0 => 1,
            (smallest, _) if smallest >= 1.0 => 2,
            _ => 3,
        };
        Self { name, bytes_per_s, decimals }
    }

    fn number(self, bytes_per_s: f64) -> String {
        format!("{:.*}", self.decimals, bytes_per_s / self.bytes_per_s)
    }
}

/// Returns a table with a picture in each row. Without styles, or read aloud, it is still a table.
pub(crate) fn figure(group: &GroupSummary<'_>, looks: &Looks) -> String {
    let summaries: Vec<Summary> = group.backends.iter().filter_map(|b| b.throughput).collect();
    let largest = summaries.iter().map(|summary| summary.max).fold(0.0, f64::max);
    let smallest = summaries.iter().map(|summary| summary.median).fold(largest, f64::min);
    let unit = Unit::covering(smallest, largest);
    // Room for the end of the last whisker.
    let scale = Linear::decimal(largest * 1.02, 4);
    let fio = group.best_fio();
    let mut rows = String::new();
    for backend in &group.backends {
        rows += &row(backend, looks, &scale, unit, fio);
    }
    let share =
        if fio.is_some() { "<th scope=\"col\" role=\"columnheader\">of fio</th>" } else { "" };
    format!(
        "<figure class=\"throughput\"><figcaption>Throughput in {unit} <span>median, range and each \
         repetition</span></figcaption>\n<table class=\"bars\" role=\"table\"><thead \
         role=\"rowgroup\"><tr role=\"row\"><th scope=\"col\" role=\"columnheader\">backend</th>\
         <td role=\"cell\"></td><th scope=\"col\" role=\"columnheader\">median</th><th \
         scope=\"col\" role=\"columnheader\">range</th>{share}</tr></thead>\n<tbody \
         role=\"rowgroup\">\n{rows}</tbody>{axis}</table></figure>\n",
        unit = unit.name,
        axis = axis(&scale, unit, fio.is_some()),
    )
}

fn row(
    backend: &BackendSummary<'_>,
    looks: &Looks,
    scale: &Linear,
    unit: Unit,
    fio: Option<f64>,
) -> String {
    let name = escape(&backend.name);
    let class = looks.get(&backend.name).class();
    let spoilt = backend.cells.len() - backend.valid.len();
    let note = match spoilt {
        0 => String::new(),
        _ => format!("<small>{spoilt} of {} invalid</small>", backend.cells.len()),
    };
    let (picture, median, range) = match &backend.throughput {
        Some(summary) => (
            bar(backend, summary, scale, unit, fio),
            unit.number(summary.median),
            format!("{}–{}", unit.number(summary.min), unit.number(summary.max)),
        ),
        None => ("<a href=\"#invalid\">no valid cell</a>".into(), "–".into(), "–".into()),
    };
    let share = fio.map(|fio| {
        let share =
            backend.throughput_median().map_or("–".into(), |median| percent(median / fio));
        format!("<td role=\"cell\" class=\"num share\">{share}</td>")
    });
    format!(
        "<tr role=\"row\" class=\"{class}\"><th scope=\"row\" role=\"rowheader\">{name}{note}</th>\
         <td role=\"cell\" class=\"plot\">{picture}</td><td role=\"cell\" class=\"num \
         median\">{median}</td><td role=\"cell\" class=\"num range\">{range}</td>{share}</tr>\n",
        share = share.unwrap_or_default(),
    )
}

/// Returns the picture of a row. Positions are relative, so that it fits any screen and letters keep
/// their size.
fn bar(
    backend: &BackendSummary<'_>,
    summary: &Summary,
    scale: &Linear,
    unit: Unit,
    fio: Option<f64>,
) -> String {
    let at = |value: f64| format!("{:.2}%", scale.share(value) * 100.0);
    let (min, max) = (at(summary.min), at(summary.max));
    let kind = if backend.is_fio() { "bar reference" } else { "bar" };
    let mut svg = format!(
        "<svg height=\"{ROW_PX}\" role=\"img\" aria-label=\"median {median} {unit}, from \
         {lowest} to {highest}, {count} repetitions\">{grid}<rect class=\"{kind}\" y=\"4\" \
         height=\"12\" width=\"{width}\"/>",
        median = unit.number(summary.median),
        lowest = unit.number(summary.min),
        highest = unit.number(summary.max),
        unit = unit.name,
        count = summary.count,
        grid = grid(scale),
        width = at(summary.median),
    );
    if let Some(fio) = fio {
        let x = at(fio);
        svg += &format!("<line class=\"fio\" x1=\"{x}\" x2=\"{x}\" y1=\"0\" y2=\"{ROW_PX}\"/>");
    }
    svg += &format!(
        "<line class=\"whisker\" x1=\"{min}\" x2=\"{max}\" y1=\"10\" y2=\"10\"/>\
         <line class=\"whisker\" x1=\"{min}\" x2=\"{min}\" y1=\"6\" y2=\"14\"/>\
         <line class=\"whisker\" x1=\"{max}\" x2=\"{max}\" y1=\"6\" y2=\"14\"/>"
    );
    for cell in &backend.valid {
        svg += &format!(
            "<circle class=\"dot\" cx=\"{}\" cy=\"22\" r=\"2.4\"><title>repetition {}: {} \
             {}</title></circle>",
            at(cell.throughput_bytes_per_s),
            cell.repetition,
            unit.number(cell.throughput_bytes_per_s),
            unit.name
        );
    }
    svg + "</svg>"
}

fn grid(scale: &Linear) -> String {
    let line = |tick: &f64| {
        let x = scale.share(*tick) * 100.0;
        format!("<line class=\"grid\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"0\" y2=\"{ROW_PX}\"/>")
    };
    scale.ticks.iter().map(line).collect()
}

fn axis(scale: &Linear, unit: Unit, has_fio: bool) -> String {
    let mut labels = String::new();
    for tick in &scale.ticks {
        let number = tick / unit.bytes_per_s;
        // Ticks have one significant digit; more digits would be zeros.
        let text = format!("{:.3}", number);
        let text = text.trim_end_matches('0').trim_end_matches('.');
        labels += &format!("<text x=\"{:.2}%\" y=\"12\">{text}</text>", scale.share(*tick) * 100.0);
    }
    let rest = if has_fio { 3 } else { 2 };
    format!(
        "<tfoot aria-hidden=\"true\"><tr><td></td><td class=\"plot\"><svg class=\"axis\" \
         height=\"16\">{labels}</svg></td><td colspan=\"{rest}\"></td></tr>\
         </tfoot>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_one_unit_with_enough_digits() {
        let number = |smallest, largest| {
            let unit = Unit::covering(smallest, largest);
            format!("{} {}", unit.number(smallest), unit.name)
        };
        assert_eq!(number(0.07e9, 6.1e9), "0.070 GB/s");
        assert_eq!(number(0.111e9, 6.1e9), "0.111 GB/s");
        assert_eq!(number(1.23e9, 6.1e9), "1.23 GB/s");
        assert_eq!(number(12.3e6, 610e6), "12 MB/s");
        assert_eq!(number(0.0, 0.0), "0.000 B/s");
    }
}
