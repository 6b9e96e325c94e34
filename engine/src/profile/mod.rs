//! The profile: the backend that was measured to be best on this machine, kept for `auto`.
//!
//! `ringmain recommend --save` keeps its choice in a file of a few `key = value` lines
//! (`docs/formats.md`), and `auto` reads it once, when it is opened.
//!
//! - **Lookup.** An `Engine`, `ringmain probe` and `ringmain cat` look for it. `BackendOptions`
//!   contain no advice by default: a program that opens a backend itself (the conformance suite, a
//!   test) gets what the machine allows, not what was once measured. `RINGMAIN_PROFILE` names another
//!   file or is `off`; `EngineBuilder::profile` and `ignore_profile` do the same in code. The test
//!   scripts set it to `off`.
//! - **Scope.** The best way to read one disk says nothing about another disk. The key is
//!   `measured_on`, a path (as a rule the mount point): a file is read by the profile if it lies on
//!   the same filesystem as that path *now*. A device number would be simpler to compare, but would
//!   change with the next boot; a device name says nothing about bind mounts, volumes and network
//!   shares. `only_for` narrows it to a file or a folder. A profile holds one choice: with several,
//!   every process would need several backends, each with its threads, rings and descriptors. Programs
//!   that need different choices use different files.
//! - **Precedence.** A backend asked for by name never looks at it. Options that the caller set to
//!   other values than the default are kept.
//! - **A bad profile is never an error.** If a profile is broken, names a backend that does not
//!   work, or was measured on a path that no longer exists, `auto` works as without it, and
//!   `describe()` and `probe` say why. The same holds for a single file that the profile's backend
//!   refuses.

mod text;

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ringmain_backends::probe::Probe;
use ringmain_backends::{Advice, AdvisedBackend, OutputFile};

use crate::{Access, BackendKind, BackendOptions, CachePolicy, PageSize, Residency};

/// The variable that names a profile, or is `off`.
const VARIABLE: &str = "RINGMAIN_PROFILE";

/// A profile has a few lines; a longer file is something else.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Where an engine looks for a profile. It reads the profile once, when it is built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ProfileSource {
    /// Nowhere: the choice of `auto` depends on the machine alone.
    Off,
    /// At [`Profile::user_path`], if there is a file.
    #[default]
    User,
    /// In this file.
    File(PathBuf),
}

impl ProfileSource {
    /// The options with the profile as advice for `auto`. A profile that cannot be used is not an error:
    /// `auto` reports why. Without a profile the options stay as they are.
    #[must_use]
    pub fn advise(&self, options: BackendOptions) -> BackendOptions {
        let (path, is_asked_for) = match self {
            Self::Off => return options,
            Self::User => match Profile::user_path() {
                Some(path) => (path, std::env::var_os(VARIABLE).is_some()),
                None => return options,
            },
            Self::File(path) => (path.clone(), true),
        };
        let backend = match Profile::read(&path) {
            // Most users have none.
            Err(ProfileError::Io(error))
                if error.kind() == io::ErrorKind::NotFound && !is_asked_for =>
            {
                return options;
            }
            Err(error) => Err(error.to_string()),
            Ok(profile) => Ok(profile.advised(&options)),
        };
        BackendOptions { advice: Some(Advice { path, backend }), ..options }
    }
}

/// Tries every backend on a file, as [`backends::probe`](mod@ringmain_backends::probe) does. `auto`
/// follows the user's profile, as in an engine.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("a");
/// # std::fs::write(&path, b"abc")?;
/// println!("auto takes {}", ringmain::probe(&path)?.auto.choice);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn probe(path: &Path) -> crate::Result<Probe> {
    let options = ProfileSource::User.advise(BackendOptions::default());
    Ok(ringmain_backends::probe::probe_with(path, &options)?)
}

