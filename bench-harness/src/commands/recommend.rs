//! `ringmain recommend` on the command line.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ringmain::Profile;
use ringmain_backends::{Access, BackendKind, BackendOptions, CachePolicy, PageSize, Residency};

use super::bench::run_for_recommendation;
use crate::cli::RecommendArgs;
use crate::failure::Failure;
use crate::recommend::{Certainty, Overall, Question, Recommendation, recommend_for};
use crate::result::load::load_run;
use crate::result::{Cell, Run, trust};
use crate::text::size::Bytes;

pub(crate) fn run(args: &RecommendArgs, out: &mut impl Write) -> Result<(), Failure> {
    if let Some(path) = &args.undo {
        return undo(path.as_deref(), out);
    }
    // Fail before a benchmark that takes minutes.
    let save_to =
        args.save.as_ref().map(|path| profile_path(path.as_deref(), "--save")).transpose()?;
    let only_for = args.only_for.as_deref().map(lasting_path).transpose()?;
    save_to.as_deref().map_or(Ok(()), |path| refuse_other_scope(path, only_for.as_deref()))?;
    let (run, question) = match &args.from {
        Some(path) => {
            let run = load_run(path)?;
            let question = args.question();
            question.check(&run)?;
            (run, question)
        }
        // The plan already selects the use.
        None => (run_for_recommendation(args.measured.to_plan()?)?, Question::default()),
    };
    let recommendation = recommend_for(&run, &question);
    if recommendation.groups.is_empty() {
        return Err(usage(recommendation.sentence));
    }
    let (kept, refusal) = match (save_to, to_save(&recommendation)) {
        (None, _) => (None, None),
        (Some(path), Ok(overall)) => (Some(keep(&run, overall, path, only_for)?), None),
        (Some(_), Err(why)) => (None, Some(usage(format!("{why}: nothing was saved")))),
    };
    let text = render(&recommendation, args.json, kept.as_ref())?;
    out.write_all(text.as_bytes()).map_err(Failure::Output)?;
    match refusal {
        Some(refusal) => Err(refusal),
        None if args.from.is_none() => trust::verdict(&run),
        None => Ok(()),
    }
}

/// A choice is saved only if every cell has this many valid repetitions. Fewer have no interval, or one
/// that says little.
const REPETITIONS_MIN: usize = 3;

/// Returns the choice that can be saved, or why there is none. `auto` follows a profile until it is
/// removed, so a choice is saved only if all backends were compared.
fn to_save(recommendation: &Recommendation) -> Result<&Overall, String> {
    let Some(overall) = &recommendation.overall else {
        return Err(recommendation.sentence.clone());
    };
    if let Some(other) = recommendation.not_compared.iter().find(|other| other.lacks_numbers) {
        return Err(format!("{} is not compared, because it {}", other.way, other.reason));
    }
    let repetitions = recommendation.repetitions_min;
    if repetitions < REPETITIONS_MIN {
        return Err(format!(
            "the repetitions are too few: a cell has {repetitions}, and a choice is saved from \
             {REPETITIONS_MIN} or more; measure again with `--repetitions 5`"
        ));
    }
    match overall.certainty {
        Certainty::Clear | Certainty::Noise => Ok(overall),
        Certainty::Only if recommendation.not_compared.is_empty() => {
            Err(format!("only {} was measured", overall.way))
        }
        Certainty::Only => Err(format!("there is nothing to compare {} with", overall.way)),
        Certainty::Unsettled => {
            Err("the repetitions are too few or spread too widely to be sure".into())
        }
    }
}

impl RecommendArgs {
    /// Returns what the arguments say about the user's use.
    fn question(&self) -> Question {
        Question {
            caches: self.measured.cache.clone().unwrap_or_default(),
            workloads: self.measured.workloads.clone().unwrap_or_default(),
            memory_limit_bytes: self.measured.memory_limit.map(|Bytes(bytes)| bytes),
        }
    }
}

impl Question {
    /// Returns an error if the run has no cell of that use.
    fn check(&self, run: &Run) -> Result<(), Failure> {
        let has = |is_meant: &dyn Fn(&Cell) -> bool| run.cells.iter().any(is_meant);
        let missing_workload =
            self.workloads.iter().find(|name| !has(&|cell| cell.workload == **name));
        if let Some(name) = missing_workload {
            return Err(usage(format!("the result has no cell of the workload `{name}`")));
        }
        match self.caches.iter().find(|cache| !has(&|cell| cell.cache == **cache)) {
            Some(cache) => {
                Err(usage(format!("the result has no cell with the cache state {cache}")))
            }
            None => Ok(()),
        }
    }
}

/// `--undo`: `auto` chooses by itself again.
fn undo(asked: Option<&Path>, out: &mut impl Write) -> Result<(), Failure> {
    let text = match remove_profile(profile_path(asked, "--undo")?)? {
        Kept::Removed(path) => format!("removed {}\n", path.display()),
        Kept::Saved(_) | Kept::NotNeeded => "there is no profile: nothing was removed\n".into(),
    };
    out.write_all(text.as_bytes()).map_err(Failure::Output)
}

