//! Logs of strace: the reads of any program, by its system calls.
//!
//! `ringmain record` makes such a log; others can be read too (`strace -f -y -ttt -T -o LOG PROGRAM`). Each call that
//! reads a regular file becomes a batch of one read, with the bytes that it returned. Page faults of mappings are not
//! system calls: `ringmain record` collects them beside the log and passes them here.

mod call;
mod line;
mod process;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ringmain::{BatchHead, ReadBy};

use super::TraceBuilder;
use super::lines::{Fault, Line, Lines};
use crate::text::format::counted;
use call::{Call, Descriptor};
pub(super) use line::is_log;
use line::{Clock, LogLine};
use process::{Birth, Processes, Thread};

/// Each thread has one at most, so more belong to no real program.
const UNFINISHED_MAX: usize = 1 << 16;

/// A page fault of a program that is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageFault {
    /// Microseconds since 1970.
    pub(crate) at_us: u64,
    pub(crate) thread: u32,
    pub(crate) address: u64,
}

/// A process that runs when its recording begins.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownProcess {
    pub(crate) process: u32,
    pub(crate) threads: Vec<u32>,
    /// Descriptors, with their files and positions.
    pub(crate) open: Vec<(i64, PathBuf, u64)>,
    pub(crate) mappings: Vec<KnownMapping>,
}

/// A mapping of a process that runs when its recording begins.
#[derive(Clone, Debug)]
pub(crate) struct KnownMapping {
    pub(crate) addresses: Range<u64>,
    pub(crate) path: PathBuf,
    pub(crate) offset: u64,
    pub(crate) is_code: bool,
}

/// Facts about a program that its log does not contain.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beside<'a> {
    /// In the order of time.
    pub(crate) faults: &'a [PageFault],
    pub(crate) process: Option<KnownProcess>,
}

/// Parses a log. `head` is its first line, which was read before.
pub(super) fn parse(
    head: Line<'_>,
    lines: &mut Lines<impl Read>,
    beside: Beside<'_>,
    builder: &mut TraceBuilder,
) -> Result<(), Fault> {
    let mut log = Log::new(beside.faults, builder);
    if let Some(process) = beside.process {
        log.know(process);
    }
    log.line(head)?;
    while let Some(line) = lines.next()? {
        log.line(line)?;
    }
    log.finish()
}

struct Log<'a> {
    builder: &'a mut TraceBuilder,
    /// Those that are still to come.
    faults: &'a [PageFault],
    has_faults: bool,
    processes: Processes,
    /// Calls that have begun and not returned.
    unfinished: HashMap<u32, Unfinished>,
    /// Lines of threads whose parent is not known yet, until the call that makes them returns.
    held: HashMap<u32, Vec<HeldLine>>,
    /// Lines that were held and can be taken now.
    ready: VecDeque<(u32, Vec<HeldLine>)>,
    /// The log has no more lines, so no call returns any more.
    is_over: bool,
    clock: Clock,
    /// Files that are mapped as programs or libraries.
    code: HashSet<PathBuf>,
    mapped: HashSet<PathBuf>,
    page_bytes: u64,
    queue_calls: u64,
    calls_left_out: u64,
}

struct Unfinished {
    at_us: u64,
    text: Vec<u8>,
}

struct HeldLine {
    at_us: u64,
    text: Vec<u8>,
}

impl<'a> Log<'a> {
    fn new(faults: &'a [PageFault], builder: &'a mut TraceBuilder) -> Self {
        Self {
            builder,
            faults,
            has_faults: !faults.is_empty(),
            processes: Processes::default(),
            unfinished: HashMap::new(),
            held: HashMap::new(),
            ready: VecDeque::new(),
            is_over: false,
            clock: Clock::default(),
            code: HashSet::new(),
            mapped: HashSet::new(),
            page_bytes: page_bytes(),
            queue_calls: 0,
            calls_left_out: 0,
        }
    }

