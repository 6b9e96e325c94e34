//! Recommendations: which backend to use, for each workload and for all of them, and why.
//!
//! Cells that differ only in the backend and the queue depth compete with each other in a
//! [`Contest`]. The user chooses these two; block size, batch, threads and cache state are
//! properties of the program. Cells of fio, invalid cells and cells that missed their rate take no
//! part. Cells are ranked by throughput, or by p99 latency if operations start at given times.
//!
//! - **Memory.** If the resident memory of a way grew 32 MiB more than that of the leanest way in
//!   its group, it counts as growing with the bytes read. Such a way may win, but the
//!   recommendation says so and names the best flat one.
//! - **Selection.** `--cache`, `--workloads` and `--memory-limit` select the cells that resemble
//!   the user's program.
//!
//! If `auto` is the choice, no profile is needed: `--save` writes none, and removes one that names a
//! fixed backend.

mod contest;
mod overall;
mod ranking;
mod standing;
mod tuning;
mod way;
mod words;

use serde::Serialize;

use crate::result::trust::spread_warning;
use crate::result::{CacheState, Cell, Run, Setting};
use crate::stats::Ratio;

pub(crate) use ranking::Certainty;

use contest::{Contest, contests};
use overall::{Verdict, overall};
use standing::{AutoStanding, AutoSummary};
use tuning::{Tuning, tunings};
use way::Way;

/// A choice for each group and one for all of them, with reasons.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Recommendation {
    /// The start of the run that was evaluated.
    pub(crate) started_at: String,
    /// One choice for the whole run; `null` if the run was interrupted, or there is nothing to
    /// compare.
    pub(crate) overall: Option<Overall>,
    /// The backends that lack numbers in some group and so take no part in the overall choice.
    pub(crate) not_compared: Vec<NotCompared>,
    /// The choice for each workload, setting and cache state.
    pub(crate) groups: Vec<GroupChoice>,
    /// Advice on the number of threads and the window, if several were measured.
    pub(crate) tunings: Vec<Tuning>,
    /// `auto` over all groups, if it was measured together with fixed backends.
    pub(crate) auto: Option<AutoSummary>,
    /// The number of invalid cells.
    pub(crate) invalid_cells: usize,
    /// The smallest number of repetitions that a way has in a group, of those that have any.
    #[serde(skip)]
    pub(crate) repetitions_min: usize,
    /// Reasons to trust the result less.
    pub(crate) warnings: Vec<String>,
    /// The last sentence: which backend to use, with which settings, and why.
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
    /// Its score: the weighted geometric mean, over the groups, of its figure divided by the best one.
    pub(crate) share_of_best: f64,
    /// The group in which it is furthest from the best.
    pub(crate) worst: Option<WorstGroup>,
    pub(crate) runner_up: Option<Way>,
    /// Its median score divided by that of the runner-up.
    pub(crate) ratio_of_medians: Option<f64>,
    /// The same, repetition by repetition, with the interval of the true ratio.
    pub(crate) ratio: Option<Ratio>,
    /// The ways within noise of it.
    pub(crate) within_noise: Vec<Way>,
    /// The best way whose memory stays flat in all groups, if that of the choice does not.
    pub(crate) flat_memory: Option<Way>,
    pub(crate) reason: String,
}

/// The group in which the overall choice is furthest from the best.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WorstGroup {
    pub(crate) group: String,
    /// Its figure divided by that of the best.
    pub(crate) share: f64,
}

/// A backend that lacks numbers in a group.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NotCompared {
    #[serde(flatten)]
    pub(crate) way: Way,
    /// The reason, as a predicate: `has no valid numbers in seq cold`.
    pub(crate) reason: String,
    /// Whether it is unknown how good it is. Otherwise it was measured, and falls short.
    #[serde(skip)]
    pub(crate) lacks_numbers: bool,
}

/// The choice for one workload, setting and cache state.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct GroupChoice {
    pub(crate) workload: String,
    /// The setting without the depth, which is part of the choice.
    pub(crate) setting: Setting,
    pub(crate) cache: CacheState,
    pub(crate) choice: Figures,
    /// How a Rust program sets it.
    pub(crate) settings: Option<String>,
    pub(crate) certainty: Certainty,
    pub(crate) runner_up: Option<Figures>,
    /// How the choice compares with the runner-up, repetition by repetition.
    pub(crate) ratio: Option<Ratio>,
    /// The ways within noise of the best.
    pub(crate) within_noise: Vec<Way>,
    /// The best way whose memory stays flat, if that of the choice does not.
    pub(crate) flat_memory: Option<Figures>,
    /// How `auto` compares with the best fixed backends, if it was measured.
    pub(crate) auto: Option<AutoStanding>,
    pub(crate) reason: String,
}

/// The figures of one backend in a group: medians over its repetitions.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    #[serde(flatten)]
    pub(crate) way: Way,
    pub(crate) throughput_bytes_per_s: f64,
    /// The p99 of all operations together; `null` if they are too few.
    pub(crate) latency_ns_p99: Option<f64>,
    /// The growth of resident memory from the start to the peak.
    pub(crate) rss_growth_bytes: f64,
    pub(crate) repetitions: usize,
}

/// The use that a recommendation is for. Only that part of a run is considered; the default is the
/// whole run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Question {
    /// The cache states of the user's data; empty: all.
    pub(crate) caches: Vec<CacheState>,
    /// The workloads that resemble the user's; empty: all.
    pub(crate) workloads: Vec<String>,
    /// The memory limit of the user's process, mapped pages included.
    pub(crate) memory_limit_bytes: Option<u64>,
}

impl Question {
    fn is_about(&self, cell: &Cell) -> bool {
        let is_cache = self.caches.is_empty() || self.caches.contains(&cell.cache);
        let is_workload = self.workloads.is_empty() || self.workloads.contains(&cell.workload);
        is_cache && is_workload && !cell.is_fio()
    }
}

/// Recommends for the whole run.
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
        None => refusal,
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
        repetitions_min: contests.iter().filter_map(Contest::repetitions_min).min().unwrap_or(0),
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
    /// Returns the lines that are printed at the end of a run.
    pub(crate) fn lines(&self) -> Vec<String> {
        words::lines(self)
    }

    /// Returns the lines at the top of the report: a short verdict, the last sentence, then each choice. The report shows
    /// the warnings elsewhere.
    pub(crate) fn headlines(&self) -> Vec<String> {
        words::headlines(self)
    }
}

#[cfg(test)]
mod tests;
