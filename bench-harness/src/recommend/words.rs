//! The text of a recommendation.
//!
//! Printed ratios are those of the medians beside them; the interval is that of the ratios within
//! each repetition. A p99 is that of all operations together, as in the tables, or missing if they
//! are too few. In an open loop, which the p99 ranks, it is the median of the repetitions.

use super::contest::{Contest, Exclusion};
use super::ranking::Certainty;
use super::standing::Beside;
use super::way::Way;
use super::{Figures, GroupChoice, NotCompared, Overall, Recommendation};
use crate::result::Group;
use crate::stats::{Ratio, Verdict};
use crate::text::format::counted;
pub(crate) use crate::text::format::{nanoseconds as duration, rate};
use crate::text::size::format_bytes_short;

/// Formats a ratio: `2.30`, or `41` if decimals say nothing.
pub(crate) fn times(ratio: f64) -> String {
    if ratio >= 10.0 { format!("{ratio:.0}") } else { format!("{ratio:.2}") }
}

/// An interval wider than this says nothing.
const TIMES_MAX: f64 = 100.0;

fn interval(ratio: &Ratio) -> String {
    match ratio.interval {
        Some((low, high)) if high > TIMES_MAX * low.max(1.0) || low * TIMES_MAX < 1.0 => {
            "the repetitions spread too widely for an interval".into()
        }
        Some((low, high)) => {
            format!("{} to {} times, repetition by repetition", times(low), times(high))
        }
        None => "one repetition has no interval".into(),
    }
}

/// Returns the reason for the choice in a group.
pub(super) fn reason(chosen: &GroupChoice, contest: &Contest) -> String {
    let main = main_figure(&chosen.choice, contest);
    let mut text = format!("{} {main}", chosen.choice.way);
    if let (Some(next), Some(ratio)) = (&chosen.runner_up, &chosen.ratio) {
        text += &against(chosen, next, ratio, contest);
    } else {
        text += "; there is no other backend with valid numbers to compare it with";
    }
    if let Some(p99) = chosen.choice.latency_ns_p99.filter(|_| !contest.is_open_loop()) {
        let of = contest.operation();
        text += &format!("; p99 {}{of}", duration(p99));
    }
    text += &format!("; RSS grows by {}", format_bytes_short(chosen.choice.rss_growth_bytes));
    if let Some(flat) = &chosen.flat_memory {
        text += &format!(
            ", with the bytes read; if memory must stay flat, take {}, which {}",
            flat.way,
            main_figure(flat, contest),
        );
    }
    if let Some(auto) = chosen.auto.as_ref().filter(|_| !chosen.choice.way.is_auto()) {
        text += &format!("; auto {}", main_figure(&auto.figures, contest));
    }
    text
}

fn main_figure(figures: &Figures, contest: &Contest) -> String {
    match contest.is_open_loop() {
        true => format!("has a median p99 of {}", figure(figures, contest)),
        false => format!("reads {}", figure(figures, contest)),
    }
}

/// Formats the figure that ranks: the median throughput, or the median p99.
fn figure(figures: &Figures, contest: &Contest) -> String {
    match (contest.is_open_loop(), figures.latency_ns_p99) {
        (true, Some(p99)) => duration(p99),
        // Only a histogram that cannot be read has none here.
        (true, None) => "unknown length".into(),
        (false, _) => rate(figures.throughput_bytes_per_s),
    }
}

/// Returns the ratio of the two printed figures.
fn advantage(choice: &Figures, next: &Figures, contest: &Contest) -> String {
    let ratio = match (contest.is_open_loop(), choice.latency_ns_p99, next.latency_ns_p99) {
        (true, Some(choice), Some(next)) => next / choice,
        (true, ..) => return "better than the".into(),
        (false, ..) => choice.throughput_bytes_per_s / next.throughput_bytes_per_s,
    };
    let how = if contest.is_open_loop() { "times shorter than the" } else { "times the" };
    format!("{} {how}", times(ratio))
}

