//! The open files and the mappings of the processes in a log.
//!
//! A call that reads at the current position of a file does not contain that position, and a page fault does not
//! name the file that it reads. Both follow from the earlier calls of the process and of its parents.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

use super::call::Descriptor;

/// More threads at once than this are left out: a log that is made to waste memory has many.
const THREADS_MAX: usize = 1 << 16;

/// The entries that all living processes together have copied from their parents. A process beyond that begins
/// without files and mappings.
const COPIED_ENTRIES_MAX: usize = 1 << 18;

/// Every thread that the log has shown and that has not ended.
#[derive(Debug, Default)]
pub(super) struct Processes {
    threads: HashMap<u32, Thread>,
    /// Calls that make a thread or a process and have not returned, by the thread that calls. The child may call
    /// first.
    births: HashMap<u32, Birth>,
    next_number: u32,
    copied_entries: usize,
}

/// A thread.
#[derive(Clone, Debug)]
pub(super) struct Thread {
    /// A small number, which no other thread of the log has.
    pub(super) number: u32,
    pub(super) process: u32,
    /// The number of entries that it has copied from its parent.
    copied_entries: usize,
    files: Rc<RefCell<HashMap<i64, Rc<OpenFile>>>>,
    mappings: Rc<RefCell<Mappings>>,
}

/// A file that was opened. Descriptors that were duplicated or inherited share its position.
#[derive(Debug, Default)]
pub(super) struct OpenFile {
    path: RefCell<Option<Rc<Path>>>,
    position: Cell<u64>,
}

/// The parts that a new thread shares with the one that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Birth {
    pub(super) parent: u32,
    pub(super) is_thread: bool,
    pub(super) shares_files: bool,
    pub(super) shares_memory: bool,
}

impl Processes {
    /// Returns the thread, which is new if the log has not shown it before; `None` if there are too many.
    pub(super) fn thread(&mut self, id: u32) -> Option<Thread> {
        match self.threads.get(&id) {
            Some(thread) => Some(thread.clone()),
            None => self.add(id, None),
        }
    }

    /// Returns the thread if the log has shown it.
    pub(super) fn known_thread(&self, id: u32) -> Option<Thread> {
        self.threads.get(&id).cloned()
    }

    pub(super) fn has_births(&self) -> bool {
        !self.births.is_empty()
    }

    /// Whether the log has not shown the thread, and a call that may make it has not returned.
    pub(super) fn may_be_unborn(&self, id: u32) -> bool {
        !self.births.is_empty() && !self.threads.contains_key(&id)
    }

    /// A call that makes a thread has begun.
    pub(super) fn begin_birth(&mut self, birth: Birth) {
        self.births.insert(birth.parent, birth);
    }

    /// A call that makes a thread has returned; `child` is `None` if it failed.
    pub(super) fn end_birth(&mut self, birth: Birth, child: Option<u32>) {
        self.births.remove(&birth.parent);
        if let Some(child) = child.filter(|child| !self.threads.contains_key(child)) {
            self.add(child, Some(birth));
        }
    }

    pub(super) fn end_thread(&mut self, id: u32) {
        self.births.remove(&id);
        if let Some(thread) = self.threads.remove(&id) {
            self.copied_entries -= thread.copied_entries;
        }
    }

    fn add(&mut self, id: u32, birth: Option<Birth>) -> Option<Thread> {
        if self.threads.len() == THREADS_MAX {
            return None;
        }
        let parent = birth.and_then(|birth| self.threads.get(&birth.parent).map(|p| (birth, p)));
        let number = self.next_number;
        let entries_max = COPIED_ENTRIES_MAX - self.copied_entries;
        let thread = match parent {
            Some((birth, parent)) => parent.make(birth, number, id, entries_max),
            None => Thread {
                number,
                process: id,
                copied_entries: 0,
                files: Rc::default(),
                mappings: Rc::default(),
            },
        };
        self.next_number += 1;
        self.copied_entries += thread.copied_entries;
        self.threads.insert(id, thread.clone());
        Some(thread)
    }

    /// The thread runs another program: its mappings are gone.
    pub(super) fn execute(&mut self, id: u32) {
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.mappings = Rc::default();
        }
    }
}

