//! The target of a recording: a command that is started, or a process that runs already.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::faults::Watched;
use crate::failure::Failure;
use crate::trace::{KnownMapping, KnownProcess};

/// The calls that read, and those that say where and from which file. A `?` allows a strace that does not know
/// the call.
const CALLS: &str = "trace=read,pread64,readv,preadv,?preadv2,?sendfile,?copy_file_range,splice,\
                     ?open,openat,?openat2,?creat,close,dup,?dup2,dup3,fcntl,lseek,mmap,munmap,mremap,execve,\
                     ?execveat,clone,?clone3,?fork,?vfork,?io_uring_enter,?io_submit";

/// The target of a recording.
#[derive(Debug)]
pub(super) enum Target {
    Command(Vec<OsString>),
    Process(i32),
}

impl Target {
    /// Checks that the target exists, before anything is written.
    pub(super) fn new(command: &[OsString], pid: Option<i32>) -> Result<Self, Failure> {
        let usage = |message: String| Failure::Usage { message };
        match (command.first(), pid) {
            (_, Some(pid)) if !Path::new(&format!("/proc/{pid}")).exists() => {
                Err(usage(format!("there is no process {pid}")))
            }
            (_, Some(pid)) => Ok(Self::Process(pid)),
            (Some(program), None) if find_program(program).is_none() => {
                let name = program.to_string_lossy();
                Err(usage(format!("the program `{name}` was not found, or cannot be executed")))
            }
            (Some(_), None) => Ok(Self::Command(command.to_vec())),
            (None, None) => Err(usage("name a command to record, or a process with --pid".into())),
        }
    }

    /// Returns strace with its arguments.
    pub(super) fn strace(&self, log: &Path) -> Result<Command, Failure> {
        let strace = find_program("strace".as_ref()).ok_or_else(|| Failure::Usage {
            message: "recording needs strace, which was not found; install it, for example with \
                      `apt-get install strace`"
                .into(),
        })?;
        let mut command = Command::new(strace);
        command.args(["-f", "-q", "-y", "-ttt", "-T", "-s", "0", "-e", CALLS, "-e", "signal=none"]);
        command.arg("-o").arg(log);
        match self {
            // Only the calls in the list stop the program.
            Self::Command(target) => command.arg("--seccomp-bpf").arg("--").args(target),
            Self::Process(pid) => command.arg("-p").arg(pid.to_string()),
        };
        Ok(command)
    }

    /// Returns the command, or the command line of the process.
    pub(super) fn name(&self) -> OsString {
        match self {
            Self::Command(words) => words.join(" ".as_ref()),
            Self::Process(pid) => {
                let mut bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                bytes.pop_if(|last| *last == 0);
                bytes.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
                OsString::from_vec(bytes)
            }
        }
    }

    /// Why the log of strace is empty. Every program makes some of the calls when it starts, so strace could not
    /// trace it. It prints its own message to standard error.
    pub(super) fn why_nothing(&self, is_interrupted: bool) -> String {
        match self {
            Self::Command(_) => "strace could not trace the program, and says why above".into(),
            Self::Process(_) if is_interrupted => "the process read no file in that time".into(),
            Self::Process(_) => {
                "strace could not trace the process, and says why above; as root it may".into()
            }
        }
    }

    /// The threads whose page faults are collected.
    pub(super) fn watched(&self) -> Vec<Watched> {
        match self {
            Self::Command(_) => vec![Watched::Children],
            Self::Process(pid) => threads_of(*pid).into_iter().map(Watched::Thread).collect(),
        }
    }

    /// Returns the files that a process that runs already has opened and mapped.
    pub(super) fn known(&self) -> Option<KnownProcess> {
        match self {
            Self::Command(_) => None,
            Self::Process(pid) => Some(known_process(*pid)),
        }
    }
}

/// Finds a program as a shell does.
fn find_program(name: &std::ffi::OsStr) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        let found = fs::metadata(path);
        found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if Path::new(name).components().count() > 1 {
        return Some(PathBuf::from(name)).filter(is_program);
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(is_program)
}

pub(super) fn numbers_in(folder: &str) -> Vec<i32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn threads_of(pid: i32) -> Vec<i32> {
    numbers_in(&format!("/proc/{pid}/task"))
}

/// Reads what the process has open and mapped at this moment.
fn known_process(pid: i32) -> KnownProcess {
    let open = numbers_in(&format!("/proc/{pid}/fd")).into_iter().filter_map(|number| {
        let path = fs::read_link(format!("/proc/{pid}/fd/{number}")).ok()?;
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).ok()?;
        let position =
            info.lines().find_map(|line| line.strip_prefix("pos:"))?.trim().parse().ok()?;
        Some((i64::from(number), path, position))
    });
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    KnownProcess {
        process: pid.unsigned_abs(),
        threads: threads_of(pid).into_iter().map(i32::unsigned_abs).collect(),
        open: open.collect(),
        mappings: maps.lines().filter_map(known_mapping).collect(),
    }
}

/// Parses `7f00-7f01 r--s 00001000 fe:00 1234   /data/x`.
fn known_mapping(line: &str) -> Option<KnownMapping> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let offset = hex(words.next()?)?;
    let path = words.nth(2)?.trim_start();
    let is_file = path.starts_with('/') && !path.ends_with(" (deleted)");
    is_file.then_some(KnownMapping {
        addresses: hex(start)?..hex(end)?,
        path: path.into(),
        offset,
        is_code: rights.contains('x'),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps() {
        let line =
            "7f9b3bc00000-7f9b3c000000 r--s 00001000 fe:00 10011364                   /tmp/x y.bin";
        let found = known_mapping(line).unwrap();
        assert_eq!(found.addresses, 0x7f9b_3bc0_0000..0x7f9b_3c00_0000);
        assert_eq!(
            (found.path.to_str(), found.offset, found.is_code),
            (Some("/tmp/x y.bin"), 0x1000, false)
        );
        for line in [
            "",
            "7f-80 rw-p 00000000 00:00 0 ",
            "7f-80 rw-p 00000000 00:00 0   [heap]",
            "7f-80 r--s 00000000 00:00 0   /tmp/x (deleted)",
        ] {
            assert!(known_mapping(line).is_none(), "{line}");
        }
    }

    #[test]
    fn programs_are_found_as_a_shell_does() {
        assert!(find_program("sh".as_ref()).is_some_and(|path| path.is_absolute()));
        assert!(find_program("/bin/sh".as_ref()).is_some());
        for name in ["no-such-program-here", "/", "/etc/passwd", ""] {
            assert!(find_program(name.as_ref()).is_none(), "{name}");
        }
    }
}
