//! The choice of `auto`, and the reason.

use std::path::PathBuf;

use crate::{BackendKind, Error, Lacking};

/// The choice of `auto`, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct AutoReport {
    /// The backend that reads.
    pub choice: BackendKind,
    /// Why that one.
    pub reason: String,
    /// The backends that would have been better and cannot run.
    #[cfg_attr(feature = "serde", serde(serialize_with = "serialize_rejected"))]
    pub rejected: Vec<Lacking>,
    /// The advice that was given.
    pub profile: Option<AdviceReport>,
}

impl AutoReport {
    /// The report on a choice: the reason follows from what was not possible.
    pub(crate) fn new(
        choice: BackendKind,
        rejected: Vec<Lacking>,
        advice: Option<AdviceReport>,
    ) -> Self {
        let reason = reason_for(choice, &rejected, advice.as_ref());
        Self { choice, reason, rejected, profile: advice }
    }

    /// Returns how files are read, in a sentence.
    pub(crate) fn explain(&self, routes: bool) -> String {
        let Self { choice, reason, profile, .. } = self;
        if *choice == BackendKind::Pread || profile.as_ref().is_some_and(|it| it.is_used) || !routes
        {
            return format!("all reads with `{choice}`: {reason}");
        }
        format!(
            "data in the page cache is copied from there with `pread`, and other data is read from \
             the device with `{choice}`: {reason}"
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
    /// The measurement, or why the advice was not followed.
    pub reason: String,
}

/// A backend that `auto` cannot take.
pub(super) fn rejected(backend: BackendKind, error: &Error) -> Lacking {
    Lacking { what: backend.name(), reason: error.why() }
}

/// The JSON of `rejected` calls the backend `backend`.
#[cfg(feature = "serde")]
fn serialize_rejected<S: serde::Serializer>(
    rejected: &[Lacking],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(serde::Serialize)]
    struct Rejected<'a> {
        backend: &'a str,
        reason: &'a str,
    }
    let rejected = rejected.iter().map(|it| Rejected { backend: it.what, reason: &it.reason });
    serializer.collect_seq(rejected)
}

fn reason_for(choice: BackendKind, rejected: &[Lacking], advice: Option<&AdviceReport>) -> String {
    let what = match (choice, advice) {
        (_, Some(AdviceReport { path, is_used: true, reason })) => {
            return format!("the profile {} says {reason}", path.display());
        }
        (BackendKind::Uring, _) => "batched O_DIRECT reads are the fastest way to cold data",
        (BackendKind::Direct, _) => {
            "O_DIRECT reads by several threads are the next fastest way to cold data"
        }
        _ => "positional reads work everywhere",
    };
    let text = rejected.iter().fold(what.to_owned(), |text, Lacking { what, reason }| {
        format!("{text}; `{what}` cannot be used: {reason}")
    });
    match advice {
        Some(AdviceReport { path, reason, .. }) => {
            format!("{text}; the profile {} is not used: {reason}", path.display())
        }
        None => text,
    }
}
