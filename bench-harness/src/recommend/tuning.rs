//! Advice on the number of threads and the window, if a run has several. (The depth is part of a
//! [`Way`].)

use std::collections::BTreeMap;

use serde::Serialize;

use super::contest::Contest;
use super::ranking::{Samples, best_of, compared_with_each, median_of};
use super::way::Way;
use super::words;
use crate::result::{Group, Setting};
use crate::stats::Verdict;
use crate::text::size::format_bytes;

/// The advised value of a parameter in a group.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Tuning {
    /// `threads` or `window_bytes`.
    pub(crate) parameter: &'static str,
    /// The group without that parameter.
    pub(crate) group: String,
    pub(crate) value: u64,
    pub(crate) reason: String,
}

#[derive(Clone, Copy)]
enum Parameter {
    Threads,
    Window,
}

/// One way at one value of the parameter.
struct Candidate<'a> {
    value: u64,
    samples: &'a Samples,
}

/// Returns advice for each parameter and group with several values.
pub(crate) fn tunings(contests: &[Contest]) -> Vec<Tuning> {
    let mut tunings = Vec::new();
    for parameter in [Parameter::Threads, Parameter::Window] {
        let mut families: BTreeMap<Group, Vec<(u64, &Contest)>> = BTreeMap::new();
        for contest in contests.iter().filter(|contest| !contest.is_open_loop()) {
            if let Some(value) = parameter.value(&contest.group.setting) {
                let family = families.entry(parameter.without(&contest.group)).or_default();
                family.push((value, contest));
            }
        }
        tunings
            .extend(families.iter().filter_map(|(group, family)| parameter.advise(group, family)));
    }
    tunings
}

impl Parameter {
    fn value(self, setting: &Setting) -> Option<u64> {
        match self {
            Self::Threads => setting.threads.map(u64::from),
            Self::Window => setting.window_bytes,
        }
    }

    fn without(self, group: &Group) -> Group {
        let mut group = group.clone();
        match self {
            Self::Threads => group.setting.threads = None,
            Self::Window => group.setting.window_bytes = None,
        }
        group
    }

    fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Window => "window_bytes",
        }
    }

    fn show(self, value: u64) -> String {
        match self {
            Self::Threads if value == 1 => "1 thread".into(),
            Self::Threads => format!("{value} threads"),
            Self::Window => format!("a window of {}", format_bytes(value)),
        }
    }

    /// Advises the smallest value at which the fastest backend is not worse than at its best beyond noise, because a
    /// larger one costs memory or processors. A single repetition shows no noise, so there is no advice.
    fn advise(self, group: &Group, family: &[(u64, &Contest)]) -> Option<Tuning> {
        let way = fastest(family)?;
        let family = family.iter().filter_map(|(value, contest)| {
            let (_, samples) = contest.ways.iter().find(|(other, _)| other == way)?;
            Some(Candidate { value: *value, samples })
        });
        let mut family: Vec<Candidate<'_>> = family.collect();
        family.retain(|candidate| !candidate.samples.is_empty());
        if family.len() < 2 {
            return None;
        }
        family.sort_by_key(|candidate| candidate.value);
        let rate = |candidate: &Candidate<'_>| median_of(candidate.samples);
        let best = family.iter().max_by(|a, b| rate(a).total_cmp(&rate(b)))?;
        let to_best = |candidate: &Candidate<'_>| {
            compared_with_each(candidate.samples, best.samples, family.len() - 1)
        };
        let has_interval = |candidate| to_best(candidate).is_some_and(|it| it.interval.is_some());
        if !family.iter().all(has_interval) {
            return None;
        }
        let is_as_good = |candidate: &&Candidate<'_>| {
            let is_worse = to_best(candidate).is_none_or(|it| it.verdict() == Verdict::Better);
            candidate.value == best.value || !is_worse
        };
        let chosen = family.iter().find(is_as_good)?;
        let others = family.iter().filter(|candidate| candidate.value != chosen.value);
        let others = others
            .map(|other| format!("{} with {}", words::rate(rate(other)), self.show(other.value)));
        let others: Vec<String> = others.collect();
        let why = match chosen.value < best.value {
            true => "; larger values are within noise",
            false => "",
        };
        let reason = format!(
            "take {}: {} reads {}, against {}{why}",
            self.show(chosen.value),
            way,
            words::rate(rate(chosen)),
            others.join(" and ")
        );
        let (parameter, group) = (self.name(), group.to_string());
        Some(Tuning { parameter, group, value: chosen.value, reason })
    }
}

/// Returns the way that is the fastest at any value.
fn fastest<'a>(family: &[(u64, &'a Contest)]) -> Option<&'a Way> {
    let bests = family.iter().filter_map(|(_, contest)| {
        let (way, samples) = &contest.ways[best_of(&contest.ways, |_| true)?];
        Some((way, median_of(samples)))
    });
    bests.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(way, _)| way)
}
