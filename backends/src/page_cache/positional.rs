//! Backends that read with positional calls: `pread` and `uncached`.
//!
//! A batch is read in two sweeps. The first asks for every range without waiting: cached parts are
//! copied, and the kernel begins to read the rest, all of it at once. The second waits for the
//! missing parts. For a warm batch the first sweep is enough: one call for each read.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use super::buffered_file::BufferedFile;
use super::copiers::{CopiedBytes, Copiers};
use super::flight;
use crate::fault::Injection;
use crate::file::HandleOwner;
use crate::handle_cache::{Cached, HandleCache, Pinned, ProcessHandles, for_read, open_plain};
use crate::retry::{Shortfall, read_fully};
use crate::{
    BackendKind, BackendOptions, Capabilities, Error, FileHandle, Read, ReadBackend, Result, sys,
};

type ReadAt = fn(&File, &mut [u8], u64) -> io::Result<usize>;

/// The two calls of a backend.
#[derive(Clone, Copy, Debug)]
struct ReadCalls {
    /// Waits for the device.
    read: ReadAt,
    /// Copies what the page cache has, and lets the kernel begin to read the rest.
    read_nowait: ReadAt,
}

/// Positional reads through a cache of open files.
///
/// As `pread` it runs on every platform and goes through the page cache. As `uncached` (Linux
/// 6.14 and later) it does too, but the pages leave the cache with the read.
#[derive(Debug)]
pub(crate) struct PositionalBackend {
    kind: BackendKind,
    calls: ReadCalls,
    handles: ProcessHandles<BufferedFile>,
    copiers: Copiers,
    faults: Injection,
}

impl PositionalBackend {
    /// `pread`.
    pub(crate) fn pread(options: &BackendOptions) -> Result<Self> {
        Self::pread_for(options, HandleOwner::unique())
    }

    /// `pread` as a part of another backend: it reads all files of this owner.
    pub(crate) fn pread_for(options: &BackendOptions, owner: HandleOwner) -> Result<Self> {
        let calls = ReadCalls { read: sys::read_at, read_nowait: sys::read_cached_now };
        Self::new(BackendKind::Pread, options, calls, open_plain, owner)
    }

    /// `preadv2` with `RWF_DONTCACHE`. Whether the filesystem has it shows when a file is opened.
    pub(crate) fn uncached(options: &BackendOptions) -> Result<Self> {
        let calls = ReadCalls { read: sys::read_uncached, read_nowait: sys::read_uncached_now };
        Self::new(BackendKind::Uncached, options, calls, open_uncached, HandleOwner::unique())
    }

    fn new(
        kind: BackendKind,
        options: &BackendOptions,
        calls: ReadCalls,
        open: fn(BackendKind, &Path) -> Result<File>,
        owner: HandleOwner,
    ) -> Result<Self> {
        options.validate()?;
        let (open_max, access) = (options.open_files_max, options.access);
        let open = move |path: &Path| Ok(BufferedFile::new(open(kind, path)?, access));
        let handles = ProcessHandles::new(owner, kind, open_max, open);
        // Threads that read different files must not wait for one another's descriptor.
        let copiers = Copiers::new(options.threads_max.min(options.open_files_max));
        Ok(Self { kind, calls, handles, copiers, faults: Injection::current() })
    }

    /// Copies the part of the read that the page cache has. It never waits, neither for the device
    /// nor for a file. Returns false if that is not all of the read; then the kernel has begun to
    /// read the rest. Returns `None` if it cannot tell.
    pub(crate) fn read_nowait(&self, read: &mut Read<'_>) -> Option<bool> {
        let file = self.handles.get().try_acquire(read.file()).ok()??;
        file.expect_batch();
        read.end()?;
        let (offset, len) = (read.offset(), read.len());
        let mut read_nowait = self.faults.wrap(1, self.calls.read_nowait);
        let copied = file.read_nowait(read.dst(), offset, &mut read_nowait)?;
        Some(copied == len)
    }

    /// Reads a part of a stream: the kernel is to read ahead of it.
    pub(crate) fn read_stream(&self, read: &mut Read<'_>) -> Result<()> {
        let acquired = self.handles.get().acquire(read.file());
        let pin = acquired.map_err(|error| for_read(error, read, 0))?;
        pin.expect_stream();
        self.read_rest(&pin, read, 0, 0)
    }

