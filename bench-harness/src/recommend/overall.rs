//! One choice for the whole run.
//!
//! Every way gets a score for each repetition: the weighted geometric mean, over the groups, of its
//! figure divided by the median of the best way. In a geometric mean, half as fast in one group and
//! twice as fast in another cancel out, and no group counts more because its numbers are larger.
//! The scores are then ranked like the figures of a group, with the same treatment of noise.
//!
//! Every workload has the same weight, regardless of its number of settings. A cold cache counts
//! twice, because a loader waits for the device there, while every backend reads warm data fast.
//!
//! The recommendation names the worst group of the choice. A backend without valid numbers in some
//! group is not compared, and the sentence says so. An interrupted run and a run with a group without
//! any valid numbers have no overall choice. `--save` refuses all of them, a choice that is unsettled,
//! and a run of one backend.

use std::collections::{BTreeMap, BTreeSet};

use super::contest::{Contest, Exclusion, exclusion};
use super::ranking::{Ranking, Samples, best_of, median_of, rank};
use super::way::Way;
use super::{GroupChoice, NotCompared, Overall, Question, WorstGroup, words};
use crate::result::{CacheState, Run};

const COLD_WEIGHT: f64 = 2.0;

/// The index of a way in each contest; `None` where it takes no part.
type Places = Vec<Option<usize>>;

/// The overall choice, or why there is none.
pub(crate) struct Verdict {
    pub(crate) overall: Option<Overall>,
    pub(crate) not_compared: Vec<NotCompared>,
    /// Why there is no overall choice.
    pub(crate) refusal: String,
}

/// Chooses among the backends that have numbers in every contest. There is no overall choice for an
/// interrupted run, if a contest has no numbers, or if only one backend is left after others dropped
/// out.
pub(crate) fn overall(
    run: &Run,
    question: &Question,
    contests: &[Contest],
    groups: &[GroupChoice],
) -> Verdict {
    let weights = weights(contests);
    let mut not_compared = Vec::new();
    let (mut scored, mut places) = (Vec::new(), Vec::new());
    for (way, of_way) in all_places(contests) {
        let scores = scores(contests, &weights, &of_way);
        match obstacle(run, question, contests, &of_way, &way, &scores) {
            Some(obstacle) => not_compared.push(obstacle),
            None => {
                scored.push((way, scores));
                places.push(of_way);
            }
        }
    }
    let refusal = refusal(run, question, contests, &scored, &not_compared);
    let ranking = rank(&scored).filter(|_| refusal.is_none());
    let overall = ranking.map(|ranking| {
        let mut overall = describe(contests, &scored, &places, &ranking);
        overall.reason = words::overall_reason(&overall, groups, &not_compared);
        overall
    });
    Verdict { overall, not_compared, refusal: refusal.unwrap_or_default() }
}

/// Returns why a way is not compared; `None` if it is.
fn obstacle(
    run: &Run,
    question: &Question,
    contests: &[Contest],
    places: &Places,
    way: &Way,
    scores: &Samples,
) -> Option<NotCompared> {
    let missing = contests.iter().zip(places).filter(|(_, place)| place.is_none());
    let missing = missing.map(|(contest, _)| (contest.exclusion(run, way, question), contest));
    let found = |lacks_numbers, reason| NotCompared { way: way.clone(), reason, lacks_numbers };
    match missing.min_by_key(|(why, _)| !why.lacks_numbers()) {
        Some((why, contest)) => {
            let reason = format!("{} in {}", why.predicate(), contest.group);
            Some(found(why.lacks_numbers(), reason))
        }
        None if scores.is_empty() => {
            Some(found(true, "has no repetition that is valid in every group".into()))
        }
        None => None,
    }
}

/// Returns why there is no overall choice; `None` if there is one.
fn refusal(
    run: &Run,
    question: &Question,
    contests: &[Contest],
    scored: &[(Way, Samples)],
    not_compared: &[NotCompared],
) -> Option<String> {
    if !contests.iter().any(Contest::has_numbers) {
        return Some(nothing(run, question).into());
    }
    if !run.complete {
        let why = "there is no overall choice, because the run was interrupted: the choices above hold \
                   for what was measured";
        return Some(words::no_choice(why, not_compared));
    }
    if let Some(unknown) = contests.iter().find(|contest| !contest.has_numbers()) {
        let first = unknown.ways.first();
        let why = first.map(|(way, _)| unknown.exclusion(run, way, question));
        return Some(words::no_numbers(&unknown.group, why.unwrap_or(Exclusion::Invalid)));
    }
    let why = match (scored, not_compared) {
        ([], _) => "there is no overall choice: no backend has numbers in every group".into(),
        ([(only, _)], others) if others.iter().any(|other| other.lacks_numbers) => {
            format!("there is no overall choice: only {only} has numbers in every group")
        }
        _ => return None,
    };
    Some(words::no_choice(&why, not_compared))
}

/// Says that no group has a choice, and why.
fn nothing(run: &Run, question: &Question) -> &'static str {
    let cells = run.cells.iter().filter(|cell| question.is_about(cell));
    let reasons: Vec<Exclusion> = cells.filter_map(|cell| exclusion(cell, question)).collect();
    if reasons.contains(&Exclusion::MissesRate) {
        "there is nothing to recommend: no backend reached the requested rate"
    } else if reasons.contains(&Exclusion::TooFewOperations) {
        "there is nothing to recommend: too few operations for a p99, which ranks the backends at a \
         given rate; raise `--seconds`"
    } else if reasons.contains(&Exclusion::OverMemoryLimit) {
        "there is nothing to recommend: every backend takes more memory than the limit"
    } else {
        "there is nothing to recommend: no cell of a backend is valid"
    }
}

