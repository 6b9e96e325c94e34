//! Puts a process into its surroundings.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::setrlimit;
use nix::unistd::Uid;

use crate::filter::Filter;
use crate::mounts::{self, Change};
use crate::surroundings::{Surroundings, WorkingFolder};
use crate::user::{Namespace, give_up_root};

/// The folders of a command.
#[derive(Clone, Debug)]
pub struct Place {
    data: PathBuf,
    shown: Vec<(PathBuf, PathBuf)>,
}

impl Place {
    /// The command reads the data of this folder.
    #[must_use]
    pub fn new(data: &Path) -> Self {
        Self { data: data.to_owned(), shown: Vec::new() }
    }

    /// The folder `target` shows what is in `source`, so that a user who may not enter `source` can read it.
    #[must_use]
    pub fn show(mut self, source: &Path, target: &Path) -> Self {
        self.shown.push((source.to_owned(), target.to_owned()));
        self
    }
}

/// Returns whether surroundings could not be made because a right or a part of the kernel is missing, or because
/// this is a `chroot`.
#[must_use]
pub fn is_refusal(error: &io::Error) -> bool {
    let is_chroot = error.raw_os_error() == Some(mounts::NOT_IN_A_CHROOT as i32);
    is_chroot || matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS | libc::ENOSPC))
}

/// All that is needed to enter surroundings, so that no memory has to be allocated on the way.
#[derive(Debug)]
pub(crate) struct Entrance {
    surroundings: Surroundings,
    /// Whether the process has rights to give up: root of a user namespace has none.
    is_root: bool,
    shown: Vec<(PathBuf, PathBuf)>,
    data: PathBuf,
    data_path: CString,
    root_path: CString,
    namespace: Namespace,
    filter: Option<Filter>,
    removed_folder: PathBuf,
}

impl Entrance {
    pub(crate) fn new(surroundings: Surroundings, place: &Place) -> Self {
        let rules = surroundings.refused.concat();
        // A path from the kernel or a test has no zero byte; one that had would not be found.
        let path = |path: &Path| CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let removed = format!("ringmain-removed-{}-{number}", std::process::id());
        Self {
            surroundings,
            is_root: Uid::effective().is_root(),
            shown: place.shown.clone(),
            data: place.data.clone(),
            data_path: path(&place.data),
            root_path: path(Path::new("/")),
            namespace: Namespace::new(),
            filter: (!rules.is_empty()).then(|| Filter::new(rules)),
            removed_folder: std::env::temp_dir().join(removed),
        }
    }

    /// Mounts take rights, so they come first. A filter may refuse what other steps need, so it comes last.
    pub(crate) fn enter(&mut self) -> io::Result<()> {
        self.change_mounts()?;
        self.change_folder()?;
        if self.is_root {
            give_up_root()?;
        }
        if self.surroundings.is_root_of_a_namespace {
            self.namespace.enter()?;
        }
        for (resource, limit) in self.surroundings.limits {
            setrlimit(*resource, *limit, *limit)?;
        }
        self.filter.as_ref().map_or(Ok(()), Filter::install)
    }

    fn change_mounts(&self) -> io::Result<()> {
        let changes = self.surroundings.changes;
        if changes.is_empty() && self.shown.is_empty() {
            return Ok(());
        }
        match self.is_root {
            true => unshare(CloneFlags::CLONE_NEWNS)?,
            false => self.namespace.enter()?,
        }
        mounts::keep_to_oneself()?;
        for (source, target) in &self.shown {
            mounts::show(source, target)?;
        }
        for change in changes {
            match change {
                Change::Empty(folder) => mounts::hide(folder)?,
                Change::ReadOnlyData => {
                    mounts::show(&self.data, &self.data)?;
                    mounts::make_read_only(&self.data_path)?;
                }
                Change::ReadOnly => mounts::make_read_only(&self.root_path)?,
            }
        }
        Ok(())
    }

    fn change_folder(&self) -> io::Result<()> {
        match self.surroundings.working_folder {
            WorkingFolder::AsItIs => Ok(()),
            WorkingFolder::Closed => std::env::set_current_dir("/"),
            WorkingFolder::Removed => {
                std::fs::create_dir(&self.removed_folder)?;
                std::env::set_current_dir(&self.removed_folder)?;
                std::fs::remove_dir(&self.removed_folder)
            }
        }
    }
}
