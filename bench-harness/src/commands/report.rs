//! `ringmain report`: writes the report and other files from a result.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::cli::ReportArgs;
use crate::comparison::Comparison;
use crate::failure::Failure;
use crate::recommend::recommend;
use crate::report::{
    Csv, Exporter, HistogramLog, Markdown, Report, comparison_page, distributions,
};
use crate::result::Run;
use crate::result::load::load_run;
use crate::system::whole_file::{refuse_existing, write_whole};
use crate::trace::Trace;

/// A file to write.
struct Output {
    path: PathBuf,
    text: String,
    /// The kind of output that the user named: a file or a folder. `None` for the report beside the result, which may be
    /// written again.
    named: Option<&'static str>,
}

/// Renders every file before it writes the first one, so that a damaged result leaves nothing behind.
pub(crate) fn run(args: &ReportArgs, out: &mut File) -> Result<(), Failure> {
    let run = load_run(&args.run)?;
    let (outputs, results) = match &args.second {
        None => (render(args, &run)?, vec![args.run.as_path()]),
        Some(second) => {
            (vec![render_both(args, &run, second)?], vec![args.run.as_path(), second.as_path()])
        }
    };
    check_paths(&results, &outputs)?;
    if let Some(dir) = &args.hgrm {
        fs::create_dir_all(dir)
            .map_err(|source| Failure::WriteFile { path: dir.clone(), source })?;
    }
    for Output { path, text, .. } in &outputs {
        write_whole(path, text)?;
    }
    let (last, others) = match outputs.as_slice() {
        [] => return Ok(()),
        [Output { path, .. }, rest @ ..] => (path, rest.len()),
    };
    let message = match others {
        0 => format!("wrote {}\n", last.display()),
        others => format!("wrote {} and {others} more\n", last.display()),
    };
    out.write_all(message.as_bytes()).map_err(Failure::Output)
}

fn render(args: &ReportArgs, run: &Run) -> Result<Vec<Output>, Failure> {
    let log: &dyn Exporter = &HistogramLog;
    let trace = Trace::of_run(run);
    let report = Report { recommendation: &recommend(run).headlines(), trace: trace.as_ref() };
    let report_path = report_path(args);
    let named = Some("file");
    let wanted: [(Option<&Path>, &dyn Exporter, Option<&str>); 4] = [
        (report_path.as_deref(), &report, named.filter(|_| args.output.is_some())),
        (args.csv.as_deref(), &Csv, named),
        (args.markdown.as_deref(), &Markdown, named),
        (args.hlog.as_deref(), log, named),
    ];
    let mut outputs = Vec::new();
    for (path, exporter, named) in wanted {
        if let Some(path) = path {
            let text = exporter.export(run).map_err(|failure| in_result(&args.run, failure))?;
            outputs.push(Output { path: path.to_owned(), text, named });
        }
    }
    if let Some(dir) = &args.hgrm {
        let texts = distributions(run).map_err(|failure| in_result(&args.run, failure))?;
        let texts = texts.into_iter();
        outputs.extend(texts.map(|(name, text)| {
            let path = dir.join(name);
            Output { path, text, named: Some("folder") }
        }));
    }
    Ok(outputs)
}

/// Returns the page that shows two runs side by side.
fn render_both(args: &ReportArgs, first: &Run, second: &Path) -> Result<Output, Failure> {
    let both = Comparison::of(first, &load_run(second)?);
    // Without a common cell there is nothing to show.
    both.verdict()?;
    let default = || second.with_file_name("comparison.html");
    Ok(Output {
        path: args.output.clone().unwrap_or_else(default),
        text: comparison_page(&both),
        named: args.output.is_some().then_some("file"),
    })
}

/// Returns an error if an output would overwrite a result, another output, or a file that is not a report beside a result.
fn check_paths(results: &[&Path], outputs: &[Output]) -> Result<(), Failure> {
    let place = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut taken: Vec<PathBuf> = results.iter().map(|result| place(result)).collect();
    for Output { path, named, .. } in outputs {
        let at = place(path);
        // A device such as /dev/null can take several outputs.
        if taken.contains(&at) && !is_device(&at) {
            let path = path.display();
            let message = format!("{path} would be overwritten; name another file for each output");
            return Err(Failure::Usage { message });
        }
        if let Some(other) = named {
            refuse_existing(path, other)?;
        }
        taken.push(at);
    }
    Ok(())
}

fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

fn report_path(args: &ReportArgs) -> Option<PathBuf> {
    let only_others = [&args.csv, &args.markdown, &args.hgrm, &args.hlog];
    match &args.output {
        Some(path) => Some(path.clone()),
        None if only_others.iter().any(|other| other.is_some()) => None,
        None => Some(args.run.with_file_name("report.html")),
    }
}

/// Adds the path of the result to the error of a damaged histogram.
fn in_result(path: &Path, failure: Failure) -> Failure {
    match failure {
        Failure::Histogram(error) => {
            Failure::Run { path: path.to_owned(), message: error.to_string() }
        }
        other => other,
    }
}