    /// Takes over what the process had open and mapped before the log begins.
    fn know(&mut self, process: KnownProcess) {
        let KnownProcess { process, threads, open, mappings } = process;
        let Some(leader) = self.processes.thread(process) else { return };
        for thread in threads.into_iter().filter(|thread| *thread != process) {
            let birth =
                Birth { parent: process, is_thread: true, shares_files: true, shares_memory: true };
            self.processes.end_birth(birth, Some(thread));
        }
        for (number, path, position) in open {
            let descriptor = Descriptor { number, path: Some(path) };
            leader.file(&descriptor).seek(position);
        }
        for KnownMapping { addresses, path, offset, is_code } in mappings {
            if !may_be_regular(&path) {
                continue;
            }
            let files = if is_code { &mut self.code } else { &mut self.mapped };
            files.insert(path.clone());
            leader.mappings().map(addresses, Some((path.into(), offset)));
        }
    }

    fn line(&mut self, line: Line<'_>) -> Result<(), Fault> {
        // The number at the end of a line that was cut off may lack digits.
        if !line.is_whole {
            return Ok(());
        }
        let LogLine { thread, at_us, rest } = LogLine::parse(line.text);
        let (id, at_us) = (thread.unwrap_or(0), self.clock.at_us(at_us));
        let place = |message| Fault::at(line.number, 1, message);
        self.faults_before(at_us).map_err(place)?;
        self.accept(id, at_us, rest).map_err(place)?;
        self.take_ready().map_err(place)
    }

    /// Takes a line, or holds it back if its thread may be one whose parent is not known yet.
    fn accept(&mut self, id: u32, at_us: u64, text: &[u8]) -> Result<(), String> {
        if !self.is_over && self.processes.may_be_unborn(id) {
            self.held.entry(id).or_default().push(HeldLine { at_us, text: text.to_vec() });
            return Ok(());
        }
        self.event(id, at_us, text)
    }

    /// Takes the lines of threads whose parent is known now, which may make others known. If then no call that
    /// makes a thread is left, the other threads have no parent in the log, and all lines are taken.
    fn take_ready(&mut self) -> Result<(), String> {
        loop {
            while let Some((id, lines)) = self.ready.pop_front() {
                for HeldLine { at_us, text } in lines {
                    self.accept(id, at_us, &text)?;
                }
            }
            if self.held.is_empty() || self.processes.has_births() {
                return Ok(());
            }
            self.ready.extend(self.held.drain());
        }
    }

    /// A line without its thread and time.
    fn event(&mut self, id: u32, at_us: u64, rest: &[u8]) -> Result<(), String> {
        if let Some(begun) = rest.strip_suffix(b"<unfinished ...>") {
            self.begin(id, at_us, begun);
            return Ok(());
        }
        if let Some(resumed) = rest.strip_prefix(b"<... ") {
            return self.resume(id, resumed);
        }
        if rest.starts_with(b"+++ ") {
            self.processes.end_thread(id);
            return Ok(());
        }
        match Call::parse(rest) {
            Some(call) => self.call(id, at_us, &call),
            // A signal, or a line that was cut off.
            None => Ok(()),
        }
    }

    /// A call has begun, and another thread calls before it returns.
    fn begin(&mut self, id: u32, at_us: u64, text: &[u8]) {
        let has = |flag: &str| text.windows(flag.len()).any(|part| part == flag.as_bytes());
        if is_birth(text.split(|byte| *byte == b'(').next().unwrap_or_default()) {
            // Without this, a thread that the log has not shown would be taken for its own child.
            if self.processes.thread(id).is_some() {
                self.processes.begin_birth(birth(id, has));
            }
        }
        if self.unfinished.len() < UNFINISHED_MAX {
            self.unfinished.insert(id, Unfinished { at_us, text: text.to_vec() });
        }
    }

    fn resume(&mut self, id: u32, resumed: &[u8]) -> Result<(), String> {
        let Some(Unfinished { at_us, mut text }) = self.unfinished.remove(&id) else {
            return Ok(());
        };
        let end = resumed.windows(8).position(|part| part == b"resumed>");
        text.extend_from_slice(&resumed[end.map_or(resumed.len(), |end| end + 8)..]);
        match Call::parse(&text) {
            Some(call) => self.call(id, at_us, &call),
            None => Ok(()),
        }
    }

