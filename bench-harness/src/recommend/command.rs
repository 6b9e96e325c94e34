//! `ringmain recommend` on the command line.

use std::io::Write;
use std::path::{Path, PathBuf};

use ringmain::Profile;
use ringmain_backends::{Access, BackendKind, BackendOptions, CachePolicy, PageSize, Residency};

use super::standing::is_auto;
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
    let kept = save_to.map(|path| keep(&run, overall, path)).transpose()?;
    let text = render(&recommendation, args.json, kept.as_ref())?;
    out.write_all(text.as_bytes()).map_err(Failure::Output)
}

/// What `--save` did.
enum Kept {
    /// The choice is in this file.
    Saved(PathBuf),
    /// `auto` is the choice, and needs no profile. This one named a fixed backend and is gone.
    Removed(PathBuf),
    /// `auto` is the choice, and there was no profile.
    NotNeeded,
}

/// Has `auto` go by the recommendation from now on.
fn keep(run: &Run, overall: &Overall, path: PathBuf) -> Result<Kept, Failure> {
    if is_auto(&overall.way) {
        return remove_profile(path);
    }
    let saved = profile(run, overall)?.save(&path);
    saved.map_err(|source| Failure::WriteFile { path: path.clone(), source })?;
    Ok(Kept::Saved(path))
}

/// Removes a profile, so that `auto` chooses by itself. `auto` ignores a file that is no profile, and
/// it stays.
fn remove_profile(path: PathBuf) -> Result<Kept, Failure> {
    if Profile::read(&path).is_err() {
        return Ok(Kept::NotNeeded);
    }
    match std::fs::remove_file(&path) {
        Ok(()) => Ok(Kept::Removed(path)),
        Err(source) => Err(Failure::WriteFile { path, source }),
    }
}

fn usage(message: String) -> Failure {
    Failure::Usage { message }
}

fn render(
    recommendation: &Recommendation,
    is_json: bool,
    kept: Option<&Kept>,
) -> Result<String, Failure> {
    if is_json {
        let (saved_to, removed) = match kept {
            Some(Kept::Saved(path)) => (Some(path), None),
            Some(Kept::Removed(path)) => (None, Some(path)),
            Some(Kept::NotNeeded) | None => (None, None),
        };
        let path = |path: Option<&PathBuf>| path.map(|path| path.to_string_lossy().into_owned());
        let mut json = serde_json::to_value(recommendation)?;
        json["saved_to"] = path(saved_to).into();
        json["removed_profile"] = path(removed).into();
        return Ok(serde_json::to_string_pretty(&json)? + "\n");
    }
    let mut lines = recommendation.lines();
    lines.extend(kept.map(|kept| match kept {
        Kept::Saved(path) => format!("saved to {}", path.display()),
        Kept::Removed(path) => format!("auto needs no profile: removed {}", path.display()),
        Kept::NotNeeded => "auto needs no profile: nothing was saved".into(),
    }));
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
    if choice.kind == BackendKind::Memory {
        return Err(usage(format!("`{name}` is no choice for `auto` to take: nothing was saved")));
    }
    let mut options = BackendOptions::default();
    choice.apply(&mut options);
    let started_at = &run.started_at;
    Ok(Profile {
        depth_max: overall.way.depth.map(|depth| depth as usize),
        cache_policy: Some(options.cache_policy).filter(|policy| *policy != CachePolicy::default()),
        residency: Some(options.residency).filter(|residency| *residency != Residency::default()),
        page_size: Some(options.page_size).filter(|page_size| *page_size != PageSize::default()),
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
