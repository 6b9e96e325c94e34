//! The files of a filesystem, in memory.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::SystemTime;

use fuser::{Errno, FileAttr, FileType, INodeNo};

use crate::Inodes;

const BLOCK_BYTES: u32 = 4096;
/// The unit of `st_blocks`.
const SECTOR_BYTES: u64 = 512;

/// Who made a node, and what its permissions are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u16,
}

/// The contents of a node.
#[derive(Debug)]
pub(crate) enum Contents {
    File(Vec<u8>),
    Folder(BTreeMap<OsString, u64>),
    Link(PathBuf),
    Fifo,
}

/// A file, a folder, a symbolic link or a FIFO.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) contents: Contents,
    /// The name that it got last, by which faults are matched.
    pub(crate) name: OsString,
    pub(crate) owner: Owner,
    pub(crate) modified_at: SystemTime,
    links: u32,
}

impl Node {
    fn new(name: &OsStr, contents: Contents, owner: Owner) -> Self {
        let name = name.to_owned();
        Self { contents, name, owner, modified_at: SystemTime::now(), links: 1 }
    }

    pub(crate) fn bytes(&self) -> Result<&Vec<u8>, Errno> {
        match &self.contents {
            Contents::File(bytes) => Ok(bytes),
            _ => Err(Errno::EISDIR),
        }
    }

    /// Returns the bytes to be changed: the file is then a modified one.
    pub(crate) fn bytes_mut(&mut self) -> Result<&mut Vec<u8>, Errno> {
        self.modified_at = SystemTime::now();
        match &mut self.contents {
            Contents::File(bytes) => Ok(bytes),
            _ => Err(Errno::EISDIR),
        }
    }

    fn folder(&self) -> Result<&BTreeMap<OsString, u64>, Errno> {
        match &self.contents {
            Contents::Folder(entries) => Ok(entries),
            _ => Err(Errno::ENOTDIR),
        }
    }

    pub(crate) fn kind(&self) -> FileType {
        match self.contents {
            Contents::File(_) => FileType::RegularFile,
            Contents::Folder(_) => FileType::Directory,
            Contents::Link(_) => FileType::Symlink,
            Contents::Fifo => FileType::NamedPipe,
        }
    }

    fn attributes(&self, number: u64) -> FileAttr {
        let size = match &self.contents {
            Contents::File(bytes) => bytes.len() as u64,
            Contents::Link(target) => target.as_os_str().len() as u64,
            Contents::Folder(_) | Contents::Fifo => 0,
        };
        FileAttr {
            ino: INodeNo(number),
            size,
            blocks: size.div_ceil(SECTOR_BYTES),
            atime: self.modified_at,
            mtime: self.modified_at,
            ctime: self.modified_at,
            crtime: SystemTime::UNIX_EPOCH,
            kind: self.kind(),
            perm: self.owner.mode,
            nlink: self.links,
            uid: self.owner.uid,
            gid: self.owner.gid,
            rdev: 0,
            blksize: BLOCK_BYTES,
            flags: 0,
        }
    }
}

/// All nodes. The kernel names a node by a number; a node can have several.
#[derive(Debug)]
pub(crate) struct Tree {
    nodes: HashMap<u64, Node>,
    /// Numbers that stand for another one.
    aliases: HashMap<u64, u64>,
    inodes: Inodes,
    next_number: u64,
}

impl Tree {
    pub(crate) fn new(inodes: Inodes) -> Self {
        let owner = Owner { uid: 0, gid: 0, mode: 0o777 };
        let root = Node::new(OsStr::new(""), Contents::Folder(BTreeMap::new()), owner);
        let number = INodeNo::ROOT.0;
        let nodes = HashMap::from([(number, root)]);
        Self { nodes, aliases: HashMap::new(), inodes, next_number: number + 1 }
    }

    fn resolve(&self, number: INodeNo) -> u64 {
        self.aliases.get(&number.0).copied().unwrap_or(number.0)
    }

    pub(crate) fn node(&self, number: INodeNo) -> Result<&Node, Errno> {
        self.nodes.get(&self.resolve(number)).ok_or(Errno::ESTALE)
    }

    pub(crate) fn node_mut(&mut self, number: INodeNo) -> Result<&mut Node, Errno> {
        let number = self.resolve(number);
        self.nodes.get_mut(&number).ok_or(Errno::ESTALE)
    }

    pub(crate) fn attributes(&self, number: INodeNo) -> Result<FileAttr, Errno> {
        Ok(self.node(number)?.attributes(number.0))
    }

    /// Returns the attributes of an entry, with the number by which the kernel is to know it.
    pub(crate) fn look_up(&mut self, folder: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        let number = *self.node(folder)?.folder()?.get(name).ok_or(Errno::ENOENT)?;
        let known_as = match (self.inodes, self.node(INodeNo(number))?.kind()) {
            (Inodes::NewAtEachLookup, FileType::RegularFile) => self.add_alias(number),
            _ => number,
        };
        self.attributes(INodeNo(known_as))
    }

    fn add_alias(&mut self, number: u64) -> u64 {
        let alias = self.take_number();
        self.aliases.insert(alias, number);
        alias
    }

    fn take_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    pub(crate) fn add(
        &mut self,
        folder: INodeNo,
        name: &OsStr,
        contents: Contents,
        owner: Owner,
    ) -> Result<FileAttr, Errno> {
        if self.node(folder)?.folder()?.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        let number = self.take_number();
        self.nodes.insert(number, Node::new(name, contents, owner));
        self.entries_mut(folder)?.insert(name.to_owned(), number);
        self.attributes(INodeNo(number))
    }

    fn entries_mut(&mut self, folder: INodeNo) -> Result<&mut BTreeMap<OsString, u64>, Errno> {
        let node = self.node_mut(folder)?;
        node.modified_at = SystemTime::now();
        match &mut node.contents {
            Contents::Folder(entries) => Ok(entries),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// Removes an entry. A file keeps its bytes, since it may be open.
    pub(crate) fn remove(&mut self, folder: INodeNo, name: &OsStr) -> Result<(), Errno> {
        let number = *self.node(folder)?.folder()?.get(name).ok_or(Errno::ENOENT)?;
        if self.node(INodeNo(number))?.folder().is_ok_and(|entries| !entries.is_empty()) {
            return Err(Errno::ENOTEMPTY);
        }
        self.entries_mut(folder)?.remove(name);
        self.node_mut(INodeNo(number))?.links = 0;
        Ok(())
    }

    pub(crate) fn rename(
        &mut self,
        from: (INodeNo, &OsStr),
        to: (INodeNo, &OsStr),
    ) -> Result<(), Errno> {
        let number = *self.node(from.0)?.folder()?.get(from.1).ok_or(Errno::ENOENT)?;
        if self.node(to.0)?.folder()?.contains_key(to.1) {
            self.remove(to.0, to.1)?;
        }
        self.entries_mut(from.0)?.remove(from.1);
        self.entries_mut(to.0)?.insert(to.1.to_owned(), number);
        to.1.clone_into(&mut self.node_mut(INodeNo(number))?.name);
        Ok(())
    }

    /// Returns the entries of a folder: number, kind, name.
    pub(crate) fn list(&self, folder: INodeNo) -> Result<Vec<(u64, FileType, OsString)>, Errno> {
        let entries = self.node(folder)?.folder()?.iter();
        entries
            .map(|(name, number)| Ok((*number, self.node(INodeNo(*number))?.kind(), name.clone())))
            .collect()
    }
}
