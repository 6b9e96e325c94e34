//! Recommendations from runs with known distributions.

use super::*;
use crate::fixture::dice::Dice;
use crate::fixture::rated::{cell, cells, run};
use crate::result::{CacheState, Cell};
use crate::stats::Verdict;

const COLD: CacheState = CacheState::Cold;
const WARM: CacheState = CacheState::Warm;

/// Each backend around its rate, five repetitions with 2 % noise.
fn measured(dice: &mut Dice, cache: CacheState, backends: &[(&str, f64)]) -> Vec<Cell> {
    backends.iter().flat_map(|(name, rate)| cells(dice, name, cache, *rate, 0.02, 5)).collect()
}

fn choices(recommendation: &Recommendation) -> Vec<&str> {
    recommendation.groups.iter().map(|group| group.choice.way.backend.as_str()).collect()
}

#[test]
fn the_best_backend_is_named_with_its_numbers() {
    let cold = measured(&mut Dice(1), COLD, &[("pread", 1e9), ("direct", 1.8e9), ("uring", 4.1e9)]);
    let found = recommend(&run(cold));
    assert_eq!(choices(&found), ["uring"]);
    let group = &found.groups[0];
    assert_eq!(group.certainty, Certainty::Clear);
    for part in [
        "uring reads 4.",
        " GB/s, 2.",
        " GB/s of direct, the next",
        "p99 2",
        "RSS grows by 3.0 MiB",
    ] {
        assert!(group.reason.contains(part), "`{part}` is missing in: {}", group.reason);
    }
    assert!(found.sentence.starts_with("use uring (`Engine::builder()"), "{}", found.sentence);
    assert!(found.sentence.contains(", because here it is 2."), "{}", found.sentence);
    assert_eq!(found.lines().last(), Some(&found.sentence));
}

#[test]
fn equal_backends_are_noise_and_the_simpler_one_is_chosen() {
    let mut dice = Dice(2);
    let mut noise = 0;
    for _ in 0..100 {
        let ways = [("uring", 3e9), ("mmap", 3e9), ("direct", 3e9), ("pread", 1e9)];
        let found = recommend(&run(measured(&mut dice, WARM, &ways)));
        let group = &found.groups[0];
        let is_noise = group.certainty == Certainty::Noise && choices(&found) == ["mmap"];
        noise += usize::from(is_noise && group.reason.contains("within noise"));
    }
    assert!(noise >= 95, "{noise} of 100");
}

#[test]
fn fio_and_invalid_cells_never_count() {
    let mut all = measured(&mut Dice(3), COLD, &[("pread", 1e9), ("uring", 2e9)]);
    all.extend(measured(&mut Dice(4), COLD, &[("fio:io_uring", 9e9)]));
    for mut cell in measured(&mut Dice(5), COLD, &[("direct", 8e9)]) {
        cell.valid = false;
        all.push(cell);
    }
    let found = recommend(&run(all));
    assert_eq!(choices(&found), ["uring"]);
    assert_eq!(found.groups[0].runner_up.as_ref().unwrap().way.backend, "pread");
    assert_eq!(found.invalid_cells, 5);
    assert!(found.lines().iter().any(|line| line == "left out: 5 invalid cells"));
}

#[test]
fn growing_memory_is_mentioned_with_a_flat_alternative() {
    let mut all = measured(&mut Dice(6), WARM, &[("pread", 5e9), ("uring", 4e9), ("mmap", 9e9)]);
    for cell in all.iter_mut().filter(|cell| cell.backend == "mmap") {
        cell.rss_file_bytes.peak = 1 << 30;
    }
    let found = recommend(&run(all));
    assert_eq!(choices(&found), ["mmap"]);
    let reason = &found.groups[0].reason;
    let flat = "RSS grows by 1.0 GiB, with the bytes read; if memory must stay flat, take pread";
    assert!(reason.contains(flat), "{reason}");
    assert!(found.sentence.ends_with("that of pread stays flat"), "{}", found.sentence);
}

/// Cold counts twice: a backend that is better cold and worse warm by the same factor wins.
#[test]
fn one_choice_for_all_groups() {
    let mut dice = Dice(7);
    let mut all = measured(&mut dice, COLD, &[("pread", 1e9), ("uring", 2e9)]);
    all.extend(measured(&mut dice, WARM, &[("pread", 6e9), ("uring", 3e9)]));
    let found = recommend(&run(all));
    assert_eq!(choices(&found), ["uring", "pread"]);
    let overall = found.overall.unwrap();
    assert_eq!(overall.way.backend, "uring");
    // (2² × ½) to the power of ⅓.
    assert!((overall.ratio.unwrap().estimate - 1.26).abs() < 0.05, "{overall:?}");
    let worst = overall.worst.unwrap();
    assert!(worst.group.ends_with("warm") && (worst.share - 0.5).abs() < 0.05, "{worst:?}");
    assert!(found.sentence.contains("in the geometric mean over 2 groups"), "{}", found.sentence);
}