    fn call(&mut self, id: u32, at_us: u64, call: &Call<'_>) -> Result<(), String> {
        let Some(thread) = self.processes.thread(id) else {
            self.calls_left_out += 1;
            return Ok(());
        };
        match call.name {
            "read" | "readv" => self.read(&thread, at_us, call, (0, None))?,
            "pread64" | "preadv" | "preadv2" => self.read(&thread, at_us, call, (0, Some(3)))?,
            // These copy from a file in the kernel.
            "sendfile" => self.read(&thread, at_us, call, (1, Some(2)))?,
            "copy_file_range" | "splice" => self.read(&thread, at_us, call, (0, Some(1)))?,
            "open" | "creat" => open(&thread, call, 0),
            "openat" | "openat2" => open(&thread, call, 1),
            "close" => {
                if let Some(descriptor) = call.descriptor(0) {
                    thread.close(descriptor.number);
                }
            }
            "dup" | "dup2" | "dup3" => duplicate(&thread, call),
            "fcntl" if call.arg(1).starts_with(b"F_DUPFD") => duplicate(&thread, call),
            "lseek" => {
                if let (Some(descriptor), Some(position)) = (call.descriptor(0), call.returned()) {
                    thread.file(&descriptor).seek(position);
                }
            }
            "mmap" => self.map(&thread, call),
            "munmap" if call.returned() == Some(0) => {
                if let Some(addresses) = addresses(call.number(0), call.number(1)) {
                    thread.mappings().unmap(addresses);
                }
            }
            "mremap" => {
                let from = addresses(call.number(0), call.number(1));
                if let (Some(from), Some(to)) = (from, addresses(call.returned(), call.number(2))) {
                    thread.mappings().remap(from, to);
                }
            }
            "execve" | "execveat" if call.returned() == Some(0) => self.processes.execute(id),
            "io_uring_enter" | "io_submit" => self.queue_calls += 1,
            name if is_birth(name.as_bytes()) => {
                let child = call.returned().and_then(|child| u32::try_from(child).ok());
                let child = child.filter(|child| *child > 0);
                self.processes.end_birth(birth(id, |flag| call.has_flag(flag)), child);
                let held = child.and_then(|child| Some((child, self.held.remove(&child)?)));
                self.ready.extend(held);
            }
            _ => {}
        }
        Ok(())
    }

    /// A call that reads: the places of the descriptor and, if it has one, of the offset. Without an offset it reads
    /// at the current position. So does `preadv2` with the offset -1, which strace may print as unsigned.
    fn read(
        &mut self,
        thread: &Thread,
        at_us: u64,
        call: &Call<'_>,
        (descriptor, offset): (usize, Option<usize>),
    ) -> Result<(), String> {
        let (Some(descriptor), Some(bytes)) = (call.descriptor(descriptor), call.returned()) else {
            return Ok(());
        };
        let file = thread.file(&descriptor);
        let given = offset.and_then(|at| call.number(at)).filter(|offset| *offset != u64::MAX);
        let offset = given.unwrap_or_else(|| file.advance(bytes));
        self.add(thread, at_us, call.took_us, file.path(), offset, bytes)
    }

    fn add(
        &mut self,
        thread: &Thread,
        at_us: u64,
        took_us: u64,
        path: Option<Rc<Path>>,
        offset: u64,
        bytes: u64,
    ) -> Result<(), String> {
        let Some(path) = path.filter(|path| bytes > 0 && may_be_regular(path)) else {
            return Ok(());
        };
        let head = BatchHead { by: ReadBy::Call, at_us, took_us, thread: thread.number };
        self.builder.name_thread(thread.number, thread.process);
        self.builder.begin_batch(head);
        self.builder.read(&path, offset, bytes)
    }

    fn map(&mut self, thread: &Thread, call: &Call<'_>) {
        let Some(addresses) = addresses(call.returned(), call.number(1)) else { return };
        let file = call.descriptor(4).filter(|descriptor| descriptor.number >= 0);
        let path = file.and_then(|descriptor| thread.file(&descriptor).path());
        let path = path.filter(|path| may_be_regular(path));
        if let Some(path) = &path {
            let files = if call.has_flag("PROT_EXEC") { &mut self.code } else { &mut self.mapped };
            files.insert(path.to_path_buf());
        }
        let file = path.map(|path| (path, call.number(5).unwrap_or(0)));
        thread.mappings().map(addresses, file);
    }