    /// Reads a batch, and calls `tell` for every read with whether the page cache had all of it;
    /// not for a read that is a batch of its own.
    pub(crate) fn read_batch_and_tell(
        &self,
        reads: &mut [Read<'_>],
        mut tell: impl FnMut(&Read<'_>, bool),
    ) -> Result<()> {
        let (mut first, mut rest) = (0, reads);
        while !rest.is_empty() {
            let len = flight::reads_together(rest);
            let (together, behind) = rest.split_at_mut(len);
            match together {
                [read] if read.is_empty() => {}
                [read] => self.read_single(read, first)?,
                together => self.read_together(together, first, &mut tell)?,
            }
            (first, rest) = (first + len, behind);
        }
        Ok(())
    }

    /// Reads what a read lacks beyond its first `done` bytes, waiting for the device.
    fn read_rest(
        &self,
        file: &BufferedFile,
        read: &mut Read<'_>,
        done: usize,
        index: usize,
    ) -> Result<()> {
        let (file, offset) = (file.file(), read.offset());
        let outcome = if read.end().is_none() {
            Err(sys::file_len(file).map_or_else(Shortfall::Io, Shortfall::PastEnd))
        } else {
            let read_at = self.faults.wrap(1, self.calls.read);
            read_fully(file, &mut read.dst()[done..], offset + done as u64, read_at)
        };
        outcome.map_err(|shortfall| read.shortfall_error(self.kind, index, shortfall))
    }

    /// Reads one read by itself. `index` is its place in the batch, for errors.
    pub(crate) fn read_single(&self, read: &mut Read<'_>, index: usize) -> Result<()> {
        let acquired = self.handles.get().acquire(read.file());
        let pin = acquired.map_err(|error| for_read(error, read, index))?;
        pin.expect_single(read.offset(), read.end().unwrap_or(u64::MAX));
        self.read_rest(&pin, read, 0, index)
    }

    /// Reads a part of a batch whose device reads may all be in flight together. `first` is the
    /// index of its first read in the batch.
    fn read_together(
        &self,
        together: &mut [Read<'_>],
        first: usize,
        tell: &mut impl FnMut(&Read<'_>, bool),
    ) -> Result<()> {
        let mut copied = CopiedBytes::from_elem(None, together.len());
        let copy = |reads: &mut [Read<'_>], copied: &mut [_]| self.copy_nowait(reads, copied);
        self.copiers.share(together, &mut copied, copy);
        for (read, copied) in together.iter().zip(&copied) {
            if let Some(copied) = copied {
                tell(read, *copied == read.len());
            }
        }
        let mut files = LastFile { handles: self.handles.get(), last: None };
        let mut is_asked_for = !flight::is_worth_timing(together);
        for at in 0..together.len() {
            let (read, index) = (&mut together[at], first + at);
            let done = copied[at].unwrap_or(0);
            if done == read.len() {
                continue;
            }
            let file = files.pin(read).map_err(|error| for_read(error, read, index))?;
            let started = (!is_asked_for && !file.answers_nowait()).then(Instant::now);
            self.read_rest(file, read, done, index)?;
            if started.is_some_and(|started| flight::has_waited(started, read.len())) {
                files.ask_for(&together[at + 1..]);
                is_asked_for = true;
            }
        }
        Ok(())
    }

    /// Copies what the page cache has of each read, without waiting, and notes how many bytes that is. The kernel
    /// begins to read the rest.
    fn copy_nowait(&self, reads: &mut [Read<'_>], copied: &mut [Option<usize>]) {
        let mut files = LastFile { handles: self.handles.get(), last: None };
        let mut read_nowait = self.faults.wrap(1, self.calls.read_nowait);
        for (read, copied) in reads.iter_mut().zip(copied) {
            if read.is_empty() || read.end().is_none() {
                continue;
            }
            // A file that cannot be opened is reported by the second sweep, in the order of the
            // batch.
            let Ok(file) = files.pin(read) else { continue };
            file.expect_batch();
            let offset = read.offset();
            *copied = file.read_nowait(read.dst(), offset, &mut read_nowait);
        }
    }
}

/// The file of the read before, kept for the next one: batches often stay with a file.
struct LastFile<'a, 'r> {
    handles: &'a HandleCache<BufferedFile>,
    last: Option<(&'r FileHandle, Pinned<'a, BufferedFile>)>,
}

impl<'r> LastFile<'_, 'r> {
    /// Asks the system to begin to read all of these. Where every read waits, this puts the rest of
    /// a cold batch in flight together.
    fn ask_for(&mut self, reads: &[Read<'r>]) {
        for read in reads {
            if let (Some(end), Ok(file)) = (read.end(), self.pin(read)) {
                let _hint = sys::prefetch_cached(file.file(), read.offset()..end);
            }
        }
    }

    fn pin(&mut self, read: &Read<'r>) -> Result<&BufferedFile> {
        let file = read.file();
        if self.last.as_ref().is_none_or(|(last, _)| !last.is_clone_of(file)) {
            self.last = None; // Never wait for a slot while holding one.
            self.last = Some((file, self.handles.acquire(file)?));
        }
        match &self.last {
            Some((_, pin)) => Ok(pin),
            None => unreachable!("filled above"),
        }
    }
}

fn open_uncached(backend: BackendKind, path: &Path) -> Result<File> {
    let file = open_plain(backend, path)?;
    sys::supports_uncached(&file).map_err(|error| Error::FileUnsupported {
        backend,
        path: path.into(),
        reason: format!("RWF_DONTCACHE is refused ({error})"),
        way_out: match sys::errno_name(&error) {
            Some("EPERM") => "allow preadv2 with flags in the seccomp profile of the container",
            _ => "use Linux 6.14 or later, and ext4 or XFS",
        }
        .into(),
    })?;
    Ok(file)
}

impl ReadBackend for PositionalBackend {
    fn kind(&self) -> BackendKind {
        self.kind
    }

    fn capabilities(&self) -> Capabilities {
        let uncached = self.kind == BackendKind::Uncached;
        let features = if uncached { vec!["RWF_DONTCACHE".to_owned()] } else { Vec::new() };
        Capabilities { bypasses_page_cache: uncached, features, ..Capabilities::new(self.kind) }
    }

    crate::forward_to!(handles: open, len, expect, stats);

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        self.read_batch_and_tell(reads, |_, _| {})
    }

    fn prefetch(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        let pin = self.handles.get().acquire(file)?;
        let _hint = sys::prefetch_cached(pin.file(), range);
        Ok(())
    }

    fn release(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        let pin = self.handles.get().acquire(file)?;
        let _hint = sys::release_cached(pin.file(), range);
        Ok(())
    }
}
