//! How much memory a process may still use, including page cache that can be given up.

use std::fs;
use std::path::{Path, PathBuf};

/// The least that the machine and every control group of this process have; `None` where the
/// machine does not say.
pub(crate) fn available_memory_bytes() -> Option<u64> {
    let machine = machine_bytes(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let groups = groups(&own).into_iter().filter_map(|group| group.available_bytes());
    Some(groups.fold(machine, u64::min))
}

/// `MemAvailable`: free memory and what the kernel can take back without swapping.
fn machine_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// A control group of the memory controller, and how its version names things.
#[derive(Debug, PartialEq, Eq)]
struct MemoryGroup {
    path: PathBuf,
    limit: &'static str,
    used: &'static str,
    /// Lines of `memory.stat`: page cache that is counted as used and can be taken back.
    cached: [&'static str; 2],
}

const MOUNT: &str = "/sys/fs/cgroup";
const MOUNT_OF_VERSION_1: &str = "/sys/fs/cgroup/memory";

/// The groups of this process and all above them, by `/proc/self/cgroup`: lines of
/// `id:controllers:path`. In a container the path may be the host's, while what is mounted begins
/// with the container's own group; the walk up to the mount finds that one.
fn groups(own: &str) -> Vec<MemoryGroup> {
    let mut groups = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let group: fn(&Path) -> MemoryGroup = match controllers {
            "" => |path| MemoryGroup {
                path: path.to_owned(),
                limit: "memory.max",
                used: "memory.current",
                cached: ["active_file", "inactive_file"],
            },
            names if names.split(',').any(|name| name == "memory") => |path| MemoryGroup {
                path: path.to_owned(),
                limit: "memory.limit_in_bytes",
                used: "memory.usage_in_bytes",
                cached: ["total_active_file", "total_inactive_file"],
            },
            _ => continue,
        };
        let mount = if controllers.is_empty() { MOUNT } else { MOUNT_OF_VERSION_1 };
        let path = path.trim_matches('/');
        let own = if path.is_empty() { mount.into() } else { Path::new(mount).join(path) };
        groups.extend(own.ancestors().take_while(|path| path.starts_with(mount)).map(group));
    }
    groups
}

impl MemoryGroup {
    /// `None` for a group that does not exist or has no limit.
    fn available_bytes(&self) -> Option<u64> {
        let number =
            |file: &str| fs::read_to_string(self.path.join(file)).ok()?.trim().parse::<u64>().ok();
        let (limit, used) = (number(self.limit)?, number(self.used)?);
        let stat = fs::read_to_string(self.path.join("memory.stat")).unwrap_or_default();
        let cached: u64 = self.cached.iter().filter_map(|name| stat_bytes(&stat, name)).sum();
        Some(limit.saturating_sub(used.saturating_sub(cached)))
    }
}

fn stat_bytes(stat: &str, name: &str) -> Option<u64> {
    let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(found, _)| *found == name)?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_in_units_of_1024_bytes() {
        let text = "MemTotal:  100 kB\nMemFree:   1 kB\nMemAvailable:      30 kB\n";
        assert_eq!(machine_bytes(text), Some(30 << 10));
        assert_eq!(machine_bytes("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn the_groups_above_count_too() {
        let paths = |own| -> Vec<String> {
            groups(own).iter().map(|group| group.path.to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(
            paths("4:cpu,memory:/a/b\n7:pids:/x\n"),
            ["/sys/fs/cgroup/memory/a/b", "/sys/fs/cgroup/memory/a", "/sys/fs/cgroup/memory"]
        );
        assert_eq!(paths("0::/\n"), ["/sys/fs/cgroup"]);
        assert!(paths("nonsense\n").is_empty());
    }

    #[test]
    fn cached_pages_are_available() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        let group = MemoryGroup {
            path: dir.path().to_owned(),
            limit: "memory.max",
            used: "memory.current",
            cached: ["active_file", "inactive_file"],
        };
        assert_eq!(group.available_bytes(), None);
        write("memory.current", "700\n");
        write("memory.max", "max\n");
        assert_eq!(group.available_bytes(), None);
        write("memory.max", "1000\n");
        assert_eq!(group.available_bytes(), Some(300));
        write("memory.stat", "anon 100\ninactive_file 400\nactive_file 100\n");
        assert_eq!(group.available_bytes(), Some(800));
    }

    #[test]
    fn this_machine_says_something() {
        assert!(available_memory_bytes().is_some_and(|bytes| bytes > 0));
    }
}