/// The effect of `--save`.
enum Kept {
    /// The choice is in this file.
    Saved(PathBuf),
    /// `auto` is the choice and needs no profile, so this profile was removed.
    Removed(PathBuf),
    /// `auto` is the choice, and there was no profile.
    NotNeeded,
}

/// Saves the recommendation for `auto`.
fn keep(
    run: &Run,
    overall: &Overall,
    path: PathBuf,
    only_for: Option<PathBuf>,
) -> Result<Kept, Failure> {
    if overall.way.is_auto() {
        return remove_profile(path);
    }
    if path.exists() && Profile::read(&path).is_err() {
        let path = path.display();
        return Err(usage(format!(
            "{path} exists and is not a profile: nothing was saved; remove it, or name another file"
        )));
    }
    let saved = Profile { only_for, ..profile(run, overall)? };
    check_filesystem(&saved)?;
    let saved = saved.save(&path);
    saved.map_err(|source| Failure::WriteFile { path: path.clone(), source })?;
    Ok(Kept::Saved(path))
}

/// Returns an error if the profile is for other files, because a profile holds one choice.
fn refuse_other_scope(path: &Path, only_for: Option<&Path>) -> Result<(), Failure> {
    let Ok(found) = Profile::read(path) else { return Ok(()) };
    let files = match &found.only_for {
        found if found.as_deref() == only_for => return Ok(()),
        Some(place) => place.display().to_string(),
        None => "all files".into(),
    };
    let path = path.display();
    Err(usage(format!(
        "{path} has a choice for {files}: nothing was saved; remove it with --undo, or name another file: \
         `--save PATH`"
    )))
}

/// Returns an error if a profile would never apply, because its files are not where it was measured.
fn check_filesystem(profile: &Profile) -> Result<(), Failure> {
    let device = |path: &Option<PathBuf>| path.as_ref()?.metadata().ok().map(|found| found.dev());
    match (device(&profile.only_for), device(&profile.measured_on)) {
        (Some(place), Some(measured)) if place != measured => Err(usage(
            "the files of --for are on another filesystem than the one that was measured: nothing was saved"
                .into(),
        )),
        _ => Ok(()),
    }
}

/// Returns the path of a file or folder from the root, without links.
fn lasting_path(path: &Path) -> Result<PathBuf, Failure> {
    let found = path.canonicalize();
    let found = found.map_err(|source| Failure::ReadFile { path: path.to_owned(), source })?;
    match found.to_str() {
        Some(_) => Ok(found),
        None => {
            Err(usage(format!("{}: a profile can hold only names that are UTF-8", path.display())))
        }
    }
}

/// Removes a profile, so that `auto` chooses by itself. Leaves a file that is not a profile, since
/// `auto` ignores it.
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

/// Returns the profile that the option names, or the one that `auto` looks for.
fn profile_path(asked: Option<&Path>, option: &str) -> Result<PathBuf, Failure> {
    let path = asked.map(Path::to_owned).or_else(Profile::user_path);
    path.ok_or_else(|| {
        usage(format!(
            "RINGMAIN_PROFILE is off, or there is no home folder; name a file: `{option} PATH`"
        ))
    })
}

/// Returns the choice as a profile.
fn profile(run: &Run, overall: &Overall) -> Result<Profile, Failure> {
    let name = &overall.way.backend;
    let choice = overall
        .way
        .choice()
        .ok_or_else(|| usage(format!("this version of ringmain has no backend `{name}`")))?;
    if choice.kind == BackendKind::Memory {
        return Err(usage(format!("`auto` cannot use `{name}`: nothing was saved")));
    }
    let mut options = BackendOptions::default();
    choice.apply(&mut options);
    let mut depth_max = overall.way.depth.map(|depth| depth as usize);
    if choice.kind == BackendKind::Direct {
        // Its depth is its number of threads, which a profile does not hold.
        if depth_max.take().is_some_and(|threads| threads < options.threads_max) {
            return Err(usage(format!("a profile cannot hold {}: nothing was saved", overall.way)));
        }
    }
    let started_at = &run.started_at;
    Ok(Profile {
        depth_max,
        cache_policy: Some(options.cache_policy).filter(|policy| *policy != CachePolicy::default()),
        residency: Some(options.residency).filter(|residency| *residency != Residency::default()),
        page_size: Some(options.page_size).filter(|page_size| *page_size != PageSize::default()),
        access: Some(options.access).filter(|access| *access != Access::default()),
        measured_on: Some(measured_on(run)?),
        reason: Some(format!("{} (measured {started_at})", overall.reason)),
        ..Profile::new(choice.kind)
    })
}

/// Returns a lasting path on the filesystem that was measured: its mount point, or the nearest
/// existing folder above the data, which may have been temporary.
fn measured_on(run: &Run) -> Result<PathBuf, Failure> {
    let storage = &run.host.storage;
    let lasting = match &storage.mount_point {
        Some(mount_point) => Some(mount_point.as_path()),
        None => storage.path.ancestors().find(|path| path.exists()),
    };
    let named = lasting.filter(|path| path.is_absolute() && path.to_str().is_some());
    named.map(Path::to_owned).ok_or_else(|| {
        let path = storage.path.display();
        usage(format!("the result does not say which filesystem {path} was on: nothing was saved"))
    })
}
