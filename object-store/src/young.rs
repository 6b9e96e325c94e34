//! What changed so lately that a later change could have the same time.

use std::path::Path;
use std::time::{Duration, SystemTime};

/// Two changes within a tick of a clock have the same time. The clock of FAT ticks every 2 seconds,
/// and times in HTTP are whole seconds.
const YOUNG: Duration = Duration::from_secs(3);
/// How far the clock of this machine may be ahead of that of a server.
const CLOCKS_DIFFER: Duration = Duration::from_secs(300);

/// Returns `true` if a file was changed just before `now`, as in [`is_young`], or if its time is not known.
pub(crate) fn is_young_file(path: &Path, now: Option<SystemTime>) -> bool {
    let changed = path.metadata().and_then(|metadata| metadata.modified());
    changed.map_or(true, |changed| is_young(changed, now))
}

/// Returns `true` if a change was just before `now` or later, by the clock that gave it its time. `None`: by the clock of this
/// machine, which may be ahead of that one.
pub(crate) fn is_young(changed: SystemTime, now: Option<SystemTime>) -> bool {
    let now = now.unwrap_or_else(|| SystemTime::now() - CLOCKS_DIFFER);
    now.duration_since(changed).unwrap_or_default() < YOUNG
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_that_gave_the_time_decides() {
        // A clock that was ahead by more than two seconds made a new object of a store look old.
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(3600);
        let hour = Duration::from_secs(3600);
        for now in [changed - hour, changed, changed + YOUNG - Duration::from_millis(1)] {
            assert!(is_young(changed, Some(now)), "{now:?}");
        }
        assert!(!is_young(changed, Some(changed + YOUNG)) && !is_young(changed, None));
        let now = SystemTime::now();
        assert!(is_young(now, None) && is_young(now + hour, None));
        assert!(!is_young(now - CLOCKS_DIFFER - YOUNG, None));
    }
}
