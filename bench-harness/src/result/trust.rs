//! Checks whether the numbers of a run can be trusted.

use std::collections::BTreeMap;

use crate::failure::Failure;
use crate::result::{CacheCheckMethod, Cell, Group, Run, is_fio};
use crate::stats::Summary;
use crate::text::format::counted;

/// Above this share of the processors' time used by other programs, numbers are doubtful.
const BUSY_SHARE_MAX: f64 = 0.10;
/// Above this share of the processors' time taken by the hypervisor, numbers are doubtful.
const STEAL_SHARE_MAX: f64 = 0.05;

/// Returns an error if backends returned different bytes, if the run was interrupted, or if cells are invalid.
pub(crate) fn verdict(run: &Run) -> Result<(), Failure> {
    same_bytes(run)?;
    if !run.complete {
        return Err(Failure::Interrupted);
    }
    match run.cells.iter().filter(|cell| !cell.valid).count() {
        0 => Ok(()),
        invalid => Err(Failure::InvalidCells { invalid, all: run.cells.len() }),
    }
}

/// Returns an error if backends returned different bytes in a group.
pub(crate) fn same_bytes(run: &Run) -> Result<(), Failure> {
    let Some((group, checksums)) = differing(run).into_iter().next() else {
        return Ok(());
    };
    let sums = checksums.into_iter().map(|(sum, names)| format_checksum(sum, names));
    let sums: Vec<String> = sums.collect();
    let message = format!(
        "{group}: backends returned different bytes, so these numbers do not count: {}",
        sums.join("; ")
    );
    Err(Failure::WrongBytes { message })
}

/// Marks the cells of groups in which backends returned different bytes as invalid.
pub(crate) fn discard_wrong_bytes(run: &mut Run) {
    let groups: Vec<Group> = differing(run).into_iter().map(|(group, _)| group).collect();
    for cell in run.cells.iter_mut().filter(|cell| groups.contains(&cell.group())) {
        cell.valid = false;
        cell.invalid_reason = Some("backends returned different bytes".into());
    }
}

/// The backends that returned each checksum.
type Checksums<'a> = BTreeMap<&'a str, Vec<&'a str>>;

/// Returns the groups in which the checksums of one repetition differ.
fn differing(run: &Run) -> Vec<(Group, Checksums<'_>)> {
    let mut groups: BTreeMap<(Group, u32), Checksums<'_>> = BTreeMap::new();
    for cell in run.cells.iter().filter(|cell| !cell.checksum.is_empty()) {
        let checksums = groups.entry((cell.group(), cell.repetition)).or_default();
        checksums.entry(&cell.checksum).or_default().push(&cell.backend);
    }
    let differing = groups.into_iter().filter(|(_, checksums)| checksums.len() > 1);
    differing.map(|((group, _), checksums)| (group, checksums)).collect()
}

/// Formats a checksum and its backends: `xxh3:0123 from pread, uring`.
fn format_checksum(checksum: &str, mut backends: Vec<&str>) -> String {
    backends.sort_unstable();
    backends.dedup();
    format!("{checksum} from {}", backends.join(", "))
}

/// Reasons to trust the numbers less.
pub(crate) fn warnings(run: &Run) -> Vec<String> {
    let mut warnings = Vec::new();
    let load = &run.host.load;
    if let Some(share) = load.busy_share.filter(|share| *share > BUSY_SHARE_MAX) {
        warnings.push(format!(
            "the machine was busy: other processes used {:.0} % of the processors' time; repeat \
             the run when it is quiet",
            share * 100.0
        ));
    }
    if let Some(share) = load.steal_share.filter(|share| *share > STEAL_SHARE_MAX) {
        warnings.push(format!(
            "the hypervisor took away {:.0} % of the processors' time",
            share * 100.0
        ));
    }
    let cpus = f64::from(run.host.cpus);
    if let Some(before) = load.load_1m_before.filter(|load| *load > cpus * 0.5) {
        warnings.push(format!("the machine was busy before the run: load average {before:.1}"));
    }
    let invalid = run.cells.iter().filter(|cell| !cell.valid);
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for cell in invalid {
        *reasons.entry(cell.invalid_reason.as_deref().unwrap_or("no reason")).or_default() += 1;
    }
    for (reason, count) in reasons {
        let are = if count == 1 { "is" } else { "are" };
        warnings.push(format!("{} {are} invalid: {reason}", counted(count, "cell")));
    }
    warnings.extend(sampled_states(run));
    warnings.extend(missed_rates(run));
    warnings.extend(spread_warning(run));
    warnings
}

