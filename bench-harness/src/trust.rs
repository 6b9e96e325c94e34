//! Whether the numbers of a run can be trusted.

use std::collections::BTreeMap;

use crate::failure::Failure;
use crate::recommend::spread_warning;
use crate::result::{Group, Run};

/// More than this of the processors' time spent on other things makes numbers doubtful.
const BUSY_SHARE_MAX: f64 = 0.10;
/// The hypervisor taking away more than this does too.
const STEAL_SHARE_MAX: f64 = 0.05;
/// All backends of a workload gave the same bytes; or which did not.
pub(crate) fn same_bytes(run: &Run) -> Result<(), Failure> {
    let mut groups: BTreeMap<(Group, u32), BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for cell in run.cells.iter().filter(|cell| !cell.checksum.is_empty()) {
        let checksums = groups.entry((cell.group(), cell.repetition)).or_default();
        checksums.entry(&cell.checksum).or_default().push(&cell.backend);
    }
    let Some(((group, _), checksums)) = groups.into_iter().find(|(_, found)| found.len() > 1)
    else {
        return Ok(());
    };
    let told: Vec<String> = checksums.into_iter().map(|(sum, names)| told(sum, names)).collect();
    let message = format!(
        "{group}: not all reads return the same bytes, so none of these numbers counts: {}",
        told.join("; ")
    );
    Err(Failure::WrongBytes { message })
}

/// Takes the cells of groups in which backends return different bytes out of the running.
pub(crate) fn discard_wrong_bytes(run: &mut Run) {
    let Err(failure) = same_bytes(run) else {
        return;
    };
    let reason = failure.to_string();
    for cell in &mut run.cells {
        if cell.valid && reason.starts_with(&format!("{}: ", cell.group())) {
            cell.valid = false;
            cell.invalid_reason = Some("backends return different bytes".into());
        }
    }
}

/// `xxh3:0123 from pread, uring`.
fn told(checksum: &str, mut backends: Vec<&str>) -> String {
    backends.sort_unstable();
    backends.dedup();
    format!("{checksum} from {}", backends.join(", "))
}

/// What makes the numbers less trustworthy than they look.
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
        warnings.push(format!("{count} cells do not count: {reason}"));
    }
    warnings.extend(missed_rates(run));
    warnings.extend(spread_warning(run));
    warnings
}

/// Of the rate asked for, a backend reached less than this.
const RATE_SHARE_MIN: f64 = 0.95;

/// Where an open loop could not keep its rate, latencies only tell how long it went on.
fn missed_rates(run: &Run) -> Option<String> {
    let missed = run.cells.iter().filter(|cell| {
        let reached = cell.operations as f64 / cell.seconds.max(1e-9);
        let asked = cell.setting.rate_per_s.map(|rate| rate as f64);
        cell.valid && asked.is_some_and(|asked| reached < asked * RATE_SHARE_MIN)
    });
    let mut told: Vec<String> =
        missed.map(|cell| format!("{} in {}", cell.backend, cell.group())).collect();
    told.sort_unstable();
    told.dedup();
    (!told.is_empty()).then(|| {
        format!(
            "the rate asked for was not reached by {}: their latencies grow with the length of \
             the measurement and rank nothing",
            told.join("; ")
        )
    })
}
