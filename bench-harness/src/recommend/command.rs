//! `ringmain recommend` on the command line.

use std::io::Write;
use std::path::{Path, PathBuf};

use ringmain_backends::{Access, BackendKind, BackendOptions, CachePolicy, Profile, Residency};

use super::{Overall, Recommendation, recommend};
use crate::bench::run_for_recommendation;
use crate::cli::RecommendArgs;
use crate::failure::Failure;
use crate::load::load_run;
use crate::result::Run;

pub(crate) fn run(args: &RecommendArgs, out: &mut impl Write) -> Result<(), Failure> {
    // Before a benchmark that takes minutes.
    let save_to = args.save.as_ref().map(|path| profile_path(path.as_deref())).transpose()?;
    let run = match &args.from {
        Some(path) => load_run(path)?,
        None => run_for_recommendation(args.measured.to_plan()?)?,
    };
    let recommendation = recommend(&run);
    let Some(overall) = &recommendation.overall else {
        return Err(usage(recommendation.sentence.clone()));
    };
    if let Some(path) = &save_to {
        let saved = profile(&run, overall)?.save(path);
        saved.map_err(|source| Failure::WriteFile { path: path.clone(), source })?;
    }
    let text = render(&recommendation, args.json, save_to.as_deref())?;
    out.write_all(text.as_bytes()).map_err(Failure::Output)
}

fn usage(message: String) -> Failure {
    Failure::Usage { message }
}

fn render(
    recommendation: &Recommendation,
    is_json: bool,
    saved_to: Option<&Path>,
) -> Result<String, Failure> {
    if is_json {
        let mut json = serde_json::to_value(recommendation)?;
        json["saved_to"] = serde_json::to_value(saved_to.map(|path| path.to_string_lossy()))?;
        return Ok(serde_json::to_string_pretty(&json)? + "\n");
    }
    let mut lines = recommendation.lines();
    lines.extend(saved_to.map(|path| format!("saved to {}", path.display())));
    Ok(lines.join("\n") + "\n")
}

/// Where `--save` writes to.
fn profile_path(asked: Option<&Path>) -> Result<PathBuf, Failure> {
    let path = asked.map(Path::to_owned).or_else(Profile::user_path);
    path.ok_or_else(|| {
        usage(
            "RINGMAIN_PROFILE is off, or there is no home to save in: name one, `--save PATH`"
                .into(),
        )
    })
}

/// The choice as `auto` reads it.
fn profile(run: &Run, overall: &Overall) -> Result<Profile, Failure> {
    let name = &overall.way.backend;
    let choice = overall
        .way
        .choice()
        .ok_or_else(|| usage(format!("`{name}` is no backend of this version")))?;
    if matches!(choice.kind, BackendKind::Auto | BackendKind::Memory) {
        return Err(usage(format!("`{name}` is no choice for `auto` to take: nothing was saved")));
    }
    let mut options = BackendOptions::default();
    choice.apply(&mut options);
    let started_at = &run.started_at;
    Ok(Profile {
        depth_max: overall.way.depth.map(|depth| depth as usize),
        cache_policy: Some(options.cache_policy).filter(|policy| *policy != CachePolicy::default()),
        residency: Some(options.residency).filter(|residency| *residency != Residency::default()),
        access: Some(options.access).filter(|access| *access != Access::default()),
        measured_on: Some(measured_on(run)?),
        reason: Some(format!("{} (measured {started_at})", overall.reason)),
        ..Profile::new(choice.kind)
    })
}

/// A path that will still be there tomorrow on the filesystem that was measured: where it is
/// mounted, or the nearest folder above the data, which itself may have been temporary.
fn measured_on(run: &Run) -> Result<PathBuf, Failure> {
    let storage = &run.host.storage;
    let lasting = match &storage.mount_point {
        Some(mount_point) => Some(mount_point.as_path()),
        None => storage.path.ancestors().find(|path| path.exists()),
    };
    let named = lasting.filter(|path| path.is_absolute() && path.to_str().is_some());
    named.map(Path::to_owned).ok_or_else(|| {
        let path = storage.path.display();
        usage(format!("the result does not say on which filesystem {path} was: nothing to save"))
    })
}
