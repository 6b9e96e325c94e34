//! The parameters of a plan that only some workloads have.

use super::variant::check_variants;
use super::{ALL, Workload};
use crate::failure::Failure;
use crate::plan::Plan;

/// A parameter of a plan that some workloads do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    BlockSize,
    Batch,
    Window,
    SampleSize,
    Fio,
    RecordedTimes,
}

impl Parameter {
    const ALL: [Self; 6] = [
        Self::BlockSize,
        Self::Batch,
        Self::Window,
        Self::SampleSize,
        Self::Fio,
        Self::RecordedTimes,
    ];

    /// Returns its option on the command line.
    fn option(self) -> &'static str {
        match self {
            Self::BlockSize => "--block-size",
            Self::Batch => "--batch",
            Self::Window => "--window",
            Self::SampleSize => "--sample-size",
            Self::Fio => "--with-fio",
            Self::RecordedTimes => "--recorded-times",
        }
    }

    fn is_set(self, plan: &Plan) -> bool {
        match self {
            Self::BlockSize => !plan.block_bytes.is_empty(),
            Self::Batch => !plan.batches.is_empty(),
            Self::Window => !plan.window_bytes.is_empty(),
            Self::SampleSize => plan.data.sample_bytes.is_some(),
            Self::Fio => plan.with_fio,
            Self::RecordedTimes => plan.recorded_times,
        }
    }
}

/// Returns an error for a parameter that no workload has, and a note for each that some do not have.
pub(crate) fn check_parameters(
    plan: &Plan,
    workloads: &[&dyn Workload],
) -> Result<Vec<String>, Failure> {
    let mut notes: Vec<String> = check_variants(plan, workloads)?.into_iter().collect();
    for parameter in Parameter::ALL.into_iter().filter(|parameter| parameter.is_set(plan)) {
        let option = parameter.option();
        let deaf: Vec<&str> = workloads
            .iter()
            .filter(|workload| !workload.takes(parameter))
            .map(|workload| workload.name())
            .collect();
        if deaf.len() == workloads.len() {
            let takers = ALL.iter().filter(|workload| workload.takes(parameter));
            let takers: Vec<String> =
                takers.map(|workload| format!("`{}`", workload.name())).collect();
            let message = format!(
                "`{option}` has no effect on {}; it is for {}",
                deaf.join(", "),
                takers.join(", ")
            );
            return Err(Failure::Usage { message });
        }
        if !deaf.is_empty() {
            notes.push(format!("`{option}` has no effect on {}", deaf.join(", ")));
        }
    }
    Ok(notes)
}

/// Returns an error if the depth has no effect on any backend of the plan, and a note if it has none on
/// some. A plan without backends takes all that work.
pub(crate) fn check_depth(plan: &Plan) -> Result<Option<String>, Failure> {
    let deaf = plan.backends.iter().filter(|backend| !backend.takes_depth());
    let deaf: Vec<String> = deaf.map(ToString::to_string).collect();
    if plan.depths.is_empty() || deaf.is_empty() {
        return Ok(None);
    }
    let text = format!("`--depth` has no effect on {}", deaf.join(", "));
    if deaf.len() < plan.backends.len() || plan.with_fio {
        let cells = if deaf.len() == 1 { "its cells are" } else { "their cells are" };
        let once = format!("{cells} measured once and shown at each depth");
        return Ok(Some(if plan.depths.len() > 1 { format!("{text}: {once}") } else { text }));
    }
    let takers = "it is for `uring`, `tokio-uring`, `direct`, `auto` and fio";
    Err(Failure::Usage { message: format!("{text}; {takers}") })
}