fn against(chosen: &GroupChoice, next: &Figures, ratio: &Ratio, contest: &Contest) -> String {
    let (choice, name) = (&chosen.choice, &next.way);
    let better = || {
        let (advantage, figure) = (advantage(choice, next, contest), figure(next, contest));
        format!(", {advantage} {figure} of {name}, the next")
    };
    match chosen.certainty {
        Certainty::Only => String::new(),
        Certainty::Clear => format!("{} ({})", better(), interval(ratio)),
        Certainty::Noise => format!(
            "; {name} {}, but the difference is within noise ({}), so {}",
            main_figure(next, contest),
            interval(ratio),
            match choice.way.is_auto() {
                true => "auto, which chooses for every read",
                false => "the simpler one",
            },
        ),
        Certainty::Unsettled => format!(
            "{}, but the repetitions are too few or spread too widely to be sure ({}): measure with \
             more of them",
            better(),
            interval(ratio),
        ),
    }
}

/// Returns the reason for the overall choice.
pub(super) fn overall_reason(
    overall: &Overall,
    groups: &[GroupChoice],
    not_compared: &[NotCompared],
) -> String {
    let over = match groups.len() {
        1 => "here".into(),
        count => format!("in the geometric mean over {count} groups"),
    };
    let advantage = match overall.way.is_auto() {
        true => "chooses for every read by itself",
        false => "is the simpler one",
    };
    let mut text = match (&overall.runner_up, overall.ratio_of_medians, overall.certainty) {
        (Some(next), Some(ratio), Certainty::Clear) => {
            format!("{over} it is {} times as good as {next}, the next", times(ratio))
        }
        (Some(_), Some(_), Certainty::Noise) => {
            let names: Vec<String> = overall.within_noise.iter().map(ToString::to_string).collect();
            format!("{over} it is within noise of {}, and {advantage}", names.join(", "))
        }
        (Some(next), Some(ratio), _) => format!(
            "{over} it looks {} times as good as {next}, the next, but the repetitions are too few or \
             spread too widely to be sure",
            times(ratio)
        ),
        _ if not_compared.is_empty() => "nothing else was measured".into(),
        _ => "no other backend can be chosen".into(),
    };
    if let Some(worst) = overall.worst.as_ref().filter(|worst| worst.share < 0.995) {
        text += &format!(
            ", and at worst ({}) it reaches {:.0} % of the best",
            worst.group,
            100.0 * worst.share
        );
    }
    if let Some(flat) = &overall.flat_memory {
        text += &format!("; its memory grows with the bytes read, and that of {flat} stays flat");
    }
    if overall.way.is_auto() {
        text += &exceptions(groups);
    }
    text
}

/// How many groups are named in a sentence; the others are counted.
const EXCEPTIONS_NAMED_MAX: usize = 3;

/// Names the groups in which a fixed backend is better than `auto` beyond noise, the largest first.
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
        1 => ", and a fixed backend is better in one more group".into(),
        more => format!(", and a fixed backend is better in {more} more groups"),
    };
    format!("; but {}{more}", named.join(", "))
}

/// Compares `auto` with the best fixed backend whose memory stays flat, group by group.
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

/// Formats a comparison: `0.97 of uring (0.95 to 0.99 times, worse)`.
fn beside(flat: &Beside) -> String {
    let interval = flat.ratio.as_ref().map_or_else(String::new, interval);
    let verdict = match flat.verdict {
        Verdict::Noise => "within noise".to_owned(),
        verdict => verdict.to_string(),
    };
    format!("{:.2} of {} ({interval}, {verdict})", flat.ratio_of_medians, flat.way)
}

/// Returns the last sentence: which backend to use, and why.
pub(super) fn sentence(overall: &Overall, not_compared: &[NotCompared]) -> String {
    let settings = match (&overall.settings, &overall.settings_python) {
        (Some(rust), Some(python)) => format!(" (`{rust}`, in Python `{python}`)"),
        (Some(rust), None) => format!(" (`{rust}`)"),
        (None, _) => String::new(),
    };
    let others: String = not_compared
        .iter()
        .map(|other| format!("; {} is not compared: it {}", other.way, other.reason))
        .collect();
    format!("use {}{settings}, because {}{others}", overall.way, overall.reason)
}

