//! The machine that a run was measured on.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::stat::{major, minor};
use nix::sys::time::TimeValLike;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Everything about the machine that explains a number. Unknown facts are `null`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// The name of the operating system's kernel: `Linux`.
    pub os: String,
    /// Its release: `6.18.5`.
    pub kernel: String,
    /// The processor: `x86_64`.
    pub arch: String,
    /// Its model.
    pub cpu: Option<String>,
    /// Processors that this process may use.
    pub cpus: u32,
    /// The frequency governor.
    pub governor: Option<String>,
    /// Memory.
    pub memory_bytes: Option<u64>,
    /// Memory that was free for use when the run began.
    pub memory_available_bytes: Option<u64>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
    /// The commit of the program that measured, if it was built in a repository.
    pub commit: Option<String>,
    /// The version of fio that was measured too.
    #[serde(default)]
    pub fio: Option<String>,
    /// Where the data is stored.
    pub storage: Storage,
    /// How busy the machine was.
    pub load: Load,
}

/// Where the data is stored.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Storage {
    /// The folder or file.
    pub path: PathBuf,
    /// The filesystem: `ext4`.
    pub filesystem: Option<String>,
    /// Where it is mounted.
    pub mount_point: Option<PathBuf>,
    /// The options of the mount.
    pub mount_options: Option<String>,
    /// The device: `/dev/vda`.
    pub device: Option<String>,
    /// Its model.
    pub device_model: Option<String>,
    /// Whether the device is a spinning disk.
    pub rotational: Option<bool>,
    /// The I/O scheduler: `mq-deadline`, `none`.
    pub scheduler: Option<String>,
    /// How far the kernel reads ahead, in KiB.
    pub read_ahead_kb: Option<u64>,
    /// How many requests its queue holds.
    pub queue_requests: Option<u64>,
}

/// How busy the machine was besides the measurement.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Load {
    /// The load average of the minute before the run.
    pub load_1m_before: Option<f64>,
    /// Share of the time that other processes used the processors while cells ran, 0 to 1.
    pub busy_share: Option<f64>,
    /// Share of the time that the hypervisor took the processors away, 0 to 1.
    pub steal_share: Option<f64>,
}

impl Host {
    /// Describes this machine and the storage of `path`.
    pub(crate) fn describe(path: &Path) -> Self {
        let (os, arch) = nix::sys::utsname::uname().map_or_else(
            |_| (std::env::consts::OS.into(), std::env::consts::ARCH.into()),
            |name| {
                let text = |part: &std::ffi::OsStr| part.to_string_lossy().into_owned();
                (text(name.sysname()), text(name.machine()))
            },
        );
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let load = Load { load_1m_before: load_1m(), ..Load::default() };
        Self {
            os,
            kernel: kernel_release().unwrap_or_default(),
            arch,
            cpu: field("/proc/cpuinfo", "model name"),
            cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            memory_bytes: memory("MemTotal"),
            memory_available_bytes: memory_available_bytes(),
            transparent_huge_pages: bracketed("/sys/kernel/mm/transparent_hugepage/enabled"),
            commit: option_env!("RINGMAIN_COMMIT").map(Into::into),
            fio: None,
            storage: Storage::describe(path),
            load,
        }
    }
}

impl Storage {
    /// Returns whether the filesystem keeps its files in memory only, so that they are never cold.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self.filesystem.as_deref(), Some("tmpfs" | "ramfs" | "hugetlbfs" | "devtmpfs"))
    }

    /// Describes the filesystem and the device of a path.
    pub(crate) fn describe(path: &Path) -> Self {
        let mut storage = Self { path: path.to_owned(), ..Self::default() };
        let Ok(stat) = nix::sys::stat::stat(path) else {
            return storage;
        };
        let number = format!("{}:{}", major(stat.st_dev), minor(stat.st_dev));
        if let Some(mount) = mounts().and_then(|text| find_mount(&text, &number, path)) {
            storage.filesystem = Some(mount.filesystem);
            storage.mount_point = Some(mount.mount_point);
            storage.mount_options = Some(mount.options);
            storage.device = Some(mount.device);
        }
        let Ok(block) = fs::canonicalize(format!("/sys/dev/block/{number}")) else {
            return storage;
        };
        // The queue belongs to the whole disk, which is one level up from a partition.
        let disk = [Some(block.as_path()), block.parent()]
            .into_iter()
            .flatten()
            .find(|folder| folder.join("queue").is_dir());
        if let Some(disk) = disk {
            let queue = |name: &str| disk.join("queue").join(name);
            storage.device_model = read(disk.join("device/model"));
            storage.rotational = read(queue("rotational")).map(|text| text == "1");
            storage.scheduler = bracketed(queue("scheduler"));
            storage.read_ahead_kb = read(queue("read_ahead_kb")).and_then(|kb| kb.parse().ok());
            storage.queue_requests = read(queue("nr_requests")).and_then(|n| n.parse().ok());
        }
        storage
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    filesystem: String,
    mount_point: PathBuf,
    options: String,
    device: String,
}

