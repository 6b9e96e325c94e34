//! Limits the memory of the measured processes by a control group, so that the page cache counts;
//! the child joins it before it warms anything. If no group can be made, the limit is
//! `RLIMIT_DATA`, and a warning says so.

use std::fs;
use std::path::{Path, PathBuf};

use crate::run::task::MemoryLimit;
use crate::system::interrupt::Leftover;

/// The memory limit of the children of a run; a control group is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct MemoryLimiter {
    limit: MemoryLimit,
    bytes: u64,
    group: Option<(PathBuf, Leftover)>,
}

impl MemoryLimiter {
    /// Makes a control group with the limit. If that is not allowed, uses `RLIMIT_DATA` and returns a
    /// warning.
    pub(crate) fn new(bytes: u64) -> (Self, Option<String>) {
        match make_group(bytes) {
            Ok(group) => {
                let limit = MemoryLimit::Cgroup { procs: group.join("cgroup.procs") };
                let leftover = Leftover::new(&group);
                (Self { limit, bytes, group: Some((group, leftover)) }, None)
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
        if let Some((group, _)) = &self.group {
            let _ = fs::remove_dir(group);
        }
    }
}

/// Where control groups are mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// Makes a group below the group of this process, in the hierarchy of version 1 or 2.
fn make_group(bytes: u64) -> Result<PathBuf, String> {
    let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
    make_group_at(Path::new(MOUNT), &own, bytes)
}

/// The same, with the place where groups are mounted and the contents of `/proc/self/cgroup`.
fn make_group_at(mount: &Path, own: &str, bytes: u64) -> Result<PathBuf, String> {
    let mut reasons = Vec::new();
    for place in places(mount, own) {
        match place.make_group(bytes) {
            Ok(group) => return Ok(group),
            Err(reason) => reasons.push(format!("{}: {reason}", place.parent.display())),
        }
    }
    Err(if reasons.is_empty() { "none is mounted".into() } else { reasons.join("; ") })
}

/// A group in which a group with a limit can perhaps be made.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    parent: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Returns the places for a memory group, from the lines `id:controllers:path` of `/proc/self/cgroup`.
fn places(mount: &Path, own: &str) -> Vec<Place> {
    let mut places = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let path = Path::new(path.trim_start_matches('/'));
        if controllers.split(',').any(|name| name == "memory") {
            let root = mount.join("memory");
            // In a container the path is that of the host, but the mount is that of the container.
            for parent in [root.join(path), root] {
                places.push(Place { parent, version: Version::One });
            }
        } else if controllers.is_empty() {
            // A group with processes cannot pass its controllers on (cgroups(7)), and this process is in its own group.
            // So the groups above it are places too.
            let parents = path.ancestors().map(|path| mount.join(path));
            places.extend(parents.map(|parent| Place { parent, version: Version::Two }));
        }
    }
    places.dedup();
    places
}

impl Place {
    /// Makes a group with the limit, and returns its folder or the reason why that cannot be done here.
    fn make_group(&self, bytes: u64) -> Result<PathBuf, String> {
        // In an ordinary folder this would succeed without effect.
        if !self.parent.join("cgroup.procs").exists() {
            return Err("there is no control group".into());
        }
        if self.version == Version::Two && !self.passes_memory_on() {
            return Err("its cgroup.subtree_control does not have the memory controller".into());
        }
        let group = self.parent.join(format!("ringmain-{}", std::process::id()));
        fs::create_dir(&group).map_err(|error| error.to_string())?;
        let limit_file = match self.version {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        };
        fs::write(group.join(limit_file), bytes.to_string()).map_err(|error| {
            let _ = fs::remove_dir(&group);
            error.to_string()
        })?;
        Ok(group)
    }

    /// Returns whether groups below this one can limit memory (version 2).
    fn passes_memory_on(&self) -> bool {
        let passed_on = fs::read_to_string(self.parent.join("cgroup.subtree_control"));
        passed_on.is_ok_and(|names| names.split_whitespace().any(|name| name == "memory"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_hierarchies_are_understood() {
        let places = places(Path::new(MOUNT), "5:cpu,memory:/a/b\n0::/c/d\n7:pids:/\n");
        let found: Vec<_> =
            places.iter().map(|it| (it.parent.to_str().unwrap(), it.version)).collect();
        let expected = [
            ("/sys/fs/cgroup/memory/a/b", Version::One),
            ("/sys/fs/cgroup/memory", Version::One),
            ("/sys/fs/cgroup/c/d", Version::Two),
            ("/sys/fs/cgroup/c", Version::Two),
            ("/sys/fs/cgroup/", Version::Two),
        ];
        assert_eq!(found, expected);
    }

    /// A folder that looks like groups of version 2: `(group, the controllers that it passes on)`.
    fn made_up(groups: &[(&str, &str)]) -> tempfile::TempDir {
        let mount = tempfile::tempdir().unwrap();
        for (group, passed_on) in groups {
            let folder = mount.path().join(group);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("cgroup.procs"), "").unwrap();
            fs::write(folder.join("cgroup.subtree_control"), passed_on).unwrap();
        }
        mount
    }

    /// As systemd sets it up: the group of the session has processes and passes nothing on, the one above does.
    #[test]
    fn a_group_of_version_2_is_made_where_memory_is_passed_on() {
        let mount = made_up(&[("", "cpu memory"), ("user", "memory pids"), ("user/session", "")]);
        let group = make_group_at(mount.path(), "0::/user/session\n", 64 << 20).unwrap();
        assert_eq!(group.parent().unwrap(), mount.path().join("user"));
        assert_eq!(fs::read_to_string(group.join("memory.max")).unwrap(), "67108864");
    }

    #[test]
    fn without_the_memory_controller_each_place_has_its_reason() {
        let mount = made_up(&[("", "cpu pids"), ("user", "")]);
        let reason = make_group_at(mount.path(), "0::/user\n", 64 << 20).unwrap_err();
        assert_eq!(reason.matches("cgroup.subtree_control does not have").count(), 2, "{reason}");
        assert!(!mount.path().join("user/ringmain").exists());
        let reason = make_group_at(&mount.path().join("user"), "0::/gone\n", 1).unwrap_err();
        assert!(reason.contains("gone: there is no control group"), "{reason}");
        assert_eq!(make_group_at(mount.path(), "7:pids:/\n", 1).unwrap_err(), "none is mounted");
    }
}
