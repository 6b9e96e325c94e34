//! Resident memory over time: a small picture for each backend, all on the same scales.

use super::escape::escape;
use super::look::{Look, Looks};
use super::scale::Linear;
use crate::report::summary::{BackendSummary, GroupSummary};
use crate::result::{Cell, RssSample};
use crate::text::format::{bytes, seconds};

/// More points would not be visible at this size.
const SAMPLES_MAX: usize = 32;

pub(super) const HEIGHT_PX: u32 = 84;

/// Returns the largest sample of each of several equal intervals, with the first and the last.
pub(crate) fn thinned(samples: &[RssSample]) -> Vec<RssSample> {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return Vec::new() };
    if samples.len() <= SAMPLES_MAX {
        return samples.to_vec();
    }
    let inner = &samples[1..samples.len() - 1];
    let total = |sample: &&RssSample| sample.anon_bytes.saturating_add(sample.file_bytes);
    let largest = inner.chunks(inner.len().div_ceil(SAMPLES_MAX - 2)).filter_map(|part| {
        // A peak between two drawn samples must not be lost.
        part.iter().max_by_key(total)
    });
    [first].into_iter().chain(largest).chain([last]).copied().collect()
}

/// Returns a small picture for each backend, so that growth is visible by comparison.
pub(crate) fn figure(group: &GroupSummary<'_>, looks: &Looks) -> String {
    let sampled: Vec<(&BackendSummary<'_>, &Cell)> = group
        .backends
        .iter()
        .filter_map(|backend| backend.typical_cell().map(|cell| (backend, cell)))
        .filter(|(_, cell)| !cell.rss_timeline.is_empty())
        .collect();
    if sampled.is_empty() {
        return String::new();
    }
    let samples = || sampled.iter().flat_map(|(_, cell)| &cell.rss_timeline);
    let total = |s: &RssSample| s.anon_bytes.saturating_add(s.file_bytes) as f64;
    let y = Linear::binary(samples().map(total).fold(1.0, f64::max), 2);
    let x = Linear::decimal(samples().map(|s| s.at_us as f64).fold(1.0, f64::max), 2);
    let of_whom = match group.has_pss() {
        true => "sum over all processes, in which a shared page counts for each of them; ",
        false => "",
    };
    let mut html = format!(
        "<figure class=\"memory\"><figcaption>Resident memory over time <span>{of_whom}of the \
         repetition with the middle throughput; <i class=\"solid\"></i> anonymous, <i \
         class=\"hatched\"></i> pages of files on top</span></figcaption>\n<div \
         class=\"minis\">\n",
    );
    for (backend, cell) in &sampled {
        html += &mini(backend, cell, looks.get(&backend.name), &x, &y);
    }
    html + "</div></figure>\n"
}

fn mini(backend: &BackendSummary<'_>, cell: &Cell, look: Look, x: &Linear, y: &Linear) -> String {
    let (anon, file) =
        (bytes(cell.rss_anon_bytes.peak as f64), bytes(cell.rss_file_bytes.peak as f64));
    let samples = thinned(&cell.rss_timeline);
    let end_s = samples.last().map_or(0.0, |sample| sample.at_us as f64 / 1e6);
    format!(
        "<div class=\"mini {class}\"><div class=\"name\">{name}</div><div class=\"frame\"><svg \
         height=\"{HEIGHT_PX}\" role=\"img\" aria-label=\"Resident memory of {name} over {end}: \
         at most {anon} anonymous and {file} of files\">{axes}<svg class=\"plot\" width=\"100%\" \
         height=\"100%\" viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\">{areas}</svg>\
         </svg></div><div class=\"peaks\">peak {anon} + {file}</div></div>\n",
        class = look.class(),
        name = escape(&backend.name),
        end = seconds(end_s),
        axes = axes(x, y),
        areas = areas(&samples, look, x, y),
    )
}

/// Returns the axes of a small picture: microseconds to the right, bytes upwards.
pub(super) fn axes(x: &Linear, y: &Linear) -> String {
    let mut svg = String::new();
    for tick in &y.ticks {
        let at = (1.0 - y.share(*tick)) * f64::from(HEIGHT_PX);
        svg += &format!(
            "<line class=\"grid\" x1=\"0\" x2=\"100%\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text class=\"y\" x=\"-6\" y=\"{:.1}\">{}</text>",
            at + 3.5,
            tick_bytes(*tick)
        );
    }
    let end = x.ticks.last().copied().unwrap_or(0.0);
    svg + &format!(
        "<text class=\"x start\" x=\"0\" y=\"{below}\">0</text><text class=\"x\" \
         x=\"{at:.2}%\" y=\"{below}\">{end}</text>",
        below = HEIGHT_PX + 13,
        at = x.share(end) * 100.0,
        end = tick_us(end),
    )
}

fn tick_bytes(tick: f64) -> String {
    if tick == 0.0 { "0".into() } else { crate::text::size::format_bytes(tick as u64) }
}

fn tick_us(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{} s", us / 1e6),
        us if us >= 1e3 => format!("{} ms", us / 1e3),
        us => format!("{us} µs"),
    }
}

/// Returns the area of anonymous memory with the pages of files on top.
fn areas(samples: &[RssSample], look: Look, x: &Linear, y: &Linear) -> String {
    let place = |sample: &RssSample, height: u64| {
        let x = x.share(sample.at_us as f64) * 1000.0;
        format!("{x:.0},{:.0}", (1.0 - y.share(height as f64)) * 1000.0)
    };
    let ground: Vec<String> = samples.iter().map(|s| place(s, 0)).collect();
    let anon: Vec<String> = samples.iter().map(|s| place(s, s.anon_bytes)).collect();
    let both: Vec<String> =
        samples.iter().map(|s| place(s, s.anon_bytes.saturating_add(s.file_bytes))).collect();
    let between = |upper: &[String], lower: &[String]| {
        let back = lower.iter().rev().take(if lower == ground { 1 } else { lower.len() });
        let start = if lower == ground { lower.first() } else { None };
        let all = upper.iter().chain(back).chain(start);
        all.map(String::as_str).collect::<Vec<_>>().join(" ")
    };
    format!(
        "<polygon class=\"anon\" points=\"{}\"/><polygon class=\"file\" fill=\"url(#{})\" \
         points=\"{}\"/><polyline class=\"edge\" points=\"{}\"/>",
        between(&anon, &ground),
        look.hatching(),
        between(&both, &anon),
        both.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_us: u64, file_bytes: u64) -> RssSample {
        RssSample { at_us, anon_bytes: 1, file_bytes }
    }

    #[test]
    fn thinning_keeps_the_ends_and_the_peak() {
        let mut samples: Vec<RssSample> = (0..1000).map(|at| sample(at, 5)).collect();
        samples[777].file_bytes = 99;
        let thin = thinned(&samples);
        assert!(thin.len() <= SAMPLES_MAX, "{}", thin.len());
        assert_eq!((thin[0].at_us, thin[thin.len() - 1].at_us), (0, 999));
        assert!(thin.iter().any(|sample| sample.file_bytes == 99));
        assert!(thin.windows(2).all(|pair| pair[0].at_us < pair[1].at_us));
        assert!(thinned(&[]).is_empty());
        assert_eq!(thinned(&samples[..3]), samples[..3]);
    }
}
