//! `ringmain bench`: from the plan to the report.

use std::io::Write;

use crate::cli::BenchArgs;
use crate::failure::Failure;
use crate::plan::{Plan, render_plan};
use crate::report::{Exporter, Terminal};
use crate::result::{Run, RunFolder, Skipped, trust};
use crate::run::session::measure;
use crate::text::progress::say;

/// Measures, prints the tables and the recommendation, and returns an error for invalid cells.
pub(crate) fn run(args: &BenchArgs, out: &mut impl Write) -> Result<(), Failure> {
    let plan = args.measured.to_plan()?;
    if args.print_plan {
        return out.write_all(render_plan(&plan)?.as_bytes()).map_err(Failure::Output);
    }
    let (run, folder) = measure(plan, args.out.as_deref(), args.corrupt)?;
    if args.json {
        serde_json::to_writer(&mut *out, &run)?;
        writeln!(out).map_err(Failure::Output)?;
    } else {
        print_result(&run, &folder, out)?;
    }
    trust::verdict(&run)
}

/// Prints the tables, the warnings, the recommendation and the paths of the result.
fn print_result(run: &Run, folder: &RunFolder, out: &mut impl Write) -> Result<(), Failure> {
    let mut text = Terminal.export(run)?;
    for Skipped { backend, reason } in &run.skipped {
        text += &format!("\nnot measured: {backend}: {reason}\n");
    }
    text += "\n";
    for line in crate::recommend::recommend(run).lines() {
        text += &format!("{line}\n");
    }
    text += &format!(
        "\nresult: {}\nreport: {}\n",
        folder.run_json().display(),
        folder.report_html().display()
    );
    out.write_all(text.as_bytes()).map_err(Failure::Output)?;
    if !run.complete {
        say("the run was interrupted: these are the cells that were measured");
    }
    Ok(())
}

/// Measures for `recommend` when it has no result to use.
pub(crate) fn run_for_recommendation(plan: Plan) -> Result<Run, Failure> {
    let (run, folder) = measure(plan, None, None)?;
    trust::same_bytes(&run)?;
    if !run.complete {
        return Err(Failure::Interrupted);
    }
    say(&format!("measured: {}", folder.run_json().display()));
    Ok(run)
}