#[test]
fn a_workload_with_many_settings_counts_once() {
    let mut dice = Dice(8);
    let mut all = Vec::new();
    for block in [1u64 << 12, 1 << 16, 1 << 20] {
        let mut cells = measured(&mut dice, COLD, &[("pread", 1.4e9), ("uring", 1e9)]);
        cells.iter_mut().for_each(|cell| cell.setting.block_bytes = Some(block));
        all.extend(cells);
    }
    let mut cells = measured(&mut dice, COLD, &[("pread", 1e9), ("uring", 2e9)]);
    cells.iter_mut().for_each(|cell| cell.workload = "seq".into());
    all.extend(cells);
    assert_eq!(recommend(&run(all)).overall.unwrap().way.backend, "uring");
}

#[test]
fn the_depth_is_part_of_the_choice() {
    let mut dice = Dice(9);
    let mut all = Vec::new();
    for (depth, rate) in [(1, 1e9), (32, 3e9), (128, 3e9)] {
        let mut cells = measured(&mut dice, COLD, &[("uring", rate), ("pread", 0.9e9)]);
        cells.iter_mut().for_each(|cell| cell.setting.depth = Some(depth));
        all.extend(cells);
    }
    let found = recommend(&run(all.clone()));
    assert_eq!(found.groups.len(), 1);
    assert_eq!(found.groups[0].choice.way.to_string(), "uring with depth 32");
    // `pread` has no queue, so its depths are one way.
    let ways = &contests(&run(all), &Question::default())[0].ways;
    let names: Vec<String> = ways.iter().map(|(way, _)| way.to_string()).collect();
    let expected = ["pread", "uring with depth 1", "uring with depth 32", "uring with depth 128"];
    assert_eq!(names, expected);
    assert_eq!(ways[0].1.len(), 5);
    assert_eq!(found.overall.unwrap().way.depth, Some(32));
    assert!(found.sentence.contains(".depth_max(32)"), "{}", found.sentence);
}

#[test]
fn threads_and_window_are_advised_on_where_several_were_measured() {
    let mut dice = Dice(15);
    let mut all = Vec::new();
    for (threads, rate) in [(1, 1e9), (2, 2e9), (8, 2e9)] {
        let mut cells = measured(&mut dice, COLD, &[("pread", rate)]);
        cells.iter_mut().for_each(|cell| cell.setting.threads = Some(threads));
        all.extend(cells);
    }
    let found = recommend(&run(all));
    let [tuning] = &found.tunings[..] else { panic!("{:?}", found.tunings) };
    assert_eq!((tuning.parameter, tuning.value), ("threads", 2));
    assert!(tuning.reason.starts_with("take 2 threads: pread reads "), "{}", tuning.reason);
    assert!(found.lines().iter().any(|line| line.contains("take 2 threads")));

    let mut all = Vec::new();
    for (window_bytes, rate) in [(32 << 20, 1e9), (256 << 20, 2e9)] {
        let mut cells = measured(&mut dice, COLD, &[("uring", rate)]);
        cells.iter_mut().for_each(|cell| cell.setting.window_bytes = Some(window_bytes));
        all.extend(cells);
    }
    let reason = &recommend(&run(all)).tunings[0].reason;
    assert!(reason.starts_with("take a window of 256 MiB: uring reads "), "{reason}");
    assert!(reason.contains("with a window of 32 MiB"), "{reason}");
}

/// One repetition has no noise to compare with: a window that was 3.4 times as slow was advised as "within noise".
#[test]
fn one_repetition_gives_no_advice_on_threads() {
    let mut all = Vec::new();
    for (threads, rate) in [(1, 1e9), (2, 3e9)] {
        let mut cell = cell("pread", COLD, 0, rate);
        cell.setting.threads = Some(threads);
        all.push(cell);
    }
    assert_eq!(recommend(&run(all)).tunings.len(), 0);
}

#[test]
fn at_a_given_rate_the_latency_decides() {
    let mut all = Vec::new();
    for repetition in 0..5 {
        for (name, p99) in [("pread", 900_000), ("uring", 200_000)] {
            let mut cell = cell(name, COLD, repetition, 1e9);
            cell.setting.rate_per_s = Some(1000);
            cell.latency_ns.p99 = p99 + u64::from(repetition);
            all.push(cell);
        }
    }
    let found = recommend(&run(all));
    assert_eq!(choices(&found), ["uring"]);
    let reason = &found.groups[0].reason;
    assert!(reason.starts_with("uring has a median p99 of 200 µs, 4.50 times shorter"), "{reason}");
}