impl Thread {
    fn make(&self, birth: Birth, number: u32, id: u32, entries_max: usize) -> Self {
        let mut copied_entries = 0;
        let mut may_copy = |entries: usize| {
            let fits = copied_entries + entries <= entries_max;
            copied_entries += if fits { entries } else { 0 };
            fits
        };
        let files = match birth.shares_files {
            true => Rc::clone(&self.files),
            false if may_copy(self.files.borrow().len()) => {
                Rc::new(RefCell::new(self.files.borrow().clone()))
            }
            false => Rc::default(),
        };
        let mappings = match birth.shares_memory {
            true => Rc::clone(&self.mappings),
            false if may_copy(self.mappings.borrow().by_start.len()) => {
                Rc::new(RefCell::new(self.mappings.borrow().clone()))
            }
            false => Rc::default(),
        };
        let process = if birth.is_thread { self.process } else { id };
        Self { number, process, copied_entries, files, mappings }
    }

    /// A call has opened a file.
    pub(super) fn open(&self, descriptor: &Descriptor, path: Option<&Path>) {
        let file = OpenFile::default();
        file.name(path);
        self.files.borrow_mut().insert(descriptor.number, Rc::new(file));
    }

    pub(super) fn close(&self, number: i64) {
        self.files.borrow_mut().remove(&number);
    }

    /// `copy` is the same open file as `original`.
    pub(super) fn duplicate(&self, original: &Descriptor, copy: i64) {
        let file = self.file(original);
        self.files.borrow_mut().insert(copy, file);
    }

    /// Returns the open file. One that was opened before the log begins is taken to be at its beginning.
    pub(super) fn file(&self, descriptor: &Descriptor) -> Rc<OpenFile> {
        let mut files = self.files.borrow_mut();
        let file = Rc::clone(files.entry(descriptor.number).or_default());
        file.name(descriptor.path.as_deref());
        file
    }

    pub(super) fn mappings(&self) -> std::cell::RefMut<'_, Mappings> {
        self.mappings.borrow_mut()
    }
}

impl OpenFile {
    /// The log names the file at most calls, and it may be renamed meanwhile.
    fn name(&self, path: Option<&Path>) {
        let Some(path) = path else { return };
        if self.path.borrow().as_deref() != Some(path) {
            *self.path.borrow_mut() = Some(path.into());
        }
    }

    pub(super) fn path(&self) -> Option<Rc<Path>> {
        self.path.borrow().clone()
    }

    /// Returns the position, and moves it behind these bytes.
    pub(super) fn advance(&self, bytes: u64) -> u64 {
        self.position.replace(self.position.get().saturating_add(bytes))
    }

    pub(super) fn seek(&self, position: u64) {
        self.position.set(position);
    }
}

/// The mapped files of an address space.
#[derive(Clone, Debug, Default)]
pub(super) struct Mappings {
    /// Keyed by the first address. They do not overlap.
    by_start: BTreeMap<u64, Mapping>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    end: u64,
    pub(super) path: Rc<Path>,
    /// Where in the file it begins.
    offset: u64,
}

impl Mappings {
    /// A new mapping replaces what was at its addresses. One without a file is memory.
    pub(super) fn map(&mut self, addresses: Range<u64>, file: Option<(Rc<Path>, u64)>) {
        self.unmap(addresses.clone());
        if let Some((path, offset)) = file.filter(|_| !addresses.is_empty()) {
            self.by_start.insert(addresses.start, Mapping { end: addresses.end, path, offset });
        }
    }

    pub(super) fn unmap(&mut self, addresses: Range<u64>) {
        // The last one that begins before the addresses may reach into them, and beyond.
        let first = self.by_start.range(..addresses.start).next_back();
        let first = first.filter(|(_, m)| m.end > addresses.start).map(|(start, _)| *start);
        let others = self.by_start.range(addresses.clone());
        let starts: Vec<u64> = first.into_iter().chain(others.map(|(start, _)| *start)).collect();
        for start in starts {
            let Some(mapping) = self.by_start.remove(&start) else { continue };
            if start < addresses.start {
                self.by_start.insert(start, Mapping { end: addresses.start, ..mapping.clone() });
            }
            if mapping.end > addresses.end {
                let offset = mapping.offset.saturating_add(addresses.end - start);
                self.by_start.insert(addresses.end, Mapping { offset, ..mapping });
            }
        }
    }

    /// A mapping was moved or its size changed.
    pub(super) fn remap(&mut self, from: Range<u64>, to: Range<u64>) {
        let moved = self.at(from.start).map(|(mapping, offset)| (Rc::clone(&mapping.path), offset));
        self.unmap(from);
        self.map(to, moved);
    }