/// Returns the last sentence if there is no overall choice.
pub(super) fn no_choice(refusal: &str, not_compared: &[NotCompared]) -> String {
    let others: String =
        not_compared.iter().map(|other| format!("; {} {}", other.way, other.reason)).collect();
    format!("{refusal}{others}")
}

/// Returns the last sentence if a group has no numbers at all.
pub(super) fn no_numbers(group: &Group, why: Exclusion) -> String {
    match why {
        Exclusion::TooFewOperations => format!(
            "there is no overall choice: {group} is not ranked, because it has too few operations for \
             a p99; raise `--seconds`"
        ),
        _ => format!("there is no overall choice: no backend has valid numbers in {group}"),
    }
}

pub(super) fn lines(all: &Recommendation) -> Vec<String> {
    let mut lines = Vec::new();
    for warning in &all.warnings {
        lines.push(format!("warning: {warning}"));
    }
    if all.invalid_cells > 0 {
        lines.push(format!("left out: {}", counted(all.invalid_cells, "invalid cell")));
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
    lines.extend(all.tunings.iter().map(|tuning| format!("{}: {}", tuning.group, tuning.reason)));
    lines.extend((!all.tunings.is_empty()).then(String::new));
    lines.extend(auto_lines(all));
    lines.push(all.sentence.clone());
    lines
}

/// Returns the choice for a reader who does not know what a backend is: no settings, no groups.
fn verdict(all: &Recommendation) -> String {
    let Some(overall) = &all.overall else { return "No recommendation for this run.".into() };
    let way = &overall.way;
    let over = match all.groups.len() {
        1 => "Here".into(),
        count => format!("Over all {count} measurements"),
    };
    let mut text = match (&overall.runner_up, overall.ratio_of_medians, overall.certainty) {
        (Some(next), Some(ratio), Certainty::Clear) => {
            let ratio = times(ratio);
            format!("Use {way}. {over} it is {ratio} times as good as the next best, {next}")
        }
        (Some(_), Some(_), Certainty::Noise) => {
            let others = words_of_list(&overall.within_noise);
            format!("Use {way}. {over} it is as good as {others}, as far as this run can tell")
        }
        (Some(next), Some(ratio), _) => {
            let ratio = times(ratio);
            format!(
                "Perhaps {way}. {over} it looks {ratio} times as good as {next}, but this run is not sure"
            )
        }
        _ => format!("Use {way}. There is nothing else to choose"),
    };
    if let Some(worst) = overall.worst.as_ref().filter(|worst| worst.share < 0.995) {
        text += &format!("; at worst it reaches {:.0} % of the best", 100.0 * worst.share);
    }
    text + "."
}

/// Joins names: `a, b and c`.
fn words_of_list(ways: &[Way]) -> String {
    let names: Vec<String> = ways.iter().map(ToString::to_string).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

pub(super) fn headlines(all: &Recommendation) -> Vec<String> {
    let groups = all.groups.iter().map(|chosen| format!("{}: {}", chosen.group(), chosen.reason));
    let auto = auto_lines(all).into_iter().map(|line| line.trim().to_owned());
    let auto = auto.filter(|line| !line.is_empty());
    [verdict(all), all.sentence.clone()].into_iter().chain(groups).chain(auto).collect()
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
    fn ratios_have_useful_digits_only() {
        assert_eq!([times(2.3), times(41.2)], ["2.30", "41"]);
        let interval_of =
            |low, high| interval(&Ratio { estimate: 1.0, interval: Some((low, high)) });
        assert_eq!(interval_of(0.5, 2.0), "0.50 to 2.00 times, repetition by repetition");
        assert!(interval_of(0.0, 8e41).contains("too widely"));
    }
}
