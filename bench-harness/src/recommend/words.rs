//! The recommendation as people read it.

use super::contest::Contest;
use super::ranking::Certainty;
use super::{Figures, GroupChoice, Overall, Recommendation};
pub(crate) use crate::export::format::{nanoseconds as duration, rate};
use crate::result::Group;
use crate::size::format_bytes_short;
use crate::stats::Ratio;

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
        text += &against(chosen.certainty, next, ratio, contest);
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
    text
}

fn main_figure(figures: &Figures, contest: &Contest) -> String {
    if contest.is_open_loop() {
        format!("has a p99 of {}", duration(figures.latency_ns_p99))
    } else {
        format!("reads {}", rate(figures.throughput_bytes_per_s))
    }
}

fn against(certainty: Certainty, next: &Figures, ratio: &Ratio, contest: &Contest) -> String {
    let how = if contest.is_open_loop() { "times shorter than" } else { "times" };
    let (name, estimate) = (&next.way, times(ratio.estimate));
    match certainty {
        Certainty::Only => String::new(),
        Certainty::Clear => format!(", {estimate} {how} {name}, the next ({})", interval(ratio)),
        Certainty::Noise => format!(
            "; {name} {}, but the difference is within noise ({}), so the simpler one",
            main_figure(next, contest),
            interval(ratio),
        ),
        Certainty::Unsettled => format!(
            ", {estimate} {how} {name}, the next, but the repetitions are too few or spread too \
             widely to be sure ({}): measure with more of them",
            interval(ratio),
        ),
    }
}

/// Why this one, for the whole run.
pub(super) fn overall_reason(overall: &Overall, groups: usize) -> String {
    let over = if groups == 1 { "here".into() } else { format!("over {groups} groups") };
    let mut text = match (&overall.runner_up, &overall.ratio, overall.certainty) {
        (Some(next), Some(ratio), Certainty::Clear) => {
            format!("{over} it is {} times as good as {next}, the next", times(ratio.estimate))
        }
        (Some(_), Some(_), Certainty::Noise) => {
            let names: Vec<String> = overall.within_noise.iter().map(ToString::to_string).collect();
            format!(
                "{over} it cannot be told from {} beyond noise, and is the simpler one",
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
    text
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
    lines.push(all.sentence.clone());
    lines
}

pub(super) fn headlines(all: &Recommendation) -> Vec<String> {
    let groups = all.groups.iter().map(|chosen| format!("{}: {}", chosen.group(), chosen.reason));
    std::iter::once(all.sentence.clone()).chain(groups).collect()
}

impl GroupChoice {
    fn group(&self) -> Group {
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
