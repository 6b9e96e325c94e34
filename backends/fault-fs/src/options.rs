//! The options of a filesystem, which do not change while it is mounted.

use std::fmt;
use std::str::FromStr;

/// How a filesystem is mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether reads go past the page cache, so that a short answer reaches the reader as a short
    /// read.
    pub direct_io: bool,
    /// The treatment of files that are opened with `O_DIRECT`.
    pub o_direct: ODirect,
    /// The way in which inodes get their numbers.
    pub inodes: Inodes,
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { direct_io, o_direct, inodes } = self;
        write!(f, "direct_io {direct_io}, O_DIRECT {o_direct:?}, inodes {inodes:?}")
    }
}

impl FromStr for Options {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = [false, true].into_iter().flat_map(|direct_io| {
            [ODirect::Works, ODirect::RefusedAtOpen, ODirect::RefusedAtRead].into_iter().flat_map(
                move |o_direct| {
                    [Inodes::Stable, Inodes::NewAtEachLookup].map(|inodes| Self {
                        direct_io,
                        o_direct,
                        inodes,
                    })
                },
            )
        });
        all.find(|options| options.to_string() == text).ok_or_else(|| text.to_owned())
    }
}

/// The treatment of files that are opened with `O_DIRECT`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ODirect {
    /// They are read past the page cache.
    #[default]
    Works,
    /// They cannot be opened.
    RefusedAtOpen,
    /// They can be opened, and every read fails.
    RefusedAtRead,
}

/// The way in which inodes get their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inodes {
    /// A file keeps its number.
    #[default]
    Stable,
    /// A file has another number each time its path is looked up, as on filesystems that make them
    /// up.
    NewAtEachLookup,
}
