//! A mounted filesystem, served by a process of its own.
//!
//! The process that reads a filesystem must not serve it: a thread that waits for a page of a mapping
//! holds the lock of the process' address space, and the thread that would deliver the page may need it.
//! So the test program starts itself again, with the name of a test that calls [`serve`].

use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use nix::mount::{MntFlags, umount2};
use tempfile::TempDir;

use crate::filesystem::{MemoryFs, Shared};
use crate::{Fault, Options};

/// In a server: the folder to mount on, and the options.
const TASK: &str = "RINGMAIN_FAULT_FS";
/// Lines of a server begin with it: libtest writes to the same stream.
const MARK: &str = "fault-fs: ";
/// Requests that are answered at the same time: a delayed one must not hold up the others.
const THREADS: usize = 4;

/// A mounted filesystem, which is unmounted when this is dropped.
#[derive(Debug)]
pub struct FaultFs {
    // Before the folder that it is mounted on.
    server: RefCell<Server>,
    mount_point: TempDir,
}

impl FaultFs {
    /// Mounts an empty filesystem on a new temporary folder. `server_test` is the name of a test of this
    /// program that calls [`serve`].
    pub fn mount(options: Options, server_test: &str) -> io::Result<Self> {
        let mount_point = tempfile::Builder::new().prefix("ringmain-fault-fs-").tempdir()?;
        let server = Server::start(options, mount_point.path(), server_test)?;
        Ok(Self { server: RefCell::new(server), mount_point })
    }

    /// Returns the folder that it is mounted on.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.mount_point.path()
    }

    /// Adds a fault. A request can be hit by several.
    pub fn add(&self, fault: &Fault) {
        self.ask(&format!("add {fault}"));
    }

    /// Removes all faults.
    pub fn heal(&self) {
        self.ask("heal");
    }

    /// Returns how many requests were hit by a fault so far.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.ask("hits").parse().expect("the server counts")
    }

    fn ask(&self, what: &str) -> String {
        self.server.borrow_mut().ask(what).expect("the server of the filesystem answers")
    }
}

#[derive(Debug)]
struct Server {
    process: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Server {
    fn start(options: Options, mount_point: &Path, test: &str) -> io::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(TASK, format!("{options}\n{}", mount_point.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let questions = process.stdin.take();
        let stdout = process.stdout.take().ok_or_else(|| io::Error::other("no standard output"))?;
        let mut server = Self { process, questions, answers: BufReader::new(stdout) };
        match server.answer()?.strip_prefix("cannot be mounted: ") {
            Some(reason) => Err(io::Error::other(reason.to_owned())),
            None => Ok(server),
        }
    }

    fn ask(&mut self, what: &str) -> io::Result<String> {
        let questions = self.questions.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(questions, "{what}")?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<String> {
        loop {
            let mut line = String::new();
            if self.answers.read_line(&mut line)? == 0 {
                return Err(io::Error::other("the server of the filesystem has ended"));
            }
            // libtest's own line may stand before it.
            if let Some((_, answer)) = line.trim_end().split_once(MARK) {
                return Ok(answer.to_owned());
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It ends when there can be no more questions.
        self.questions = None;
        let _ = self.process.wait();
    }
}

/// Serves a filesystem, if this process was started for that. Elsewhere it does nothing.
pub fn serve() {
    let Ok(task) = std::env::var(TASK) else { return };
    let (options, mount_point) = task.split_once('\n').expect("options and a folder");
    let shared = Arc::new(Shared::new(options.parse().expect("options")));
    let session = match mount(&shared, Path::new(mount_point)) {
        Ok(session) => session,
        Err(error) => return say(&format!("cannot be mounted: {error}")),
    };
    say("mounted");
    for question in io::stdin().lines().map_while(Result::ok) {
        say(&answer_to(&shared, &question));
    }
    // A file that a process still holds would keep the mount busy, so the mount is detached: it is gone
    // from the tree at once. An error means that it was unmounted before.
    let _ = umount2(mount_point, MntFlags::MNT_DETACH);
    drop(session);
}

fn mount(shared: &Arc<Shared>, mount_point: &Path) -> io::Result<BackgroundSession> {
    let mut config = Config::default();
    config.mount_options =
        vec![MountOption::FSName("ringmain-fault-fs".into()), MountOption::DefaultPermissions];
    config.acl = SessionACL::All;
    config.n_threads = Some(THREADS);
    fuser::spawn_mount(MemoryFs::new(Arc::clone(shared)), mount_point, &config)
}

fn answer_to(shared: &Shared, question: &str) -> String {
    match question.split_once(' ') {
        Some(("add", fault)) => match fault.parse() {
            Ok(fault) => shared.faults().push(fault),
            Err(problem) => return format!("no fault: {problem}"),
        },
        _ if question == "heal" => shared.faults().clear(),
        _ => return shared.hits.load(Ordering::Relaxed).to_string(),
    }
    "done".to_owned()
}

fn say(line: &str) {
    let mut out = io::stdout().lock();
    writeln!(out, "{MARK}{line}").and_then(|()| out.flush()).expect("the test listens");
}