/// The backend and the settings that were measured to be best, and where.
///
/// ```
/// use ringmain::{BackendKind, Profile};
///
/// let profile = Profile::parse("version = 1\nbackend = \"uring\"\ndepth_max = 32\n")?;
/// assert_eq!((profile.backend, profile.depth_max), (BackendKind::Uring, Some(32)));
/// assert_eq!(Profile::parse(&profile.render())?, profile);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The backend that reads.
    pub backend: BackendKind,
    /// Device requests in flight.
    pub depth_max: Option<usize>,
    /// The largest single device request.
    pub chunk_bytes: Option<usize>,
    /// Whether io_uring goes through the page cache.
    pub cache_policy: Option<CachePolicy>,
    /// Whether `mmap` keeps pages after reading them.
    pub residency: Option<Residency>,
    /// The size of the pages that `mmap` asks for.
    pub page_size: Option<PageSize>,
    /// In which order files are read through the page cache.
    pub access: Option<Access>,
    /// A path on the filesystem that was measured, usually where it is mounted. The profile holds for
    /// files on that filesystem; without a path, for all files.
    pub measured_on: Option<PathBuf>,
    /// The file, or the folder of the files, that the profile is for; without it, all files on that filesystem. Links are
    /// followed.
    pub only_for: Option<PathBuf>,
    /// Why this one, for people.
    pub reason: Option<String>,
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Io(io::Error),
    /// A line is wrong.
    #[error("line {line}: {message}")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// The fault in it.
        message: String,
    },
    /// A required key is missing.
    #[error("the key `{0}` is missing")]
    Missing(&'static str),
}

impl Profile {
    /// A profile that names a backend and nothing else.
    #[must_use]
    pub fn new(backend: BackendKind) -> Self {
        Self {
            backend,
            depth_max: None,
            chunk_bytes: None,
            cache_policy: None,
            residency: None,
            page_size: None,
            access: None,
            measured_on: None,
            only_for: None,
            reason: None,
        }
    }

    /// The path of the user's profile: the value of `RINGMAIN_PROFILE`, or without that variable
    /// `ringmain/profile.toml` in `$XDG_CONFIG_HOME` or `~/.config` (`%APPDATA%` on Windows).
    /// `None` if the variable is empty or `off`, or there is no home.
    #[must_use]
    pub fn user_path() -> Option<PathBuf> {
        match std::env::var_os(VARIABLE) {
            Some(value) if value.is_empty() || value.eq_ignore_ascii_case("off") => None,
            Some(value) => Some(value.into()),
            None => Some(config_dir()?.join("ringmain").join("profile.toml")),
        }
    }

    /// Reads a profile.
    pub fn read(path: &Path) -> Result<Self, ProfileError> {
        let bytes = read_start(path, FILE_BYTES_MAX + 1).map_err(ProfileError::Io)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            let message =
                format!("the file has more than {FILE_BYTES_MAX} bytes, and is no profile");
            return Err(ProfileError::Line { line: 1, message });
        }
        let invalid = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text");
        Self::parse(&String::from_utf8(bytes).map_err(invalid).map_err(ProfileError::Io)?)
    }

    /// Writes the profile to a file, which exists whole or not at all.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let file = OutputFile::create(path)?;
        file.write_all_at(self.render().as_bytes(), 0)?;
        file.complete()
    }

    /// The profile as advice for `auto` with these options.
    fn advised(&self, options: &BackendOptions) -> AdvisedBackend {
        let reason = match &self.reason {
            Some(reason) => format!("{self}: {reason}"),
            None => self.to_string(),
        };
        AdvisedBackend {
            kind: self.backend,
            options: Box::new(self.apply(options)),
            measured_on: self.measured_on.clone(),
            only_for: self.only_for.clone(),
            reason,
        }
    }

    /// The options with those of the profile. Options that the caller has changed from the default
    /// stay.
    fn apply(&self, options: &BackendOptions) -> BackendOptions {
        let standard = BackendOptions::default();
        let mut applied = options.clone();
        fn fill<T: PartialEq + Copy>(option: &mut T, standard: T, measured: Option<T>) {
            if let Some(measured) = measured.filter(|_| *option == standard) {
                *option = measured;
            }
        }
        fill(&mut applied.depth_max, standard.depth_max, self.depth_max);
        fill(&mut applied.chunk_bytes, standard.chunk_bytes, self.chunk_bytes);
        fill(&mut applied.cache_policy, standard.cache_policy, self.cache_policy);
        fill(&mut applied.residency, standard.residency, self.residency);
        fill(&mut applied.page_size, standard.page_size, self.page_size);
        fill(&mut applied.access, standard.access, self.access);
        applied
    }
}

