//! The throughput of each epoch: a small picture for each backend, all on the same scale.

use super::escape::escape;
use super::look::Looks;
use super::scale::Linear;
use crate::report::summary::{EpochSummary, GroupSummary};
use crate::text::format::{percent, rate};

const HEIGHT_PX: u32 = 84;
/// A bar takes this share of its place.
const BAR_SHARE: f64 = 0.7;
/// The largest number of shares that are written below a picture, and of bars that have their number.
const SHARES_MAX: usize = 6;
const LABELS_MAX: usize = 10;

/// Returns the pictures; nothing for a group without epochs.
pub(crate) fn figure(group: &GroupSummary<'_>, looks: &Looks) -> String {
    let backends = group.backends.iter().map(|backend| (&backend.name, backend.epochs()));
    let backends: Vec<_> = backends.filter(|(_, epochs)| !epochs.is_empty()).collect();
    if backends.is_empty() {
        return String::new();
    }
    let rates = backends.iter().flat_map(|(_, epochs)| epochs).map(|it| it.throughput_bytes_per_s);
    let y = Linear::decimal(rates.fold(1.0, f64::max), 2);
    let mut html = String::from(
        "<figure class=\"epochs\"><figcaption>Throughput of each epoch <span>medians; below, what came \
         from the device as a share of the bytes delivered</span></figcaption>\n<div \
         class=\"minis\">\n",
    );
    for (name, epochs) in &backends {
        html += &mini(name, epochs, &looks.get(name).class(), &y);
    }
    html + "</div></figure>\n"
}

fn mini(name: &str, epochs: &[EpochSummary], class: &str, y: &Linear) -> String {
    let name = escape(name);
    let rates = epochs.iter().map(|epoch| rate(epoch.throughput_bytes_per_s));
    let rates = rates.collect::<Vec<_>>().join(", ");
    let shares = epochs.iter().map(|epoch| epoch.device_share.map_or("–".into(), percent));
    let more = if epochs.len() > SHARES_MAX { ", …" } else { "" };
    format!(
        "<div class=\"mini {class}\"><div class=\"name\">{name}</div><div class=\"frame\"><svg \
         height=\"{HEIGHT_PX}\" role=\"img\" aria-label=\"Epochs of {name}: {rates}\">{axis}{bars}\
         </svg></div><div class=\"peaks\">device {shares}</div></div>\n",
        axis = axis(y),
        bars = bars(epochs, y),
        shares = shares.take(SHARES_MAX).collect::<Vec<_>>().join(", ") + more,
    )
}

fn axis(y: &Linear) -> String {
    let line = |tick: &f64| {
        let at = (1.0 - y.share(*tick)) * f64::from(HEIGHT_PX);
        let text = if *tick == 0.0 { "0".into() } else { rate(*tick) };
        format!(
            "<line class=\"grid\" x1=\"0\" x2=\"100%\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text \
             class=\"y\" x=\"-6\" y=\"{:.1}\">{text}</text>",
            at + 3.5
        )
    };
    y.ticks.iter().map(line).collect()
}

fn bars(epochs: &[EpochSummary], y: &Linear) -> String {
    let place = 100.0 / epochs.len() as f64;
    let step = epochs.len().div_ceil(LABELS_MAX).max(1);
    let bar = |(at, epoch): (usize, &EpochSummary)| {
        let height = y.share(epoch.throughput_bytes_per_s) * f64::from(HEIGHT_PX);
        let left = (at as f64 + (1.0 - BAR_SHARE) / 2.0) * place;
        let number = at + 1;
        let label = match at % step {
            0 => format!(
                "<text class=\"number\" x=\"{:.2}%\" y=\"{}\">{number}</text>",
                (at as f64 + 0.5) * place,
                HEIGHT_PX + 13
            ),
            _ => String::new(),
        };
        format!(
            "<rect class=\"bar\" x=\"{left:.2}%\" width=\"{:.2}%\" y=\"{:.1}\" \
             height=\"{height:.1}\"><title>epoch {number}: {}</title></rect>{label}",
            place * BAR_SHARE,
            f64::from(HEIGHT_PX) - height,
            rate(epoch.throughput_bytes_per_s),
        )
    };
    epochs.iter().enumerate().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::report::summary::summarize;

    #[test]
    fn each_backend_has_a_bar_for_each_epoch() {
        let run = fixture::epochs_run();
        let groups = summarize(&run).unwrap();
        let html = figure(&groups[0], &Looks::of(&run));
        assert_eq!(html.matches("class=\"mini ").count(), groups[0].backends.len());
        assert_eq!(html.matches("<rect class=\"bar\"").count(), 3 * groups[0].backends.len());
        assert!(html.contains("epoch 2: ") && html.contains("device 100 %, 0 %, 0 %"), "{html}");
        let small = fixture::small_run();
        let groups = summarize(&small).unwrap();
        assert_eq!(figure(&groups[0], &Looks::of(&small)), "");
    }
}