#[test]
fn one_repetition_is_a_hint() {
    let cells = vec![cell("pread", COLD, 0, 1e9), cell("uring", COLD, 0, 3e9)];
    let found = recommend(&run(cells));
    assert_eq!(found.groups[0].certainty, Certainty::Unsettled);
    assert!(found.groups[0].reason.contains("too few"), "{}", found.groups[0].reason);
    assert!(found.sentence.contains("too few"), "{}", found.sentence);
}

#[test]
fn auto_is_named_unless_a_fixed_backend_is_better() {
    let mut dice = Dice(12);
    let mut named = 0;
    for _ in 0..100 {
        let cold = measured(&mut dice, COLD, &[("pread", 1e9), ("uring", 2e9), ("auto", 2e9)]);
        let found = recommend(&run(cold));
        let is_named = choices(&found) == ["auto"] && found.sentence.starts_with("use auto (`");
        named += usize::from(is_named && !found.sentence.contains("; but "));
    }
    assert!(named >= 95, "{named} of 100");
    let cold = measured(&mut dice, COLD, &[("pread", 1e9), ("uring", 4e9), ("auto", 2e9)]);
    let found = recommend(&run(cold));
    assert!(found.sentence.starts_with("use uring"), "{}", found.sentence);
    assert!(found.groups[0].reason.contains("; auto reads "), "{}", found.groups[0].reason);
}

/// `auto` wins overall and loses in one group: the sentence names that group, the backend and the
/// factor.
#[test]
fn groups_where_auto_is_not_the_best_are_named() {
    let mut dice = Dice(13);
    let mut all = measured(&mut dice, COLD, &[("pread", 1e9), ("uring", 4e9), ("auto", 4e9)]);
    all.extend(measured(&mut dice, WARM, &[("pread", 6e9), ("uring", 1e9), ("auto", 4e9)]));
    let found = recommend(&run(all));
    assert!(found.sentence.starts_with("use auto"), "{}", found.sentence);
    let exception = "; but pread is 1.5";
    assert!(found.sentence.contains(exception), "{}", found.sentence);
    assert!(found.sentence.ends_with("rand (64 KiB) warm"), "{}", found.sentence);
    assert_eq!(found.groups[0].auto.as_ref().unwrap().best.verdict, Verdict::Noise);
    assert_eq!(found.groups[1].auto.as_ref().unwrap().best.verdict, Verdict::Worse);
}

/// `auto` is not compared with a mapping that keeps its pages, although that is faster.
#[test]
fn auto_is_compared_with_what_keeps_memory_flat() {
    let mut all = measured(&mut Dice(14), WARM, &[("pread", 5e9), ("auto", 5e9), ("mmap", 9e9)]);
    for cell in all.iter_mut().filter(|cell| cell.backend == "mmap") {
        cell.rss_file_bytes.peak = 1 << 30;
    }
    let found = recommend(&run(all));
    let auto = found.groups[0].auto.as_ref().unwrap();
    let flat = auto.best_flat.as_ref().unwrap();
    assert_eq!((flat.way.backend.as_str(), flat.grows), ("pread", false));
    assert!((flat.ratio_of_medians - 1.0).abs() < 0.05, "{flat:?}");
    assert_eq!((auto.best.way.backend.as_str(), auto.best.grows), ("mmap", true));
    let summary = found.auto.as_ref().unwrap();
    assert_eq!((summary.groups, summary.ratio_min), (1, flat.ratio_of_medians));
    let line = "auto / the best fixed backend whose memory stays flat";
    assert!(found.lines().iter().any(|it| it.starts_with(line)), "{:#?}", found.lines());
    assert!(found.headlines().iter().any(|it| it.contains(" of pread (")));
}

/// The first line of the report says what to use without settings, and does not claim more than the run shows.
#[test]
fn the_verdict_is_short_and_as_certain_as_the_run() {
    let mut dice = Dice(23);
    let mut verdict = |ways: &[(&str, f64)]| {
        let cells = measured(&mut dice, COLD, ways);
        recommend(&run(cells)).headlines().swap_remove(0)
    };
    let clear = verdict(&[("pread", 1e9), ("uring", 3e9)]);
    assert!(
        clear.starts_with("Use uring. Here it is ") && clear.contains("best, pread"),
        "{clear}"
    );
    let noise = verdict(&[("pread", 1e9), ("uring", 1e9), ("direct", 1e9)]);
    assert!(noise.starts_with("Use pread. Here it is as good as "), "{noise}");
    assert!(noise.contains(" and ") && noise.contains("as far as this run can tell"), "{noise}");
    let once = [("pread", 1e9), ("uring", 3e9)].map(|(name, rate)| cell(name, COLD, 0, rate));
    let once = recommend(&run(once.into())).headlines().swap_remove(0);
    assert!(once.starts_with("Perhaps uring.") || once.contains("as far as"), "{once}");
    let none = recommend(&run(Vec::new())).headlines().swap_remove(0);
    assert_eq!(none, "No recommendation for this run.");
}

