//! The plans of `docs/experiments.md`: each can be parsed and carried out, and the page explains each of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::bench::cells;
use crate::support::{Place, ringmain, run};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns the plans, sorted by name.
fn plans() -> Vec<PathBuf> {
    let files = fs::read_dir(root().join("bench-harness/plans")).unwrap();
    let mut paths: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths
}

fn name(plan: &Path) -> &str {
    plan.file_stem().unwrap().to_str().unwrap()
}

/// Runs a script of the repository with Python, which needs no packages for it. `None` if there is no Python.
fn figures(plan: &str, run_json: &Path) -> Option<crate::support::Outcome> {
    let script = root().join("scripts/experiment_figures.py");
    let has_python = Command::new("python3").arg("--version").output().is_ok();
    assert!(has_python || std::env::var_os("RINGMAIN_REQUIRE_PYTHON").is_none());
    has_python.then(|| run(Command::new("python3").arg(script).arg(plan).arg(run_json)))
}

/// Every plan works as it is written, here with less data. Cells may be invalid (exit code 1) where memory is short, and
/// then their figures are missing.
#[test]
fn every_plan_is_carried_out_and_has_its_figures() {
    for plan in plans() {
        let (place, name) = (Place::new(), name(&plan));
        let tiny = ["--bytes", "24M", "--repetitions", "1", "--seconds", "0.02", "--json"];
        let mut command = ringmain(["bench", "--out", "out", "--plan"]);
        let outcome = run(command.arg(&plan).args(tiny).current_dir(place.dir.path()));
        assert!(matches!(outcome.code, Some(0 | 1)), "{name}: {}", outcome.stderr);
        let printed: Value = serde_json::from_slice(&outcome.stdout).unwrap();
        assert!(!cells(&printed).is_empty(), "{name}");
        assert!(!printed["warnings"].to_string().contains("no effect"), "{name}: {printed:#}");
        let Some(figures) = figures(name, &place.path("out/run.json")) else { continue };
        assert_eq!(figures.code, Some(0), "{name}: {}", figures.stderr);
        let table = String::from_utf8(figures.stdout).unwrap();
        assert_figures(name, &table, outcome.code == Some(0));
    }
}

/// Each figure has a value if all cells are valid, except for those that few machines count.
fn assert_figures(plan: &str, table: &str, are_all_valid: bool) {
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() >= 5, "{plan}: {table}");
    for row in rows.iter().filter(|row| are_all_valid && row.contains("not measured")) {
        assert!(row.contains("dTLB") || row.contains("fault, µs"), "{plan}: {row}");
    }
}

#[test]
fn figures_of_other_names_are_refused() {
    if let Some(outcome) = figures("what-is-this", Path::new("run.json")) {
        assert_eq!(outcome.code, Some(1));
        assert!(outcome.stderr.contains("do-views-accumulate-memory"), "{}", outcome.stderr);
    }
}

/// The page has a chapter for each experiment of the script, and each plan names its own command.
#[test]
fn every_experiment_is_explained() {
    let page = fs::read_to_string(root().join("docs/experiments.md")).unwrap();
    let chapters: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("Experiment: `")?.strip_suffix('`'))
        .collect();
    let script =
        Command::new(root().join("scripts/experiments.sh")).arg("--list").output().unwrap();
    let listed = String::from_utf8(script.stdout).unwrap();
    let listed: BTreeSet<&str> = listed.lines().collect();
    assert_eq!(chapters, listed);
    for plan in plans() {
        let command = format!("ringmain bench --plan bench-harness/plans/{}.toml", name(&plan));
        assert!(fs::read_to_string(&plan).unwrap().contains(&command), "{}", plan.display());
        assert!(page.contains(&command), "{command} is missing in docs/experiments.md");
        assert!(listed.contains(name(&plan)), "{}", plan.display());
    }
}

/// Without arguments a plan asks for what its file says.
#[test]
fn every_plan_is_understood() {
    for plan in plans() {
        let printed =
            run(ringmain(["bench", "--print-plan", "--plan"]).arg(&plan)).stdout_of_success();
        let whole: toml::Table = toml::from_str(str::from_utf8(&printed).unwrap()).unwrap();
        let written: toml::Table = toml::from_str(&fs::read_to_string(&plan).unwrap()).unwrap();
        for key in ["workloads", "backends", "caches", "repetitions"] {
            assert_eq!(whole[key], written[key], "{key} of {}", plan.display());
        }
    }
}
