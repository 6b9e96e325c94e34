//! The recommendation as people read it.

use super::contest::Contest;
use super::ranking::{Certainty, Way};
use super::standing::{Beside, is_auto};
use super::{Figures, GroupChoice, Overall, Recommendation};
pub(crate) use crate::export::format::{nanoseconds as duration, rate};
use crate::result::Group;
use crate::size::format_bytes_short;
use crate::stats::{Ratio, Verdict};

/// `2.30`, or `41` where decimals say nothing.
pub(crate) fn times(ratio: f64) -> String {
    if ratio >= 10.0 { format!("{ratio:.0}") } else { format!("{ratio:.2}") }
}

/// Beyond this an interval only says that nothing can be said.
const TIMES_MAX: f64 = 100.0;

fn interval(ratio: &Ratio) -> String {
    match ratio.interval {
        Some((low, high)) if high > TIMES_MAX * low.max(1.0) || low * TIMES_MAX < 1.0 => {
            "these repetitions cannot tell by how much".into()
        }
        Some((low, high)) => format!("{} to {} times", times(low), times(high)),
        None => "one repetition cannot tell".into(),
    }
}

/// Why this one, in a group.
pub(super) fn reason(chosen: &GroupChoice, contest: &Contest) -> String {
    let main = main_figure(&chosen.choice, contest);
    let mut text = format!("{} {main}", chosen.choice.way);
    if let (Some(next), Some(ratio)) = (&chosen.runner_up, &chosen.ratio) {
        text += &against(&chosen.choice.way, chosen.certainty, next, ratio, contest);
    } else {
        text += "; nothing else has valid numbers";
    }
    if !contest.is_open_loop() {
        text += &format!("; p99 {}", duration(chosen.choice.latency_ns_p99));
    }
    text += &format!("; RSS grows by {}", format_bytes_short(chosen.choice.rss_growth_bytes));
    if let Some(flat) = &chosen.flat_memory {
        text += &format!(
            ", with the bytes read: where memory must stay flat take {}, which {}",
            flat.way,
            main_figure(flat, contest),
        );
    }
    if let Some(auto) = chosen.auto.as_ref().filter(|_| !is_auto(&chosen.choice.way)) {
        text += &format!("; auto {}", main_figure(&auto.figures, contest));
    }
    text
}

fn main_figure(figures: &Figures, contest: &Contest) -> String {
    if contest.is_open_loop() {
        format!("has a p99 of {}", duration(figures.latency_ns_p99))
    } else {
        format!("reads {}", rate(figures.throughput_bytes_per_s))
    }
}

fn against(
    chosen: &Way,
    certainty: Certainty,
    next: &Figures,
    ratio: &Ratio,
    contest: &Contest,
) -> String {
    let how = if contest.is_open_loop() { "times shorter than" } else { "times" };
    let (name, estimate) = (&next.way, times(ratio.estimate));
    match certainty {
        Certainty::Only => String::new(),
        Certainty::Clear => format!(", {estimate} {how} {name}, the next ({})", interval(ratio)),
        Certainty::Noise => format!(
            "; {name} {}, but the difference is within noise ({}), so {}",
            main_figure(next, contest),
            interval(ratio),
            if is_auto(chosen) { "auto, which chooses for every read" } else { "the simpler one" },
        ),
        Certainty::Unsettled => format!(
            ", {estimate} {how} {name}, the next, but the repetitions are too few or spread too \
             widely to be sure ({}): measure with more of them",
            interval(ratio),
        ),
    }
}

/// Why this one, for the whole run.
pub(super) fn overall_reason(overall: &Overall, groups: &[GroupChoice]) -> String {
    let over = match groups.len() {
        1 => "here".into(),
        count => format!("over {count} groups"),
    };
    let advantage = match is_auto(&overall.way) {
        true => "chooses for every read by itself",
        false => "is the simpler one",
    };
    let mut text = match (&overall.runner_up, &overall.ratio, overall.certainty) {
        (Some(next), Some(ratio), Certainty::Clear) => {
            format!("{over} it is {} times as good as {next}, the next", times(ratio.estimate))
        }
        (Some(_), Some(_), Certainty::Noise) => {
            let names: Vec<String> = overall.within_noise.iter().map(ToString::to_string).collect();
            format!(
                "{over} it cannot be told from {} beyond noise, and {advantage}",
                names.join(", ")
            )
        }
        (Some(next), Some(ratio), _) => format!(
            "{over} it looks {} times as good as {next}, the next, though the repetitions are too \
             few or spread too widely to be sure",
            times(ratio.estimate)
        ),
        _ => "nothing else has valid numbers".into(),
    };
    if let Some(worst) = overall.worst.as_ref().filter(|worst| worst.share < 0.995) {
        text += &format!(
            ", and at worst ({}) it reaches {:.0} % of the best",
            worst.group,
            100.0 * worst.share
        );
    }
    if let Some(flat) = &overall.flat_memory {
        text += &format!("; its memory grows with the bytes read, with {flat} it stays flat");
    }
    if is_auto(&overall.way) {
        text += &exceptions(groups);
    }
    text
}