fn describe(
    contests: &[Contest],
    scored: &[(Way, Samples)],
    places: &[Places],
    ranking: &Ranking,
) -> Overall {
    let name = |at: usize| scored[at].0.clone();
    let grows = |at: usize| {
        let mut parts = contests.iter().zip(&places[at]);
        parts.any(|(contest, place)| place.is_some_and(|place| contest.grows(place)))
    };
    let flat = grows(ranking.choice).then(|| best_of(scored, |at| !grows(at))).flatten();
    let way = name(ranking.choice);
    let score = |at: usize| median_of(&scored[at].1);
    Overall {
        settings: way.builder(),
        settings_python: way.python(),
        way,
        certainty: ranking.certainty,
        share_of_best: score(ranking.choice),
        worst: worst(contests, &places[ranking.choice]),
        runner_up: ranking.runner_up.map(name),
        ratio_of_medians: ranking.runner_up.map(|at| score(ranking.choice) / score(at)),
        ratio: ranking.ratio,
        within_noise: ranking.within_noise.iter().map(|at| name(*at)).collect(),
        flat_memory: flat.map(name),
        reason: String::new(),
    }
}

/// Returns every way with its index in each contest.
fn all_places(contests: &[Contest]) -> Vec<(Way, Places)> {
    let all = all_ways(contests).into_iter().map(|way| {
        let places: Places = contests.iter().map(|contest| place_of(&way, contest)).collect();
        (way, places)
    });
    all.collect()
}

/// The depths of a backend: those that competed within a contest, and those that did not.
#[derive(Default)]
struct Depths {
    varied: BTreeSet<Option<u32>>,
    fixed: BTreeSet<Option<u32>>,
}

/// Returns each backend once, or once for each depth if a contest has it with several.
fn all_ways(contests: &[Contest]) -> BTreeSet<Way> {
    let mut backends: BTreeMap<&str, Depths> = BTreeMap::new();
    for contest in contests {
        let mut here: BTreeMap<&str, BTreeSet<Option<u32>>> = BTreeMap::new();
        for (way, _) in &contest.ways {
            here.entry(&way.backend).or_default().insert(way.depth);
        }
        for (backend, found) in here {
            let Depths { varied, fixed } = backends.entry(backend).or_default();
            if found.len() > 1 { varied.extend(found) } else { fixed.extend(found) }
        }
    }
    let ways = backends.into_iter().flat_map(|(backend, Depths { varied, fixed })| {
        let depths = match (varied.is_empty(), fixed.len()) {
            (false, _) => varied,
            (true, 1) => fixed,
            // Each workload had its own depth, and no two depths competed.
            (true, _) => [None].into(),
        };
        depths.into_iter().map(move |depth| Way { backend: backend.to_owned(), depth })
    });
    ways.collect()
}

/// Returns the index of the way, or of its backend if the contest has it with one depth only.
fn place_of(way: &Way, contest: &Contest) -> Option<usize> {
    let has_numbers = |at: &usize| !contest.ways[*at].1.is_empty();
    let is_backend = |at: &usize| contest.ways[*at].0.backend == way.backend;
    let all: Vec<usize> = (0..contest.ways.len()).filter(is_backend).collect();
    let exact = all.iter().copied().find(|at| contest.ways[*at].0 == *way);
    let only = if let [only] = all[..] { Some(only) } else { None };
    exact.or(only).filter(has_numbers)
}

fn weights(contests: &[Contest]) -> Vec<f64> {
    let key = |contest: &Contest| (contest.group.workload.clone(), contest.group.cache);
    let mut settings: BTreeMap<(String, CacheState), f64> = BTreeMap::new();
    contests.iter().for_each(|contest| *settings.entry(key(contest)).or_default() += 1.0);
    let weight = |contest: &Contest| {
        let of_cache = if contest.group.cache == CacheState::Cold { COLD_WEIGHT } else { 1.0 };
        of_cache / settings.get(&key(contest)).copied().unwrap_or(1.0)
    };
    contests.iter().map(weight).collect()
}

/// Returns the score of a way in every repetition that it has in all of its contests.
fn scores(contests: &[Contest], weights: &[f64], places: &Places) -> Samples {
    let parts: Vec<(&Samples, f64, f64)> = contests
        .iter()
        .zip(weights)
        .zip(places)
        .filter_map(|((contest, weight), place)| {
            Some((&contest.ways[(*place)?].1, *weight, best_median(contest)))
        })
        .collect();
    let Some((first, ..)) = parts.first() else { return Samples::new() };
    let total: f64 = parts.iter().map(|(_, weight, _)| weight).sum();
    let score = |repetition: &u32| {
        let logs = parts.iter().map(|(samples, weight, best)| {
            samples.get(repetition).map(|value| weight * (value / best).ln())
        });
        let sum = logs.sum::<Option<f64>>()?;
        Some((*repetition, (sum / total).exp()))
    };
    first.keys().filter_map(score).collect()
}

fn best_median(contest: &Contest) -> f64 {
    contest.ways.iter().map(|(_, samples)| median_of(samples)).fold(0.0, f64::max)
}

fn worst(contests: &[Contest], places: &Places) -> Option<WorstGroup> {
    let shares = contests.iter().zip(places).filter_map(|(contest, place)| {
        let share = median_of(&contest.ways[(*place)?].1) / best_median(contest);
        Some(WorstGroup { group: contest.group.to_string(), share })
    });
    shares.min_by(|a, b| a.share.total_cmp(&b.share)).filter(|worst| worst.share < 1.0)
}
