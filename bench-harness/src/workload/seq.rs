//! A scan: every block once, from the start to the end.

use super::blocks::Blocks;
use super::{Job, JobSpec, Parameter, Workload, combinations};
use crate::failure::Failure;
use crate::plan::Plan;
use crate::result::Setting;

/// The workload `seq`.
#[derive(Debug)]
pub(super) struct Seq;

impl Workload for Seq {
    fn name(&self) -> &'static str {
        "seq"
    }

    fn about(&self) -> &'static str {
        "scans a file from start to end, eight blocks of 1 MiB at a time"
    }

    fn takes(&self, parameter: Parameter) -> bool {
        matches!(parameter, Parameter::BlockSize | Parameter::Batch | Parameter::Fio)
    }

    fn settings(&self, plan: &Plan) -> Vec<Setting> {
        combinations(plan, &[(1 << 20, 8)])
    }

    fn open(&self, job: &JobSpec<'_>) -> Result<Box<dyn Job>, Failure> {
        Ok(Box::new(Blocks::open(job, false)?))
    }
}
