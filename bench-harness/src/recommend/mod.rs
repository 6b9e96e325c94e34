//! `ringmain recommend`: which backend to use, for each workload and for all of them, and why.
//!
//! Cells that differ in nothing but the backend and the queue depth compete with each other: a
//! [`Contest`]. Both are the reader's to choose; the rest (block size, batch, threads, cache state)
//! is what the program does. fio's figures, invalid cells and cells that missed their rate take no
//! part. The figure that counts is the throughput, or, where operations start at a given rate, how
//! short the p99 latency is.

mod contest;
mod overall;
mod ranking;
mod standing;
mod tuning;
mod words;

use serde::Serialize;

use crate::result::trust::spread_warning;
use crate::result::{CacheState, Cell, Run, Setting};
use crate::stats::Ratio;

pub(crate) use ranking::Certainty;
pub(crate) use standing::is_auto;

use contest::{Contest, contests};
use overall::{Verdict, overall};
use ranking::Way;
use standing::{AutoStanding, AutoSummary};
use tuning::{Tuning, tunings};

/// What to use, and why.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Recommendation {
    /// When the run began that this follows from.
    pub(crate) started_at: String,
    /// One choice for the whole run; `null` if the run was interrupted, or there is nothing to
    /// compare.
    pub(crate) overall: Option<Overall>,
    /// The backends that lack numbers in some group and so take no part in the overall choice.
    pub(crate) not_compared: Vec<NotCompared>,
    /// The choice for each workload, setting and cache state.
    pub(crate) groups: Vec<GroupChoice>,
    /// How many threads and how large a window to take, where several were measured.
    pub(crate) tunings: Vec<Tuning>,
    /// `auto` over all groups, where it was measured beside something else.
    pub(crate) auto: Option<AutoSummary>,
    /// Cells that could not be used.
    pub(crate) invalid_cells: usize,
    /// What makes it less trustworthy than it looks.
    pub(crate) warnings: Vec<String>,
    /// The end of it: use this, with these settings, because.
    pub(crate) sentence: String,
}

/// The choice for the whole run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Overall {
    #[serde(flatten)]
    pub(crate) way: Way,
    /// How a Rust program sets it.
    pub(crate) settings: Option<String>,
    /// How a Python program sets it.
    pub(crate) settings_python: Option<String>,
    pub(crate) certainty: Certainty,
    /// The weighted geometric mean, over the groups, of its share of the best one's figure.
    pub(crate) share_of_best: f64,
    /// Where it loses most.
    pub(crate) worst: Option<WorstGroup>,
    pub(crate) runner_up: Option<Way>,
    /// Its median score divided by that of the runner-up.
    pub(crate) ratio_of_medians: Option<f64>,
    /// The same, repetition by repetition, with the interval of the true ratio.
    pub(crate) ratio: Option<Ratio>,
    /// Those that cannot be told from it.
    pub(crate) within_noise: Vec<Way>,
    /// The best one whose memory stays flat everywhere, where this one's does not.
    pub(crate) flat_memory: Option<Way>,
    pub(crate) reason: String,
}

/// The group in which the overall choice is furthest from the best.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WorstGroup {
    pub(crate) group: String,
    /// What it reaches of the best one's figure.
    pub(crate) share: f64,
}

/// A backend that lacks numbers in a group.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NotCompared {
    #[serde(flatten)]
    pub(crate) way: Way,
    /// Why, as the end of a sentence about it.
    pub(crate) reason: String,
}

/// The choice for one workload, setting and cache state.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct GroupChoice {
    pub(crate) workload: String,
    /// Without the depth, which is part of the choice.
    pub(crate) setting: Setting,
    pub(crate) cache: CacheState,
    pub(crate) choice: Figures,
    /// How a program sets it.
    pub(crate) settings: Option<String>,
    pub(crate) certainty: Certainty,
    pub(crate) runner_up: Option<Figures>,
    /// How the choice compares with the runner-up, repetition by repetition.
    pub(crate) ratio: Option<Ratio>,
    /// Those that cannot be told from the best.
    pub(crate) within_noise: Vec<Way>,
    /// The best one whose memory stays flat, where that of the choice does not.
    pub(crate) flat_memory: Option<Figures>,
    /// How `auto` compares with the best fixed backends, where it was measured.
    pub(crate) auto: Option<AutoStanding>,
    pub(crate) reason: String,
}

