//! The settings in which a workload is measured.

use super::variant::{self, Variant};
use crate::plan::Plan;
use crate::result::Setting;

/// Returns every combination of the block sizes, batches, depths, processes, threads and rates of a plan. The defaults
/// are pairs of a block size and a batch.
pub(super) fn combinations(plan: &Plan, defaults: &[(u64, u32)]) -> Vec<Setting> {
    let mut blocks: Vec<(u64, u32)> = Vec::new();
    for (block, batch) in defaults {
        let own_blocks: Vec<u64> = plan.block_bytes.iter().map(|bytes| bytes.0).collect();
        let own_blocks = if own_blocks.is_empty() { vec![*block] } else { own_blocks };
        let own_batches = if plan.batches.is_empty() { vec![*batch] } else { plan.batches.clone() };
        for block in own_blocks {
            for batch in &own_batches {
                blocks.push((block, *batch));
            }
        }
    }
    blocks.sort_unstable();
    blocks.dedup();
    let depths: Vec<_> = if plan.depths.is_empty() {
        vec![None]
    } else {
        plan.depths.iter().copied().map(Some).collect()
    };
    let rates: Vec<_> = if plan.rates_per_s.is_empty() {
        vec![None]
    } else {
        plan.rates_per_s.iter().copied().map(Some).collect()
    };
    let more_than_one = |count: u32| Some(count).filter(|count| *count > 1);
    let mut settings = Vec::new();
    for (block_bytes, batch) in blocks {
        for depth in &depths {
            for (processes, threads) in readers(plan) {
                settings.extend(rates.iter().map(|rate| Setting {
                    block_bytes: Some(block_bytes),
                    batch: Some(batch),
                    depth: *depth,
                    processes: more_than_one(processes),
                    threads: Some(threads),
                    window_bytes: None,
                    rate_per_s: *rate,
                    epochs: more_than_one(plan.epochs),
                    variant: None,
                }));
            }
        }
    }
    settings
}

/// Returns every number of processes with every number of threads in each.
fn readers(plan: &Plan) -> impl Iterator<Item = (u32, u32)> {
    let processes = plan.processes.iter();
    processes.flat_map(|processes| plan.threads.iter().map(|threads| (*processes, *threads)))
}

/// Returns every combination for a workload whose reads have a fixed size, in each of its variants that the plan
/// chooses.
pub(super) fn in_variants(plan: &Plan, batch: u32, variants: &[Variant]) -> Vec<Setting> {
    let plan = Plan { block_bytes: Vec::new(), ..plan.clone() };
    let chosen = variant::chosen(&plan, variants);
    let mut settings = Vec::new();
    for setting in combinations(&plan, &[(0, batch)]) {
        settings.extend(chosen.iter().map(|name| Setting {
            block_bytes: None,
            variant: Some((*name).to_owned()),
            ..setting.clone()
        }));
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::size::Bytes;

    #[test]
    fn a_plan_has_every_combination() {
        let plan = Plan {
            block_bytes: vec![Bytes(4096), Bytes(65536)],
            depths: vec![1, 8],
            threads: vec![1, 2],
            ..Plan::default()
        };
        assert_eq!(combinations(&plan, &[(4096, 1), (4096, 128)]).len(), 2 * 2 * 2 * 2);
        assert_eq!(combinations(&Plan::default(), &[(4096, 1), (4096, 128)]).len(), 2);
        let processes = Plan { processes: vec![1, 2, 4], threads: vec![1, 2], ..Plan::default() };
        let found = combinations(&processes, &[(4096, 1)]);
        let found: Vec<_> = found.iter().map(|it| (it.processes, it.threads.unwrap())).collect();
        let expected =
            [(None, 1), (None, 2), (Some(2), 1), (Some(2), 2), (Some(4), 1), (Some(4), 2)];
        assert_eq!(found, expected);
        let one_batch = Plan { batches: vec![7], ..Plan::default() };
        assert_eq!(combinations(&one_batch, &[(4096, 1), (4096, 128)]).len(), 1);
    }
}
