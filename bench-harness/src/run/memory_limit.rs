//! Limits the memory of the measured processes by a control group, so that the page cache counts;
//! the child joins it before it warms anything. If no group can be made, the limit is
//! `RLIMIT_DATA`, and a warning says so.

use std::fs;
use std::path::{Path, PathBuf};

use crate::run::task::MemoryLimit;

/// The memory limit of the children of a run; a control group is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct MemoryLimiter {
    limit: MemoryLimit,
    bytes: u64,
    group: Option<PathBuf>,
}

impl MemoryLimiter {
    /// Makes a control group with the limit. If that is not allowed, uses `RLIMIT_DATA` and returns a
    /// warning.
    pub(crate) fn new(bytes: u64) -> (Self, Option<String>) {
        match make_group(bytes) {
            Ok(group) => {
                let procs = group.join("cgroup.procs");
                (Self { limit: MemoryLimit::Cgroup { procs }, bytes, group: Some(group) }, None)
            }
            Err(reason) => {
                let warning = format!(
                    "cannot make a control group for the memory limit ({reason}): the limit \
                     applies to anonymous memory only, not to the page cache"
                );
                (Self { limit: MemoryLimit::Rlimit { bytes }, bytes, group: None }, Some(warning))
            }
        }
    }

    /// Returns the limit of the children's page cache; `None` if the limit does not include it.
    pub(crate) fn page_cache_bytes_max(&self) -> Option<u64> {
        self.group.is_some().then_some(self.bytes)
    }

    pub(crate) fn limit(&self) -> MemoryLimit {
        self.limit.clone()
    }
}

impl Drop for MemoryLimiter {
    /// All children have ended by now. A group that still has one cannot be removed, which is harmless.
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            let _ = fs::remove_dir(group);
        }
    }
}

/// Makes a group below the group of this process, in the hierarchy of version 1 or 2.
fn make_group(bytes: u64) -> Result<PathBuf, String> {
    let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
    let mut reasons = Vec::new();
    for (parent, limit_file) in candidates(&own) {
        match make_group_in(&parent, limit_file, bytes) {
            Ok(group) => return Ok(group),
            Err(error) => reasons.push(format!("{}: {error}", parent.display())),
        }
    }
    Err(if reasons.is_empty() { "none is mounted".into() } else { reasons.join("; ") })
}

/// Returns the places for a memory group, from the lines `id:controllers:path` of `/proc/self/cgroup`.
fn candidates(own: &str) -> Vec<(PathBuf, &'static str)> {
    let mut places = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let path = path.trim_start_matches('/');
        if controllers.split(',').any(|name| name == "memory") {
            let root = Path::new("/sys/fs/cgroup/memory");
            places.push((root.join(path), "memory.limit_in_bytes"));
            // In a container the path is that of the host, but the mount is that of the container.
            places.push((root.to_owned(), "memory.limit_in_bytes"));
        } else if controllers.is_empty() {
            let root = Path::new("/sys/fs/cgroup");
            places.push((root.join(path), "memory.max"));
            places.push((root.to_owned(), "memory.max"));
        }
    }
    places
}

fn make_group_in(parent: &Path, limit_file: &str, bytes: u64) -> std::io::Result<PathBuf> {
    let group = parent.join(format!("ringmain-{}", std::process::id()));
    // In an ordinary folder this would succeed without effect.
    if !parent.join("cgroup.procs").exists() {
        return Err(std::io::ErrorKind::NotFound.into());
    }
    fs::create_dir(&group)?;
    fs::write(group.join(limit_file), bytes.to_string()).inspect_err(|_| {
        let _ = fs::remove_dir(&group);
    })?;
    Ok(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_hierarchies_are_understood() {
        let places = candidates("5:cpu,memory:/a/b\n0::/c\n7:pids:/\n");
        let paths: Vec<_> =
            places.iter().map(|(path, file)| (path.to_str().unwrap(), *file)).collect();
        assert_eq!(paths[0], ("/sys/fs/cgroup/memory/a/b", "memory.limit_in_bytes"));
        assert_eq!(paths[2], ("/sys/fs/cgroup/c", "memory.max"));
        assert_eq!(paths.len(), 4);
    }
}