    /// Adds the page faults until this time.
    fn faults_before(&mut self, at_us: u64) -> Result<(), String> {
        while let Some((fault, rest)) = self.faults.split_first().filter(|(f, _)| f.at_us < at_us) {
            self.faults = rest;
            self.fault(fault)?;
        }
        Ok(())
    }

    fn fault(&mut self, fault: &PageFault) -> Result<(), String> {
        // Only threads of the program are in the log.
        let Some(thread) = self.processes.known_thread(fault.thread) else { return Ok(()) };
        let found =
            thread.mappings().at(fault.address).map(|(m, offset)| (Rc::clone(&m.path), offset));
        let Some((path, offset)) = found.filter(|(path, _)| !self.code.contains(&**path)) else {
            return Ok(());
        };
        let offset = offset - offset % self.page_bytes;
        let (by, at_us, took_us) = (ReadBy::Fault, fault.at_us, 0);
        self.builder.name_thread(thread.number, thread.process);
        self.builder.begin_batch(BatchHead { by, at_us, took_us, thread: thread.number });
        self.builder.read(&path, offset, self.page_bytes)
    }

    fn finish(mut self) -> Result<(), Fault> {
        self.is_over = true;
        self.ready.extend(self.held.drain());
        self.take_ready().map_err(Fault::whole)?;
        self.faults_before(u64::MAX).map_err(Fault::whole)?;
        self.builder.start_at_first();
        if self.queue_calls > 0 {
            let calls = counted(usize::try_from(self.queue_calls).unwrap_or(usize::MAX), "call");
            let note = format!(
                "{calls} of io_uring or libaio; what the program read that way is not recorded"
            );
            self.builder.note(note);
        }
        if self.calls_left_out > 0 {
            let calls = self.calls_left_out;
            self.builder.note(format!("{calls} calls are left out: too many threads run at once"));
        }
        let mapped = self.mapped.difference(&self.code).count();
        if mapped > 0 && !self.has_faults {
            let files = counted(mapped, "mapped file");
            let note = format!("{files}; what the program read that way is not recorded");
            self.builder.note(note);
        }
        Ok(())
    }
}

/// The size of a page; what nearly every machine has if the system does not say.
fn page_bytes() -> u64 {
    let found = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE);
    found.ok().flatten().and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(4096)
}

fn open(thread: &Thread, call: &Call<'_>, path_at: usize) {
    let Some(descriptor) = call.returned_descriptor() else { return };
    // Without the name of the descriptor (`strace -y`), that of the argument is used if it is absolute.
    let named = descriptor.path.clone().or_else(|| call.path(path_at));
    thread.open(&descriptor, named.as_deref().filter(|path| path.is_absolute()));
}

fn duplicate(thread: &Thread, call: &Call<'_>) {
    if let (Some(original), Some(copy)) = (call.descriptor(0), call.returned_descriptor()) {
        thread.duplicate(&original, copy.number);
    }
}

fn is_birth(name: &[u8]) -> bool {
    matches!(name, b"clone" | b"clone3" | b"fork" | b"vfork")
}

fn birth(parent: u32, has_flag: impl Fn(&str) -> bool) -> Birth {
    Birth {
        parent,
        is_thread: has_flag("CLONE_THREAD"),
        shares_files: has_flag("CLONE_FILES"),
        shares_memory: has_flag("CLONE_VM"),
    }
}

fn addresses(start: Option<u64>, bytes: Option<u64>) -> Option<Range<u64>> {
    let start = start?;
    Some(start..start.checked_add(bytes?)?)
}

/// Pipes, sockets and deleted files have no absolute path. Those of devices and of the kernel's own files are known.
fn may_be_regular(path: &Path) -> bool {
    path.is_absolute() && !["/dev", "/proc", "/sys"].iter().any(|dir| path.starts_with(dir))
}

#[cfg(test)]
mod tests;
