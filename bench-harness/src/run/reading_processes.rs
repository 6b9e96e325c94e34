//! The processes that read in a cell: the measured process itself, or several that it forks, like the workers of a data
//! loader. They inherit its engine, and each opens its own jobs.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use ringmain::Engine;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::task::Task;
use super::team::{Pass, Team};
use crate::failure::Failure;
use crate::measure::Clock;

/// The readers of a cell.
pub(super) enum ReadingProcesses<'a> {
    Here(Team<'a>),
    Forked { members: Vec<Member>, clock: &'a Clock },
}

/// The message about a reader that was killed, as the kernel does if memory runs out.
pub(super) const READER_KILLED: &str = "a reading process was ended by SIGKILL";

/// A request to a forked process. Its answers are lines of JSON.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Order {
    Read { epoch: u32 },
    Checksum,
}

impl<'a> ReadingProcesses<'a> {
    /// Opens all jobs, in this process or in as many as the task asks for.
    pub(super) fn open(engine: &Engine, task: &'a Task, clock: &'a Clock) -> Result<Self, Failure> {
        let Some(processes) = task.setting.processes else {
            return Team::open(engine, task, clock, 0).map(Self::Here);
        };
        let fork = |process| {
            Member::fork(|stream| serve(stream, || Team::open(engine, task, clock, process)))
        };
        let mut members = (0..processes).map(fork).collect::<Result<Vec<_>, _>>()?;
        members.iter_mut().try_for_each(Member::answer::<()>)?;
        Ok(Self::Forked { members, clock })
    }

    /// Returns the ids of all processes, including this one.
    pub(super) fn processes(&self) -> Vec<u32> {
        let own = std::process::id();
        match self {
            Self::Here(_) => vec![own],
            Self::Forked { members, .. } => {
                let ids = members.iter().map(|member| member.id.as_raw().unsigned_abs());
                std::iter::once(own).chain(ids).collect()
            }
        }
    }

    /// Lets all processes read an epoch at the same time.
    pub(super) fn read_epoch(&mut self, epoch: u32) -> Result<Pass, Failure> {
        let (members, clock) = match self {
            Self::Here(team) => return team.read_epoch(epoch),
            Self::Forked { members, clock } => (members, clock),
        };
        members.iter_mut().try_for_each(|member| member.ask(Order::Read { epoch }))?;
        let mut all = Pass::default();
        for (at, member) in members.iter_mut().enumerate() {
            match member.answer::<Pass>()? {
                first if at == 0 => all = first,
                other => all.add_beside(&other, clock)?,
            }
        }
        Ok(all)
    }

    /// Returns the digest of the first operations of every thread.
    pub(super) fn checksum(&mut self) -> Result<u64, Failure> {
        let members = match self {
            Self::Here(team) => return team.checksum(),
            Self::Forked { members, .. } => members,
        };
        members.iter_mut().try_for_each(|member| member.ask(Order::Checksum))?;
        let mut digest = Xxh3::new();
        for member in members {
            digest.update(&member.answer::<u64>()?.to_le_bytes());
        }
        Ok(digest.digest())
    }
}

/// A forked process. It is ended when this value is dropped.
pub(super) struct Member {
    id: Pid,
    /// Its end was waited for, so that its number may belong to another process.
    is_over: bool,
    stream: BufReader<UnixStream>,
}

impl Member {
    /// Forks a process that does `work`, which gets its end of a connection, and then ends.
    // `fork` is unsafe, because the child has only the thread that called it.
    #[allow(unsafe_code)]
    fn fork(work: impl FnOnce(UnixStream)) -> Result<Self, Failure> {
        let (ours, theirs) = UnixStream::pair().map_err(Failure::Fork)?;
        let parent = nix::unistd::getpid();
        // SAFETY: this process has started no thread of its own yet. A thread that the engine has started can hold only
        // locks of the engine, which a forked child does not use (`PerProcess` in the backends), and that of the
        // allocator, which the C library makes usable in a child.
        match unsafe { fork() }.map_err(|errno| Failure::Fork(errno.into()))? {
            ForkResult::Parent { child } => {
                Ok(Self { id: child, is_over: false, stream: BufReader::new(ours) })
            }
            ForkResult::Child => {
                let _ = set_pdeathsig(Signal::SIGKILL);
                // The parent may have ended before this process asked to end with it.
                if nix::unistd::getppid() == parent {
                    let _ = catch_unwind(AssertUnwindSafe(|| work(theirs)));
                }
                // SAFETY: `_exit` takes no pointers. The usual end would run the parent's destructors and write its
                // output again.
                unsafe { nix::libc::_exit(0) }
            }
        }
    }

    fn ask(&mut self, order: Order) -> Result<(), Failure> {
        send(self.stream.get_mut(), &order).map_err(|_| self.failure())
    }

    fn answer<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(bytes) if bytes > 0 => {}
            _ => return Err(self.failure()),
        }
        serde_json::from_str::<Result<T, String>>(&line)?
            .map_err(|message| Failure::Worker { message, is_killed: false })
    }

    /// Returns why the process no longer answers.
    fn failure(&mut self) -> Failure {
        let status = waitpid(self.id, None);
        self.is_over = true;
        let is_killed = matches!(status, Ok(WaitStatus::Signaled(_, Signal::SIGKILL, _)));
        let message = match status {
            Ok(WaitStatus::Signaled(_, Signal::SIGKILL, _)) => READER_KILLED.to_owned(),
            Ok(WaitStatus::Signaled(_, signal, _)) => {
                format!("a reading process was ended by {signal}")
            }
            _ => "a reading process ended early".to_owned(),
        };
        Failure::Worker { message, is_killed }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // It has nothing left to do, or the cell has failed.
        if !self.is_over {
            let _ = kill(self.id, Signal::SIGKILL);
            let _ = waitpid(self.id, None);
        }
    }
}

/// The work of a forked process: opens its jobs and carries out orders until the connection ends.
fn serve<'a>(stream: UnixStream, open: impl FnOnce() -> Result<Team<'a>, Failure>) {
    let mut answers = &stream;
    let mut team = match open() {
        Ok(team) => team,
        Err(failure) => return drop(send(&mut answers, &Err::<(), _>(failure.to_string()))),
    };
    if send(&mut answers, &Ok::<(), String>(())).is_err() {
        return;
    }
    for line in BufReader::new(&stream).lines().map_while(Result::ok) {
        let sent = match serde_json::from_str(&line) {
            Ok(Order::Read { epoch }) => send(&mut answers, &in_words(team.read_epoch(epoch))),
            Ok(Order::Checksum) => send(&mut answers, &in_words(team.checksum())),
            Err(_) => return,
        };
        if sent.is_err() {
            return;
        }
    }
}

fn in_words<T>(result: Result<T, Failure>) -> Result<T, String> {
    result.map_err(|failure| failure.to_string())
}

fn send(stream: &mut impl Write, message: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}
