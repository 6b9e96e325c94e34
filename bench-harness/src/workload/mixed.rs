//! Random reads of a file that is half in the page cache.

use super::blocks::Blocks;
use super::{Job, JobSpec, Workload, combinations};
use crate::failure::Failure;
use crate::plan::Plan;
use crate::result::{CacheState, Setting};

/// The workload `mixed`.
#[derive(Debug)]
pub(super) struct Mixed;

impl Workload for Mixed {
    fn name(&self) -> &'static str {
        "mixed"
    }

    fn about(&self) -> &'static str {
        "reads blocks of 64 KiB in random order, 32 at a time, half of the file warm"
    }

    fn settings(&self, plan: &Plan) -> Vec<Setting> {
        combinations(plan, &[(64 << 10, 32)])
    }

    fn caches(&self, plan: &Plan) -> Vec<CacheState> {
        plan.caches.iter().copied().filter(|cache| *cache == CacheState::Mixed).collect()
    }

    fn is_scattered(&self) -> bool {
        true
    }

    fn open(&self, job: &JobSpec<'_>) -> Result<Box<dyn Job>, Failure> {
        Ok(Box::new(Blocks::open(job, true)?))
    }
}
