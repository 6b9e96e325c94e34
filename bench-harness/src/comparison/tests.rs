//! Comparisons of runs with known distributions.

use super::*;
use crate::fixture::dice::Dice;
use crate::fixture::rated::{cell, cells, run};

const COLD: CacheState = CacheState::Cold;

fn five(dice: &mut Dice, backend: &str, rate: f64) -> Vec<Cell> {
    cells(dice, backend, COLD, rate, 0.02, 5)
}

fn failure(comparison: &mut Comparison, percent: f64) -> Option<String> {
    comparison.find_regressions(percent);
    comparison.verdict().err().map(|failure| failure.to_string())
}

#[test]
fn changes_are_distinguished_from_noise() {
    let mut dice = Dice(1);
    let names = [("pread", 1.0), ("uring", 0.7), ("mmap", 1.4)];
    let a = names.iter().flat_map(|(name, _)| five(&mut dice, name, 1e9)).collect();
    let b = names.iter().flat_map(|(name, change)| five(&mut dice, name, change * 1e9)).collect();
    let mut comparison = Comparison::of(&run(a), &run(b));
    let verdicts: Vec<_> = comparison
        .cells
        .iter()
        .map(|change| (change.name.backend.as_str(), change.throughput.verdict))
        .collect();
    let expected =
        [("mmap", Verdict::Better), ("pread", Verdict::Noise), ("uring", Verdict::Worse)];
    assert_eq!(verdicts, expected);
    // The p99 of these cells falls as the throughput rises.
    assert_eq!(comparison.cells[0].latency_p99.verdict, Verdict::Better);
    let ratio = comparison.cells[2].throughput.ratio.unwrap();
    let (low, high) = ratio.interval.unwrap();
    assert!(low < 0.7 && 0.7 < high && high - low < 0.1, "{ratio:?}");

    assert_eq!(failure(&mut comparison, 40.0), None);
    let message = failure(&mut comparison, 20.0).unwrap();
    assert!(
        message.starts_with("rand (64 KiB) cold, uring is worse by more than 20 %"),
        "{message}"
    );
}

/// The cell is surely worse, but not surely by more than 9.9 %.
#[test]
fn a_threshold_inside_the_interval_is_no_regression() {
    let mut dice = Dice(2);
    let (a, b) = (five(&mut dice, "uring", 1e9), five(&mut dice, "uring", 0.9e9));
    let mut comparison = Comparison::of(&run(a), &run(b));
    assert_eq!(comparison.cells[0].throughput.verdict, Verdict::Worse);
    assert_eq!(failure(&mut comparison, 9.9), None);
    assert!(failure(&mut comparison, 3.0).is_some());
}

#[test]
fn the_same_run_again_rarely_fails() {
    let mut dice = Dice(3);
    let mut alarms = 0;
    for _ in 0..1000 {
        let (a, b) = (five(&mut dice, "uring", 1e9), five(&mut dice, "uring", 1e9));
        alarms += usize::from(failure(&mut Comparison::of(&run(a), &run(b)), 1.0).is_some());
    }
    assert!(alarms <= 10, "{alarms} of 1000");
}

#[test]
fn what_cannot_be_compared_is_listed_or_counted() {
    let mut invalid = cell("pread", COLD, 0, 1e9);
    invalid.valid = false;
    let a = run(vec![cell("pread", COLD, 0, 1e9), cell("mmap", COLD, 0, 1e9), invalid.clone()]);
    let b = run(vec![cell("uring", COLD, 0, 1e9), cell("pread", COLD, 0, 0.1e9), invalid]);
    let mut comparison = Comparison::of(&a, &b);
    let backends = |names: &[CellName]| -> Vec<String> {
        names.iter().map(|name| name.backend.clone()).collect()
    };
    assert_eq!(backends(&comparison.only_in_a), ["mmap"]);
    assert_eq!(backends(&comparison.only_in_b), ["uring"]);
    assert_eq!((comparison.a.invalid_cells, comparison.b.invalid_cells), (1, 1));
    assert_eq!(comparison.cells.len(), 1);
    assert_eq!(comparison.cells[0].throughput.repetitions, (1, 1));
    // One repetition says nothing, even at a tenth of the throughput.
    assert_eq!(failure(&mut comparison, 5.0), None);
    let text = comparison.to_text(Path::new("a.json"), Path::new("b.json"));
    for part in
        ["only in A: rand (64 KiB) cold, mmap", "left out: 1 invalid cell", "one repetition"]
    {
        assert!(text.contains(part), "`{part}` is missing in:\n{text}");
    }
}

#[test]
fn fio_is_compared_and_never_a_regression() {
    let mut dice = Dice(4);
    let (a, b) = (five(&mut dice, "fio:psync", 1e9), five(&mut dice, "fio:psync", 0.5e9));
    let mut comparison = Comparison::of(&run(a), &run(b));
    assert_eq!(comparison.cells[0].throughput.verdict, Verdict::Worse);
    assert_eq!(failure(&mut comparison, 5.0), None);
}

#[test]
fn other_machines_and_plans_cause_warnings() {
    let a = run(Vec::new());
    let mut b = run(Vec::new());
    assert_eq!(Comparison::of(&a, &b).warnings, Vec::<String>::new());
    b.host.kernel = "6.18.5".into();
    b.host.storage.device = Some("/dev/sda".into());
    b.plan.seconds = 3.0;
    b.plan.repetitions = 9;
    b.complete = false;
    let warnings = Comparison::of(&a, &b).warnings.join("\n");
    let parts = ["the kernel differs: , then 6.18.5", "the device differs: unknown, then /dev/sda"];
    for part in
        parts.into_iter().chain(["the plans differ in: seconds", "second run was interrupted"])
    {
        assert!(warnings.contains(part), "`{part}` is missing in:\n{warnings}");
    }
}

/// The column was called `p99`, and its value differed from the p99 of the same run in the table of
/// `bench`, which is that of all repetitions together.
#[test]
fn the_p99_is_called_a_median() {
    let p99s = [1_000_000, 2_000_000, 9_000_000];
    let cells = (0..).zip(p99s).map(|(repetition, p99)| {
        let mut cell = cell("pread", COLD, repetition, 1e9);
        cell.latency_ns.p99 = p99;
        cell
    });
    let run = run(cells.collect());
    let text = Comparison::of(&run, &run).to_text(Path::new("a.json"), Path::new("b.json"));
    assert!(text.contains("median p99 A") && text.contains("median p99 B"), "{text}");
    assert!(text.contains("2.00 ms"), "{text}");
}