/// Reads at most `bytes_max` bytes of a regular file: a device may have no end, and a pipe no writer.
fn read_start(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns where programs keep a user's configuration. `None` if there is no home.
fn config_dir() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if cfg!(windows) {
        return set("APPDATA");
    }
    set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))
}

impl fmt::Display for Profile {
    /// `uring, depth 32`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.backend)?;
        match self.cache_policy {
            Some(CachePolicy::Buffered) => f.write_str("+buffered")?,
            Some(CachePolicy::Uncached) => f.write_str("+uncached")?,
            _ => {}
        }
        if self.residency == Some(Residency::Release) {
            f.write_str("+release")?;
        }
        if self.page_size == Some(PageSize::Huge) {
            f.write_str("+huge")?;
        }
        match self.access {
            Some(Access::Random) => f.write_str("+random")?,
            Some(Access::Sequential) => f.write_str("+sequential")?,
            _ => {}
        }
        self.depth_max.map_or(Ok(()), |depth| write!(f, ", depth {depth}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Profile {
        Profile {
            backend: BackendKind::Uring,
            depth_max: Some(32),
            chunk_bytes: Some(1 << 20),
            cache_policy: Some(CachePolicy::Buffered),
            residency: Some(Residency::Release),
            page_size: Some(PageSize::Huge),
            access: Some(Access::Random),
            measured_on: Some("/mnt/a \"b\" \\c#".into()),
            only_for: Some("/mnt/a \"b\"/train".into()),
            reason: Some("2.3 times direct;\nµs\t\u{1}".into()),
        }
    }

    #[test]
    fn a_profile_is_read_back_as_it_was_written() {
        for profile in [full(), Profile::new(BackendKind::Pread)] {
            let text = profile.render();
            assert_eq!(Profile::parse(&text).unwrap(), profile, "{text}");
        }
    }

    #[test]
    fn comments_blanks_and_sections_are_understood() {
        let text = "# mine\r\n\nversion=1 # yes\nbackend = 'mmap' # fast\n  residency = \"release\"\n\
                    later = { a = 1 }\n[workload.rand]\nbackend = 7\n";
        let profile = Profile::parse(text).unwrap();
        assert_eq!(profile.backend, BackendKind::Mmap);
        assert_eq!(profile.residency, Some(Residency::Release));
    }

    #[test]
    fn an_error_names_its_line() {
        let cases = [
            ("", "`version` is missing"),
            ("version = 1", "`backend` is missing"),
            ("version = 2", "line 1: `version`: 2 is not known"),
            ("version = 1\nbackend = \"urnig\"", "line 2: `backend`: there is no backend `urnig`"),
            ("version = 1\nbackend = \"auto\"", "`auto` cannot be a profile's backend"),
            ("version = 1\nbackend = uring", "expected text in quotes"),
            ("version = 1\nbackend = \"uring", "the quote does not end"),
            ("backend = \"pread\" x", "`x` follows the text"),
            ("depth_max = many", "`many` is not a number"),
            ("depth_max = 1\ndepth_max = 1", "line 2: `depth_max` is set twice"),
            ("hello", "expected `key = value`"),
            ("a b = 1", "is not a key"),
            ("reason = \"\\uD800\"", "is not a character"),
            ("cache_policy = \"hot\"", "direct, buffered or uncached"),
            ("page_size = \"odd\"", "base or huge"),
            ("access = \"odd\"", "as-it-comes, random or sequential"),
        ];
        for (text, part) in cases {
            let message = Profile::parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text:?}: {message}");
        }
    }

    #[test]
    fn a_profile_is_saved_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/profile.toml");
        full().save(&path).unwrap();
        full().save(&path).unwrap();
        assert_eq!(Profile::read(&path).unwrap(), full());
        let names: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().collect();
        assert_eq!(names.len(), 1);
        assert!(full().save(dir.path()).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn options_of_the_caller_stay() {
        let options = BackendOptions { depth_max: 7, ..BackendOptions::default() };
        let applied = full().apply(&options);
        assert_eq!((applied.depth_max, applied.cache_policy), (7, CachePolicy::Buffered));
    }
}
