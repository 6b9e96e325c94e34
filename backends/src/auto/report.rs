//! What `auto` takes, and why.

use std::path::PathBuf;

use crate::{BackendKind, Error};

/// What `auto` chose, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct AutoReport {
    /// The backend that reads.
    pub choice: BackendKind,
    /// Why that one.
    pub reason: String,
    /// Those that would have been preferred and cannot run.
    pub rejected: Vec<Rejection>,
    /// The advice that was given.
    pub profile: Option<AdviceReport>,
}

impl AutoReport {
    /// How files are read, in a sentence.
    pub(super) fn explain(&self, routes: bool) -> String {
        let Self { choice, reason, profile, .. } = self;
        if *choice == BackendKind::Pread || profile.as_ref().is_some_and(|it| it.is_used) || !routes
        {
            return format!("all reads with `{choice}`: {reason}");
        }
        format!(
            "what the page cache has is copied from it with `pread`, the rest is read from the \
             device with `{choice}`: {reason}"
        )
    }
}

/// Whether advice was followed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct AdviceReport {
    /// The file that it was read from.
    pub path: PathBuf,
    /// It was followed.
    pub is_used: bool,
    /// What it says, or why it was not followed.
    pub reason: String,
}

/// A backend that `auto` could not take.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Rejection {
    /// Which.
    pub backend: BackendKind,
    /// Why not, as it said itself.
    pub reason: String,
}

pub(super) fn rejection(backend: BackendKind, error: &Error) -> Rejection {
    Rejection { backend, reason: error.why() }
}

pub(super) fn reason_for(
    choice: BackendKind,
    rejected: &[Rejection],
    advice: Option<&AdviceReport>,
) -> String {
    let what = match (choice, advice) {
        (_, Some(AdviceReport { path, is_used: true, reason })) => {
            return format!("the profile {} says {reason}", path.display());
        }
        (BackendKind::Uring, _) => "batched O_DIRECT reads reach cold data fastest",
        (BackendKind::Direct, _) => "O_DIRECT through threads comes next on cold data",
        _ => "positional reads work everywhere",
    };
    let text = rejected.iter().fold(what.to_owned(), |text, Rejection { backend, reason }| {
        format!("{text}; `{backend}` cannot be used: {reason}")
    });
    match advice {
        Some(AdviceReport { path, reason, .. }) => {
            format!("{text}; the profile {} is not used: {reason}", path.display())
        }
        None => text,
    }
}
