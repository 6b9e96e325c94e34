//! The FUSE filesystem: answers the kernel's requests, and applies the faults.

use std::ffi::OsStr;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::tree::{Contents, Owner, Tree};
use crate::{Effect, Fault, ODirect, Options};

/// The kernel asks again each time: the test may have changed what there is.
const REMEMBERED_FOR: Duration = Duration::ZERO;

/// The state that the test and the filesystem share.
#[derive(Debug)]
pub(crate) struct Shared {
    options: Options,
    tree: Mutex<Tree>,
    faults: Mutex<Vec<Fault>>,
    pub(crate) hits: AtomicU64,
}

impl Shared {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            options,
            tree: Mutex::new(Tree::new(options.inodes)),
            faults: Mutex::default(),
            hits: AtomicU64::new(0),
        }
    }

    pub(crate) fn faults(&self) -> MutexGuard<'_, Vec<Fault>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what all faults do to a request.
    fn effects_on(&self, name: &OsStr, request: &Range<u64>) -> Vec<Effect> {
        self.faults().iter_mut().filter_map(|fault| fault.hit(name, request)).collect()
    }

    fn open_flags(&self, flags: i32) -> Result<FopenFlags, Errno> {
        if flags & libc::O_DIRECT != 0 && self.options.o_direct == ODirect::RefusedAtOpen {
            return Err(Errno::EINVAL);
        }
        Ok(if self.options.direct_io { FopenFlags::FOPEN_DIRECT_IO } else { FopenFlags::empty() })
    }

    fn read(&self, number: INodeNo, offset: u64, len: usize, flags: i32) -> Result<Vec<u8>, Errno> {
        if flags & libc::O_DIRECT != 0 && self.options.o_direct == ODirect::RefusedAtRead {
            return Err(Errno::EINVAL);
        }
        let name = self.tree().node(number)?.name.clone();
        let effects = self.effects_on(&name, &(offset..offset.saturating_add(len as u64)));
        self.hits.fetch_add(u64::from(!effects.is_empty()), Ordering::Relaxed);
        let mut len_max = len;
        for effect in effects {
            match effect {
                Effect::Error(errno) => return Err(Errno::from_i32(errno)),
                Effect::AtMost(bytes) => len_max = len_max.min(bytes),
                Effect::Delay(time) => std::thread::sleep(time),
                Effect::SetLen(len) => self.set_len(number, len)?,
            }
        }
        let tree = self.tree();
        let bytes = tree.node(number)?.bytes()?;
        let start = bytes.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
        let end = bytes.len().min(start.saturating_add(len_max));
        Ok(bytes[start..end].to_vec())
    }

    fn write(&self, number: INodeNo, offset: u64, data: &[u8]) -> Result<u32, Errno> {
        let start = usize::try_from(offset).map_err(|_| Errno::EFBIG)?;
        let end = start.checked_add(data.len()).ok_or(Errno::EFBIG)?;
        let mut tree = self.tree();
        let bytes = tree.node_mut(number)?.bytes_mut()?;
        if bytes.len() < end {
            resize(bytes, end)?;
        }
        bytes[start..end].copy_from_slice(data);
        u32::try_from(data.len()).map_err(|_| Errno::EINVAL)
    }

    fn set_len(&self, number: INodeNo, len: u64) -> Result<(), Errno> {
        let len = usize::try_from(len).map_err(|_| Errno::EFBIG)?;
        resize(self.tree().node_mut(number)?.bytes_mut()?, len)
    }

    fn add(&self, folder: INodeNo, name: &OsStr, new: NewNode) -> Result<FileAttr, Errno> {
        self.tree().add(folder, name, new.contents, new.owner)
    }
}

fn resize(bytes: &mut Vec<u8>, len: usize) -> Result<(), Errno> {
    bytes.try_reserve(len.saturating_sub(bytes.len())).map_err(|_| Errno::EFBIG)?;
    bytes.resize(len, 0);
    Ok(())
}

struct NewNode {
    contents: Contents,
    owner: Owner,
}