/// The figures of one backend in a group: medians over its repetitions.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    #[serde(flatten)]
    pub(crate) way: Way,
    pub(crate) throughput_bytes_per_s: f64,
    /// Of all operations together; `null` if they are too few.
    pub(crate) latency_ns_p99: Option<f64>,
    /// How much more memory was resident at the peak than at the start.
    pub(crate) rss_growth_bytes: f64,
    pub(crate) repetitions: usize,
}

/// What the user knows about their use: a recommendation leaves everything else out. The default asks
/// about the whole run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Question {
    /// Whether the data is warm, cold or half of each; empty: any of them.
    pub(crate) caches: Vec<CacheState>,
    /// The workloads that are like the user's; empty: all.
    pub(crate) workloads: Vec<String>,
    /// What the process may use at most, mapped pages included.
    pub(crate) memory_limit_bytes: Option<u64>,
}

impl Question {
    fn is_about(&self, cell: &Cell) -> bool {
        let is_cache = self.caches.is_empty() || self.caches.contains(&cell.cache);
        let is_workload = self.workloads.is_empty() || self.workloads.contains(&cell.workload);
        is_cache && is_workload && !cell.is_fio()
    }
}

/// Recommends for everything that was measured.
pub(crate) fn recommend(run: &Run) -> Recommendation {
    recommend_for(run, &Question::default())
}

/// Recommends for one use.
pub(crate) fn recommend_for(run: &Run, question: &Question) -> Recommendation {
    let contests = contests(run, question);
    let groups: Vec<GroupChoice> = contests.iter().filter_map(GroupChoice::of).collect();
    let Verdict { overall, not_compared, refusal } = overall(run, question, &contests, &groups);
    let standings =
        groups.iter().filter_map(|it| Some((it.group().to_string(), it.auto.as_ref()?)));
    let auto = AutoSummary::of(standings);
    let invalid_cells = run.cells.iter().filter(|cell| !cell.valid).count();
    let sentence = match &overall {
        Some(overall) => words::sentence(overall, &not_compared),
        None => words::no_choice(&refusal, &not_compared),
    };
    let mut warnings = run.warnings.clone();
    warnings.extend(spread_warning(run).filter(|text| !run.warnings.contains(text)));
    let started_at = run.started_at.clone();
    Recommendation {
        started_at,
        overall,
        not_compared,
        groups,
        tunings: tunings(&contests),
        auto,
        invalid_cells,
        warnings,
        sentence,
    }
}

impl GroupChoice {
    fn of(contest: &Contest) -> Option<Self> {
        let ranking = ranking::rank(&contest.ways)?;
        let choice = contest.figures(ranking.choice);
        let runner_up = ranking.runner_up.map(|at| contest.figures(at));
        let flat_memory = contest.flat_alternative(ranking.choice).map(|at| contest.figures(at));
        let within_noise: Vec<Way> =
            ranking.within_noise.iter().map(|at| contest.ways[*at].0.clone()).collect();
        let mut chosen = Self {
            workload: contest.group.workload.clone(),
            setting: contest.group.setting.clone(),
            cache: contest.group.cache,
            settings: choice.way.builder(),
            choice,
            certainty: ranking.certainty,
            runner_up,
            ratio: ranking.ratio,
            within_noise,
            flat_memory,
            auto: AutoStanding::of(contest),
            reason: String::new(),
        };
        chosen.reason = words::reason(&chosen, contest);
        Some(chosen)
    }
}

impl Recommendation {
    /// The recommendation as it is printed at the end of a run.
    pub(crate) fn lines(&self) -> Vec<String> {
        words::lines(self)
    }

    /// For the head of the report, which has warnings of its own: the sentence, then each choice.
    pub(crate) fn headlines(&self) -> Vec<String> {
        words::headlines(self)
    }
}

#[cfg(test)]
mod tests;
