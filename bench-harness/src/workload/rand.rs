//! Random reads: every block once, in an order that read-ahead cannot predict.

use super::blocks::Blocks;
use super::{Job, JobSpec, Parameter, Workload, combinations};
use crate::failure::Failure;
use crate::plan::Plan;
use crate::result::Setting;

/// The workload `rand`.
#[derive(Debug)]
pub(super) struct Rand;

impl Workload for Rand {
    fn name(&self) -> &'static str {
        "rand"
    }

    fn about(&self) -> &'static str {
        "reads blocks of 4 KiB in random order, one by one and 128 at a time"
    }

    fn takes(&self, parameter: Parameter) -> bool {
        matches!(parameter, Parameter::BlockSize | Parameter::Batch | Parameter::Fio)
    }

    fn settings(&self, plan: &Plan) -> Vec<Setting> {
        combinations(plan, &[(4096, 1), (4096, 128)])
    }

    fn is_scattered(&self) -> bool {
        true
    }

    fn open(&self, job: &JobSpec<'_>) -> Result<Box<dyn Job>, Failure> {
        Ok(Box::new(Blocks::open(job, true)?))
    }
}
