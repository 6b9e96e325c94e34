//! A control group that limits memory, page cache included.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A group below that of this process, removed when this is dropped.
#[derive(Debug)]
pub struct ControlGroup {
    path: PathBuf,
}

/// The files of a group in one version of the hierarchy.
#[derive(Clone, Copy, Debug)]
struct Names {
    limit: &'static str,
    kills: &'static str,
}

const VERSION_1: Names = Names { limit: "memory.limit_in_bytes", kills: "memory.oom_control" };
const VERSION_2: Names = Names { limit: "memory.max", kills: "memory.events" };

impl ControlGroup {
    /// Makes a group with this limit, in the hierarchy of version 1 or 2. `name` tells the groups of a process apart.
    /// The error says why there is none.
    pub fn new(name: &str, limit_bytes: u64) -> Result<Self, String> {
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let mut reasons = Vec::new();
        for (parent, names) in own.lines().filter_map(place) {
            match make(&parent, name, names, limit_bytes) {
                Ok(path) => return Ok(Self { path }),
                Err(error) => reasons.push(format!("{}: {error}", parent.display())),
            }
        }
        Err(if reasons.is_empty() { "none is mounted".into() } else { reasons.join("; ") })
    }

    /// The folder of the group.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves this process into a group.
    pub fn enter(path: &Path) -> io::Result<()> {
        fs::write(path.join("cgroup.procs"), "0")
    }

    /// How many processes of the group the kernel has killed to free memory.
    #[must_use]
    pub fn kills(&self) -> u64 {
        let read = |names: Names| fs::read_to_string(self.path.join(names.kills)).ok();
        let text = read(VERSION_2).or_else(|| read(VERSION_1)).unwrap_or_default();
        number_of(&text, "oom_kill").unwrap_or(0)
    }

    /// How often the group needed more memory than its limit, so that the kernel took page cache back. `None` if the
    /// kernel does not say.
    #[must_use]
    pub fn limit_hits(&self) -> Option<u64> {
        match fs::read_to_string(self.path.join("memory.events")) {
            Ok(events) => number_of(&events, "max"),
            Err(_) => {
                fs::read_to_string(self.path.join("memory.failcnt")).ok()?.trim().parse().ok()
            }
        }
    }
}

/// The number behind a name, in a file of such lines.
fn number_of(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(found, _)| *found == name)?.1.trim().parse().ok()
}

/// The place of a memory group, from a line `id:controllers:path`.
fn place(line: &str) -> Option<(PathBuf, Names)> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
    if controllers.split(',').any(|name| name == "memory") {
        Some((Path::new("/sys/fs/cgroup/memory").join(path), VERSION_1))
    } else if controllers.is_empty() {
        Some((Path::new("/sys/fs/cgroup").join(path), VERSION_2))
    } else {
        None
    }
}

fn make(parent: &Path, name: &str, names: Names, limit_bytes: u64) -> io::Result<PathBuf> {
    // In an ordinary folder this would succeed without effect.
    if !parent.join("cgroup.procs").exists() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let path = parent.join(format!("ringmain-{name}-{}", std::process::id()));
    fs::create_dir(&path)?;
    let limited = fs::write(path.join(names.limit), limit_bytes.to_string());
    if let Err(error) = limited {
        let _kept = fs::remove_dir(&path);
        return Err(error);
    }
    Ok(path)
}

impl Drop for ControlGroup {
    /// A group that still has a process cannot be removed, which is harmless.
    fn drop(&mut self) {
        let _kept = fs::remove_dir(&self.path);
    }
}