#[test]
fn without_valid_cells_there_is_no_recommendation() {
    let found = recommend(&run(Vec::new()));
    assert!(found.overall.is_none() && found.groups.is_empty());
    assert!(found.sentence.contains("no cell of a backend is valid"));
}

/// Marks the cells that pass as invalid.
fn spoil(cells: &mut [Cell], is_meant: impl Fn(&Cell) -> bool) {
    cells.iter_mut().filter(|cell| is_meant(cell)).for_each(|cell| cell.valid = false);
}

/// If every cold cell was invalid, the warm cells alone made an overall choice, and no sentence named the
/// cold ones.
#[test]
fn a_group_without_a_valid_cell_stops_the_overall_choice() {
    let mut dice = Dice(16);
    let mut all = measured(&mut dice, COLD, &[("pread", 1e9), ("uring", 2e9)]);
    all.extend(measured(&mut dice, WARM, &[("pread", 9e9), ("uring", 3e9)]));
    spoil(&mut all, |cell| cell.cache == COLD);
    let found = recommend(&run(all));
    assert_eq!(choices(&found), ["pread"], "a single group still has a choice");
    assert!(found.overall.is_none(), "{}", found.sentence);
    let sentence = "there is no overall choice: no backend has valid numbers in rand (64 KiB) cold";
    assert_eq!(found.sentence, sentence);
}

/// If all cells of a backend were invalid, the sentence was the same as if it had not been measured.
#[test]
fn a_backend_without_a_valid_cell_is_named() {
    let ways = [("pread", 1e9), ("mmap", 9e9), ("uring", 2e9)];
    let mut all = measured(&mut Dice(17), COLD, &ways);
    spoil(&mut all, |cell| cell.backend == "mmap");
    let found = recommend(&run(all));
    let part = "; mmap is not compared: it has no valid numbers in rand (64 KiB) cold";
    assert!(found.sentence.ends_with(part), "{}", found.sentence);
    assert_eq!(found.not_compared.len(), 1);
}

/// If only one backend had valid cells, the sentence said "nothing else was measured".
#[test]
fn nothing_else_was_measured_is_said_only_if_it_is_true() {
    let mut all = measured(&mut Dice(18), COLD, &[("pread", 1e9), ("mmap", 2e9)]);
    let alone = all.iter().filter(|cell| cell.backend == "pread").cloned().collect();
    let alone = recommend(&run(alone)).sentence;
    assert!(alone.contains("nothing else was measured"), "{alone}");
    spoil(&mut all, |cell| cell.backend == "mmap");
    let found = recommend(&run(all.clone()));
    assert!(found.overall.is_none(), "{}", found.sentence);
    assert!(found.sentence.contains("mmap has no valid numbers"), "{}", found.sentence);

    // A backend that takes too much memory was measured, and is out.
    for cell in all.iter_mut().filter(|cell| cell.backend == "mmap") {
        (cell.valid, cell.rss_file_bytes.peak) = (true, 1 << 30);
    }
    let question = Question { memory_limit_bytes: Some(64 << 20), ..Question::default() };
    let sentence = recommend_for(&run(all), &question).sentence;
    assert!(sentence.starts_with("use pread"), "{sentence}");
    assert!(sentence.contains("because no other backend can be chosen"), "{sentence}");
    let part = "mmap is not compared: it takes more memory than the limit in rand (64 KiB) cold";
    assert!(sentence.contains(part), "{sentence}");
}

/// With few operations the reason was "pread has too few operations for a p99, better unknown p99 of
/// uring, the next", and pread was chosen.
#[test]
fn an_open_loop_without_a_p99_is_not_ranked() {
    let mut dice = Dice(19);
    let mut open = measured(&mut dice, COLD, &[("pread", 1e9), ("uring", 2e9)]);
    for cell in &mut open {
        (cell.setting.rate_per_s, cell.operations) = (Some(50), 50);
    }
    let found = recommend(&run(open.clone()));
    assert!(found.overall.is_none() && found.groups.is_empty(), "{}", found.sentence);
    let part = "nothing to recommend: too few operations for a p99";
    assert!(found.sentence.contains(part), "{}", found.sentence);
    assert!(found.sentence.ends_with("raise `--seconds`"), "{}", found.sentence);

    open.extend(measured(&mut dice, WARM, &[("pread", 1e9), ("uring", 2e9)]));
    let found = recommend(&run(open));
    assert_eq!(choices(&found), ["uring"]);
    assert!(found.overall.is_none(), "{}", found.sentence);
    assert!(found.sentence.contains("cold is not ranked, because"), "{}", found.sentence);
}