/// Warns if the state of the page cache was sampled, because the kernel does not count cached pages for
/// this user.
fn sampled_states(run: &Run) -> Option<String> {
    let checks = run.cells.iter().filter(|cell| cell.valid).filter_map(|cell| cell.cache_check);
    let sampled = checks.filter(|check| check.method == CacheCheckMethod::Sampled);
    let least = sampled.max_by(|a, b| a.off_share_max().total_cmp(&b.off_share_max()))?;
    Some(format!(
        "the kernel counts the cached pages of a file only for its owner and for users who may write \
         to it, so the state of the page cache before each cell was {least}: with 95 % confidence at \
         most {:.1} % of the pages were in another state; it is unknown whether reads left the page \
         cache as it was",
        100.0 * least.off_share_max()
    ))
}

/// Warns of groups in which the repetitions spread too widely to rank backends that are close together.
pub(crate) fn spread_warning(run: &Run) -> Option<String> {
    let mut wide = Vec::new();
    for (group, backends) in run.grouped() {
        let spreads = backends.iter().filter(|(name, _)| !is_fio(name));
        let spreads = spreads.filter_map(|(name, cells)| Some((name, spread(&group, cells)?)));
        if let Some((name, spread)) = spreads.max_by(|a, b| a.1.total_cmp(&b.1)) {
            wide.push(format!("{group} ({name}: {:.0} %)", 100.0 * spread));
        }
    }
    (!wide.is_empty()).then(|| {
        format!(
            "repetitions spread too widely to rank backends that differ by less in {}; more \
             repetitions, more `--seconds` or a quieter machine would help",
            wide.join("; ")
        )
    })
}

/// Returns the spread of the repetitions of a backend if it is too wide. In an open loop the latency
/// ranks, else the throughput.
fn spread(group: &Group, cells: &[&Cell]) -> Option<f64> {
    let figure = |cell: &Cell| match group.setting.is_open_loop() {
        true => cell.latency_ns.p99 as f64,
        false => cell.throughput_bytes_per_s,
    };
    let valid = cells.iter().filter(|cell| cell.valid);
    let figures: Vec<f64> = valid.map(|cell| figure(cell)).collect();
    let summary = Summary::of(&figures)?;
    summary.spread().filter(|_| summary.is_too_wide())
}

/// Warns of backends that could not keep the rate of an open loop.
fn missed_rates(run: &Run) -> Option<String> {
    let missed = run.cells.iter().filter(|cell| cell.valid && cell.misses_rate());
    let mut names: Vec<String> =
        missed.map(|cell| format!("{} in {}", cell.backend, cell.group())).collect();
    names.sort_unstable();
    names.dedup();
    (!names.is_empty()).then(|| {
        format!(
            "the requested rate was not reached by {}: their latencies grow with the length of \
             the measurement, so they are not ranked",
            names.join("; ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::dice::Dice;
    use crate::fixture::rated::{cell, cells, run};
    use crate::result::CacheCheck;
    use crate::result::CacheState::{Cold, Warm};

    #[test]
    fn a_sampled_state_is_mentioned_with_its_confidence() {
        let check = |method| {
            let mut all = vec![cell("pread", Cold, 0, 1e9)];
            let (pages, pages_checked, pages_off) = (131_072, 128, 0);
            all[0].cache_check = Some(CacheCheck { method, pages, pages_checked, pages_off });
            sampled_states(&run(all))
        };
        assert_eq!(check(CacheCheckMethod::Counted), None);
        let warning = check(CacheCheckMethod::Sampled).unwrap();
        let parts = ["sampled, 128 of 131072 pages", "95 % confidence at most 2.3 % of the pages"];
        assert!(parts.iter().all(|part| warning.contains(part)), "{warning}");
    }

    #[test]
    fn wide_spreads_cause_a_warning() {
        let mut all = cells(&mut Dice(10), "pread", Cold, 1e9, 0.02, 5);
        all.extend(cells(&mut Dice(11), "uring", Cold, 2e9, 0.4, 5));
        let warning = spread_warning(&run(all)).unwrap();
        assert!(warning.contains("(uring: ") && !warning.contains("pread:"), "{warning}");
    }

    #[test]
    fn only_the_group_with_different_bytes_is_invalid() {
        let mut all = vec![cell("pread", Cold, 0, 1e9), cell("uring", Cold, 0, 2e9)];
        all.extend([cell("pread", Warm, 0, 1e9), cell("uring", Warm, 0, 2e9)]);
        all[1].checksum = "01".into();
        let mut run = run(all);
        let message = same_bytes(&run).unwrap_err().to_string();
        assert!(
            message.contains("00 from pread") && message.contains("01 from uring"),
            "{message}"
        );
        discard_wrong_bytes(&mut run);
        assert!(run.cells.iter().all(|cell| cell.valid == (cell.cache == Warm)));
    }
}