impl NewNode {
    fn of(request: &Request, mode: u32, umask: u32, contents: Contents) -> Self {
        let mode = (mode & !umask & 0o7777) as u16;
        Self { contents, owner: Owner { uid: request.uid(), gid: request.gid(), mode } }
    }
}

/// The filesystem as the kernel sees it.
#[derive(Debug)]
pub(crate) struct MemoryFs {
    shared: Arc<Shared>,
}

impl MemoryFs {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

fn answer_entry(reply: ReplyEntry, found: Result<FileAttr, Errno>) {
    match found {
        Ok(attributes) => reply.entry(&REMEMBERED_FOR, &attributes, Generation(0)),
        Err(errno) => reply.error(errno),
    }
}

fn answer_attributes(reply: ReplyAttr, found: Result<FileAttr, Errno>) {
    match found {
        Ok(attributes) => reply.attr(&REMEMBERED_FOR, &attributes),
        Err(errno) => reply.error(errno),
    }
}

fn answer_empty(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for MemoryFs {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer_entry(reply, self.shared.tree().look_up(parent, name));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        answer_attributes(reply, self.shared.tree().attributes(ino));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        modified_at: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = || {
            if let Some(len) = size {
                self.shared.set_len(ino, len)?;
            }
            let mut tree = self.shared.tree();
            let node = tree.node_mut(ino)?;
            node.owner.mode = mode.map_or(node.owner.mode, |mode| (mode & 0o7777) as u16);
            node.owner.uid = uid.unwrap_or(node.owner.uid);
            node.owner.gid = gid.unwrap_or(node.owner.gid);
            match modified_at {
                Some(TimeOrNow::SpecificTime(time)) => node.modified_at = time,
                Some(TimeOrNow::Now) => node.modified_at = SystemTime::now(),
                None => {}
            }
            tree.attributes(ino)
        };
        answer_attributes(reply, change());
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.shared.tree().node(ino).map(|node| &node.contents) {
            Ok(Contents::Link(target)) => reply.data(target.as_os_str().as_encoded_bytes()),
            Ok(_) => reply.error(Errno::EINVAL),
            Err(errno) => reply.error(errno),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let contents = match mode & libc::S_IFMT {
            libc::S_IFREG => Contents::File(Vec::new()),
            libc::S_IFIFO => Contents::Fifo,
            _ => return reply.error(Errno::EPERM),
        };
        answer_entry(
            reply,
            self.shared.add(parent, name, NewNode::of(request, mode, umask, contents)),
        );
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let folder = NewNode::of(request, mode, umask, Contents::Folder(Default::default()));
        answer_entry(reply, self.shared.add(parent, name, folder));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(reply, self.shared.tree().remove(parent, name));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(reply, self.shared.tree().remove(parent, name));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let link = NewNode::of(request, 0o777, 0, Contents::Link(target.to_owned()));
        answer_entry(reply, self.shared.add(parent, link_name, link));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        answer_empty(reply, self.shared.tree().rename((parent, name), (newparent, newname)));
    }

    fn open(&self, _: &Request, _: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.shared.open_flags(flags.0) {
            Ok(opened) => reply.opened(FileHandle(0), opened),
            Err(errno) => reply.error(errno),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let file = NewNode::of(request, mode, umask, Contents::File(Vec::new()));
        let made = self
            .shared
            .open_flags(flags)
            .and_then(|opened| Ok((self.shared.add(parent, name, file)?, opened)));
        match made {
            Ok((attributes, opened)) => {
                reply.created(&REMEMBERED_FOR, &attributes, Generation(0), FileHandle(0), opened);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.shared.read(ino, offset, size as usize, flags.0) {
            Ok(bytes) => reply.data(&bytes),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.shared.write(ino, offset, data) {
            Ok(written) => reply.written(written),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let entries = match self.shared.tree().list(ino) {
            Ok(entries) => entries,
            Err(errno) => return reply.error(errno),
        };
        let dots = [".", ".."].map(|dot| (ino.0, fuser::FileType::Directory, dot.into()));
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, (number, kind, name)) in dots.into_iter().chain(entries).enumerate().skip(from) {
            if reply.add(INodeNo(number), at as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}