/// The groups that are named in one sentence; the others are counted.
const EXCEPTIONS_NAMED_MAX: usize = 3;

/// Where a fixed backend is better than `auto` beyond noise, and how much, the largest first.
fn exceptions(groups: &[GroupChoice]) -> String {
    let better = groups.iter().filter_map(|it| Some((it.group(), it.auto.as_ref()?.better()?)));
    let mut better: Vec<(Group, &Beside)> = better.collect();
    if better.is_empty() {
        return String::new();
    }
    better.sort_by(|(_, a), (_, b)| a.ratio_of_medians.total_cmp(&b.ratio_of_medians));
    let named = better.iter().take(EXCEPTIONS_NAMED_MAX).map(|(group, beside)| {
        let grows = if beside.grows { ", whose memory grows," } else { "" };
        let factor = times(1.0 / beside.ratio_of_medians);
        format!("{}{grows} is {factor} times as good in {group}", beside.way)
    });
    let named: Vec<String> = named.collect();
    let more = match better.len() - named.len() {
        0 => String::new(),
        more => format!(", and a fixed backend is better in {more} more groups"),
    };
    format!("; but {}{more}", named.join(", "))
}

/// `auto` beside the best fixed backend whose memory stays flat, group by group.
fn auto_lines(all: &Recommendation) -> Vec<String> {
    let Some(summary) = &all.auto else { return Vec::new() };
    let mut lines =
        vec!["auto / the best fixed backend whose memory stays flat (medians):".to_owned()];
    for chosen in &all.groups {
        let flat = chosen.auto.as_ref().and_then(|auto| auto.best_flat.as_ref());
        lines.extend(flat.map(|flat| format!("    {}: {}", chosen.group(), beside(flat))));
    }
    lines.push(format!(
        "    median {1:.2} ({0} compared), lowest {2:.2} in {3}",
        summary.groups, summary.ratio_median, summary.ratio_min, summary.worst_group
    ));
    lines.push(String::new());
    lines
}

/// `0.97 of uring (0.95 to 0.99 times, worse)`.
fn beside(flat: &Beside) -> String {
    let interval = flat.ratio.as_ref().map_or_else(String::new, interval);
    let verdict = match flat.verdict {
        Verdict::Noise => "within noise".to_owned(),
        verdict => verdict.to_string(),
    };
    format!("{:.2} of {} ({interval}, {verdict})", flat.ratio_of_medians, flat.way)
}

/// The one sentence at the end.
pub(super) fn sentence(overall: Option<&Overall>) -> String {
    let Some(overall) = overall else {
        return "there is nothing to recommend: no cell of a backend is valid".into();
    };
    let settings = match &overall.settings {
        Some(code) => format!(" (`{code}`)"),
        None => String::new(),
    };
    format!("use {}{settings}, because {}", overall.way, overall.reason)
}

pub(super) fn lines(all: &Recommendation) -> Vec<String> {
    let mut lines = Vec::new();
    for warning in &all.warnings {
        lines.push(format!("warning: {warning}"));
    }
    if all.invalid_cells > 0 {
        lines.push(format!("{} invalid cells were left out", all.invalid_cells));
    }
    lines.push(String::new());
    for chosen in &all.groups {
        lines.push(format!("{}: {}", chosen.group(), chosen.choice.way));
        lines.push(format!("    {}", chosen.reason));
        let others = chosen.within_noise.iter().map(ToString::to_string).collect::<Vec<_>>();
        if others.len() > 1 {
            lines.push(format!("    within noise of each other: {}", others.join(", ")));
        }
    }
    lines.push(String::new());
    lines.extend(auto_lines(all));
    lines.push(all.sentence.clone());
    lines
}

pub(super) fn headlines(all: &Recommendation) -> Vec<String> {
    let groups = all.groups.iter().map(|chosen| format!("{}: {}", chosen.group(), chosen.reason));
    let auto = auto_lines(all).into_iter().map(|line| line.trim().to_owned());
    let auto = auto.filter(|line| !line.is_empty());
    std::iter::once(all.sentence.clone()).chain(groups).chain(auto).collect()
}

impl GroupChoice {
    pub(super) fn group(&self) -> Group {
        let Self { workload, setting, cache, .. } = self;
        Group { workload: workload.clone(), setting: setting.clone(), cache: *cache }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_have_as_many_digits_as_they_deserve() {
        assert_eq!([times(2.3), times(41.2)], ["2.30", "41"]);
        let interval_of =
            |low, high| interval(&Ratio { estimate: 1.0, interval: Some((low, high)) });
        assert_eq!(interval_of(0.5, 2.0), "0.50 to 2.00 times");
        assert!(interval_of(0.0, 8e41).contains("cannot tell"));
    }
}