    /// Returns the mapping at an address, and where in its file that address is.
    pub(super) fn at(&self, address: u64) -> Option<(&Mapping, u64)> {
        let (start, mapping) = self.by_start.range(..=address).next_back()?;
        let is_inside = address < mapping.end;
        is_inside.then(|| (mapping, mapping.offset.saturating_add(address - start)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn birth(parent: u32, is_thread: bool) -> Birth {
        Birth { parent, is_thread, shares_files: is_thread, shares_memory: is_thread }
    }

    fn descriptor(number: i64) -> Descriptor {
        Descriptor { number, path: None }
    }

    #[test]
    fn threads_share_descriptors_and_processes_share_positions() {
        let mut processes = Processes::default();
        let parent = processes.thread(1).unwrap();
        parent.open(&descriptor(3), Some(Path::new("/a")));
        processes.end_birth(birth(1, true), Some(2));
        processes.end_birth(birth(1, false), Some(9));
        let (thread, process) = (processes.thread(2).unwrap(), processes.thread(9).unwrap());
        assert_eq!((parent.process, thread.process, process.process), (1, 1, 9));
        assert_eq!(parent.file(&descriptor(3)).advance(10), 0);
        assert_eq!(thread.file(&descriptor(3)).advance(10), 10);
        assert_eq!(process.file(&descriptor(3)).advance(10), 20);
        // A process that closes a descriptor closes its own; a thread closes that of all.
        process.close(3);
        assert_eq!(parent.file(&descriptor(3)).advance(1), 30);
        thread.close(3);
        assert_eq!(parent.file(&descriptor(3)).advance(1), 0);
    }

    #[test]
    fn a_thread_may_be_unborn_while_a_call_has_not_returned() {
        let mut processes = Processes::default();
        processes.thread(1).unwrap().file(&descriptor(3)).seek(7);
        assert!(!processes.may_be_unborn(5));
        processes.begin_birth(birth(1, false));
        assert!(processes.may_be_unborn(5) && !processes.may_be_unborn(1));
        processes.end_birth(birth(1, false), Some(5));
        assert_eq!(processes.known_thread(5).unwrap().file(&descriptor(3)).advance(0), 7);
        assert!(!processes.may_be_unborn(6) && processes.known_thread(6).is_none());
    }

    #[test]
    fn processes_copy_a_bounded_number_of_entries() {
        let mut processes = Processes::default();
        let parent = processes.thread(1).unwrap();
        (0..1000).for_each(|number| parent.open(&descriptor(number), None));
        let fits = COPIED_ENTRIES_MAX / 1000;
        for child in 2..1000 {
            processes.end_birth(birth(1, false), Some(child));
            let files = processes.known_thread(child).unwrap().files.borrow().len();
            assert_eq!(files, if child as usize - 2 < fits { 1000 } else { 0 }, "{child}");
        }
        // A process that ends makes room for another one.
        processes.end_thread(2);
        processes.end_birth(birth(1, false), Some(5000));
        assert_eq!(processes.known_thread(5000).unwrap().files.borrow().len(), 1000);
    }

    #[test]
    fn duplicates_share_a_position() {
        let thread = Processes::default().thread(1).unwrap();
        thread.duplicate(&descriptor(3), 8);
        thread.file(&descriptor(8)).seek(100);
        assert_eq!(thread.file(&descriptor(3)).advance(0), 100);
    }

    #[test]
    fn mappings_are_cut_moved_and_found() {
        let mut mappings = Mappings::default();
        let file: Rc<Path> = Path::new("/a").into();
        mappings.map(0x1000..0x9000, Some((Rc::clone(&file), 0x100_0000)));
        let offset_at = |mappings: &Mappings, at| mappings.at(at).map(|(_, offset)| offset);
        assert_eq!(offset_at(&mappings, 0x1000), Some(0x100_0000));
        assert_eq!(offset_at(&mappings, 0x9000), None);
        mappings.unmap(0x3000..0x5000);
        assert_eq!(offset_at(&mappings, 0x2FFF), Some(0x100_1FFF));
        assert_eq!(offset_at(&mappings, 0x3000), None);
        assert_eq!(offset_at(&mappings, 0x5000), Some(0x100_4000));
        mappings.remap(0x5000..0x9000, 0x10_0000..0x10_8000);
        assert_eq!(offset_at(&mappings, 0x5000), None);
        assert_eq!(offset_at(&mappings, 0x10_4000), Some(0x100_8000));
        // Memory without a file takes the place of a file.
        mappings.map(0x0..0x2000, None);
        assert_eq!(offset_at(&mappings, 0x1000), None);
        assert_eq!(offset_at(&mappings, 0x2000), Some(0x100_1000));
    }
}