fn mounts() -> Option<String> {
    fs::read_to_string("/proc/self/mountinfo").ok()
}

/// Returns the mount that holds the path: among the mounts of its device, the one with the longest
/// path.
fn find_mount(mountinfo: &str, number: &str, path: &Path) -> Option<Mount> {
    let parsed = mountinfo.lines().filter_map(|line| {
        let (own, rest) = line.split_once(" - ")?;
        let fields: Vec<&str> = own.split(' ').collect();
        let mut rest = rest.split(' ');
        let (filesystem, device, super_options) = (rest.next()?, rest.next()?, rest.next()?);
        (fields.get(2) == Some(&number)).then_some(())?;
        Some(Mount {
            filesystem: filesystem.into(),
            mount_point: PathBuf::from(fields.get(4)?.replace("\\040", " ")),
            options: format!("{},{super_options}", fields.get(5)?),
            device: device.into(),
        })
    });
    let holding = parsed.filter(|mount| path.starts_with(&mount.mount_point));
    holding.max_by_key(|mount| mount.mount_point.as_os_str().len())
}

/// Measures how busy the machine was with other programs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BusyMeter {
    start: Option<Ticks>,
}

/// Seconds of processor time since the machine started, and of this program with its children.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    busy: f64,
    steal: f64,
    total: f64,
    children_s: f64,
}

impl BusyMeter {
    pub(crate) fn start() -> Self {
        Self { start: Ticks::now() }
    }

    /// Returns two shares of the processors' time since the start: used by other programs, and taken by
    /// the hypervisor.
    pub(crate) fn shares(&self) -> Option<(f64, f64)> {
        let (start, end) = (self.start?, Ticks::now()?);
        let total = end.total - start.total;
        let children = end.children_s - start.children_s;
        let others = (end.busy - start.busy - children).max(0.0);
        (total > 0.0).then(|| (others / total, (end.steal - start.steal) / total))
    }
}

impl Ticks {
    fn now() -> Option<Self> {
        let per_s = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok()?? as f64;
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let ticks: Vec<f64> = stat
            .lines()
            .next()?
            .split_whitespace()
            .skip(1)
            .map(|field| field.parse().unwrap_or(0.0))
            .collect();
        // user nice system idle iowait irq softirq steal
        let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks[..] else {
            return None;
        };
        let busy = user + nice + system + irq + softirq;
        let cpu_s = |who| {
            let usage = getrusage(who).ok()?;
            let time = usage.user_time() + usage.system_time();
            Some(time.num_microseconds() as f64 / 1e6)
        };
        Some(Self {
            busy: busy / per_s,
            steal: steal / per_s,
            total: (busy + idle + iowait + steal) / per_s,
            children_s: cpu_s(UsageWho::RUSAGE_CHILDREN)? + cpu_s(UsageWho::RUSAGE_SELF)?,
        })
    }
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Returns the word in brackets, as in `always [madvise] never`.
fn bracketed(path: impl AsRef<Path>) -> Option<String> {
    let text = read(path)?;
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(chosen, _)| chosen.to_owned())
}

/// Returns the value of a line such as `model name : Some Processor`.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}

fn memory(name: &str) -> Option<u64> {
    let kib = field("/proc/meminfo", name)?;
    kib.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the release of the kernel: `6.18.0-generic`.
pub(crate) fn kernel_release() -> Option<String> {
    let name = nix::sys::utsname::uname().ok()?;
    Some(name.release().to_string_lossy().into_owned())
}

/// Returns the memory that programs and the page cache can still use.
pub(crate) fn memory_available_bytes() -> Option<u64> {
    memory("MemAvailable")
}

fn load_1m() -> Option<f64> {
    read("/proc/loadavg")?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_mount_of_the_device_is_taken() {
        let text = "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,discard\n\
                    30 21 8:1 /x /srv/my\\040data ro - ext4 /dev/sda1 rw\n\
                    31 21 0:5 / /srv/my\\040data/tmp rw - tmpfs none rw\n";
        let mount = find_mount(text, "8:1", Path::new("/srv/my data/a")).unwrap();
        assert_eq!(mount.mount_point, Path::new("/srv/my data"));
        assert_eq!(mount.options, "ro,rw");
        assert_eq!(
            find_mount(text, "8:1", Path::new("/home")).unwrap().options,
            "rw,relatime,rw,discard"
        );
        assert_eq!(find_mount(text, "9:9", Path::new("/home")), None);
    }

    #[test]
    fn this_machine_is_described() {
        let host = Host::describe(&std::env::current_dir().unwrap());
        assert!(host.cpus >= 1 && !host.kernel.is_empty() && host.memory_bytes > Some(0));
        // A chroot that is not a mount point sees only the mounts below it.
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let lists_root = mounts.lines().any(|line| line.split(' ').nth(4) == Some("/"));
        assert!(host.storage.filesystem.is_some() || !lists_root, "{:?}", host.storage);
    }
}
