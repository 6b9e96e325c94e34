//! The profile: what was measured to be best on this machine, kept for `auto`.
//!
//! Lines of `key = value`, a subset of TOML that is read without a library for it. `docs/formats.md`
//! lists the keys.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ringmain_backends::probe::Probe;
use ringmain_backends::{Advice, AdvisedBackend, OutputFile};

use crate::{Access, BackendKind, BackendOptions, CachePolicy, PageSize, Residency};

/// The variable that names a profile, or is `off`.
const VARIABLE: &str = "RINGMAIN_PROFILE";

/// The only version there is.
const VERSION: usize = 1;

/// A profile is a handful of lines; more is some other file.
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
    /// The options with the profile as advice for `auto`. A profile that cannot be used is no error:
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
    /// Which backend reads.
    pub backend: BackendKind,
    /// Device requests in flight.
    pub depth_max: Option<usize>,
    /// The largest single device request.
    pub chunk_bytes: Option<usize>,
    /// Whether io_uring goes through the page cache.
    pub cache_policy: Option<CachePolicy>,
    /// What `mmap` does with the pages it has read.
    pub residency: Option<Residency>,
    /// The pages that `mmap` wants for its mappings.
    pub page_size: Option<PageSize>,
    /// In which order files are read through the page cache.
    pub access: Option<Access>,
    /// A path on the filesystem that was measured, as a rule where it is mounted. The profile holds
    /// for files on the same filesystem as that path; without it, for all.
    pub measured_on: Option<PathBuf>,
    /// For people: why this one.
    pub reason: Option<String>,
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// A line is not what it should be.
    #[error("line {line}: {message}")]
    Line {
        /// Which, from 1.
        line: usize,
        /// What is wrong with it.
        message: String,
    },
    /// A key that must be there is not.
    #[error("the key `{0}` is missing")]
    Missing(&'static str),
}

impl Profile {
    /// A profile with nothing but a backend.
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
            reason: None,
        }
    }

    /// Where the user's profile lies: what `RINGMAIN_PROFILE` names; without that variable
    /// `ringmain/profile.toml` in `$XDG_CONFIG_HOME` or `~/.config` (`%APPDATA%` on Windows).
    /// `None` where the variable is empty or `off`, or there is no home.
    #[must_use]
    pub fn user_path() -> Option<PathBuf> {
        match std::env::var_os(VARIABLE) {
            Some(value) if value.is_empty() || value.eq_ignore_ascii_case("off") => None,
            Some(value) => Some(value.into()),
            None => Some(config_dir()?.join("ringmain").join("profile.toml")),
        }
    }

    /// Reads one.
    pub fn read(path: &Path) -> Result<Self, ProfileError> {
        let len = fs::metadata(path)?.len();
        if len > FILE_BYTES_MAX {
            let message = format!("{len} bytes are no profile");
            return Err(ProfileError::Line { line: 1, message });
        }
        Self::parse(&fs::read_to_string(path)?)
    }

    /// Understands the text of one. Unknown keys and sections are of a later version, and ignored.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let mut draft = Draft::default();
        for (line, text) in (1..).zip(text.lines()) {
            let fault = |message| ProfileError::Line { line, message };
            match split_line(text).map_err(fault)? {
                Line::Blank => {}
                Line::Section => break,
                Line::Entry(key, value) => draft.set(key, value).map_err(fault)?,
            }
        }
        draft.finish()
    }

    /// The text of a file that [`parse`](Self::parse) understands.
    #[must_use]
    pub fn render(&self) -> String {
        let policy = self.cache_policy.map(|policy| match policy {
            CachePolicy::Direct => "direct",
            CachePolicy::Buffered => "buffered",
            CachePolicy::Uncached => "uncached",
        });
        let residency = self.residency.map(|residency| match residency {
            Residency::Keep => "keep",
            Residency::Release => "release",
        });
        let page_size = self.page_size.map(|page_size| match page_size {
            PageSize::Base => "base",
            PageSize::Huge => "huge",
        });
        let access = self.access.map(|access| match access {
            Access::AsItComes => "as-it-comes",
            Access::Random => "random",
            Access::Sequential => "sequential",
        });
        let measured_on = self.measured_on.as_ref().map(|path| path.to_string_lossy());
        let number = |value: Option<usize>| value.map(|value| value.to_string());
        let entries = [
            ("version", Some(VERSION.to_string())),
            ("backend", Some(quote(self.backend.name()))),
            ("depth_max", number(self.depth_max)),
            ("chunk_bytes", number(self.chunk_bytes)),
            ("cache_policy", policy.map(quote)),
            ("residency", residency.map(quote)),
            ("page_size", page_size.map(quote)),
            ("access", access.map(quote)),
            ("measured_on", measured_on.as_deref().map(quote)),
            ("reason", self.reason.as_deref().map(quote)),
        ];
        let head = "# What `auto` takes for files on the filesystem of `measured_on`.\n\
                    # Written by `ringmain recommend --save`; delete it to let `auto` choose by itself.\n";
        entries.into_iter().fold(head.to_owned(), |text, (key, value)| match value {
            Some(value) => format!("{text}{key} = {value}\n"),
            None => text,
        })
    }

    /// Writes it to a file, which is there whole or not at all.
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
            reason,
        }
    }

    /// The options with what the profile says. What the caller had set to something else than the
    /// default stays.
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

/// Where programs keep a user's configuration. `None` if there is no home.
fn config_dir() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if cfg!(windows) {
        return set("APPDATA");
    }
    set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))
}

/// The keys met so far.
#[derive(Default)]
struct Draft {
    keys: Vec<String>,
    version: Option<usize>,
    backend: Option<BackendKind>,
    depth_max: Option<usize>,
    chunk_bytes: Option<usize>,
    cache_policy: Option<CachePolicy>,
    residency: Option<Residency>,
    page_size: Option<PageSize>,
    access: Option<Access>,
    measured_on: Option<PathBuf>,
    reason: Option<String>,
}

impl Draft {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        if self.keys.iter().any(|known| known == key) {
            return Err(format!("`{key}` stands there twice"));
        }
        self.keys.push(key.to_owned());
        let of = |message| format!("`{key}`: {message}");
        match key {
            "version" => match number(value).map_err(of)? {
                VERSION => self.version = Some(VERSION),
                other => return Err(of(format!("{other} is not known here, only {VERSION}"))),
            },
            "backend" => self.backend = Some(backend(&string(value).map_err(of)?).map_err(of)?),
            "depth_max" => self.depth_max = Some(number(value).map_err(of)?),
            "chunk_bytes" => self.chunk_bytes = Some(number(value).map_err(of)?),
            "cache_policy" => {
                self.cache_policy = Some(match string(value).map_err(of)?.as_str() {
                    "direct" => CachePolicy::Direct,
                    "buffered" => CachePolicy::Buffered,
                    "uncached" => CachePolicy::Uncached,
                    _ => return Err(of("direct, buffered or uncached".into())),
                });
            }
            "residency" => {
                self.residency = Some(match string(value).map_err(of)?.as_str() {
                    "keep" => Residency::Keep,
                    "release" => Residency::Release,
                    _ => return Err(of("keep or release".into())),
                });
            }
            "page_size" => {
                self.page_size = Some(match string(value).map_err(of)?.as_str() {
                    "base" => PageSize::Base,
                    "huge" => PageSize::Huge,
                    _ => return Err(of("base or huge".into())),
                });
            }
            "access" => {
                self.access = Some(match string(value).map_err(of)?.as_str() {
                    "as-it-comes" => Access::AsItComes,
                    "random" => Access::Random,
                    "sequential" => Access::Sequential,
                    _ => return Err(of("as-it-comes, random or sequential".into())),
                });
            }
            "measured_on" => self.measured_on = Some(string(value).map_err(of)?.into()),
            "reason" => self.reason = Some(string(value).map_err(of)?),
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<Profile, ProfileError> {
        self.version.ok_or(ProfileError::Missing("version"))?;
        Ok(Profile {
            backend: self.backend.ok_or(ProfileError::Missing("backend"))?,
            depth_max: self.depth_max,
            chunk_bytes: self.chunk_bytes,
            cache_policy: self.cache_policy,
            residency: self.residency,
            page_size: self.page_size,
            access: self.access,
            measured_on: self.measured_on,
            reason: self.reason,
        })
    }
}

enum Line<'a> {
    Blank,
    Section,
    /// A key and the text of its value, perhaps with a comment behind it.
    Entry(&'a str, &'a str),
}

fn split_line(text: &str) -> Result<Line<'_>, String> {
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(Line::Blank);
    }
    if text.starts_with('[') {
        return Ok(Line::Section);
    }
    let (key, value) = text.split_once('=').ok_or("expected `key = value`")?;
    let key = key.trim();
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if key.is_empty() || !key.chars().all(is_bare) {
        return Err(format!("`{key}` is no key"));
    }
    Ok(Line::Entry(key, value.trim()))
}

fn backend(name: &str) -> Result<BackendKind, String> {
    match name.parse::<BackendKind>() {
        Ok(BackendKind::Auto | BackendKind::Memory) => Err(format!("`{name}` is no choice")),
        Ok(kind) => Ok(kind),
        Err(error) => Err(error.to_string()),
    }
}

fn number(value: &str) -> Result<usize, String> {
    let digits = value.split('#').next().unwrap_or_default().trim();
    digits.parse().map_err(|_| format!("`{digits}` is no number"))
}

/// A TOML string on one line: `"basic"` with escapes, or `'literal'`.
fn string(value: &str) -> Result<String, String> {
    if let Some(rest) = value.strip_prefix('\'') {
        let (text, tail) = rest.split_once('\'').ok_or("the quote does not end")?;
        return only_comment(tail).map(|()| text.to_owned());
    }
    let mut chars = value.strip_prefix('"').ok_or("expected a text in quotes")?.chars();
    let mut text = String::new();
    loop {
        match chars.next().ok_or("the quote does not end")? {
            '"' => return only_comment(chars.as_str()).map(|()| text),
            '\\' => text.push(escaped(&mut chars)?),
            other => text.push(other),
        }
    }
}

fn escaped(chars: &mut std::str::Chars<'_>) -> Result<char, String> {
    let digits = match chars.next() {
        Some(same @ ('"' | '\\')) => return Ok(same),
        Some('n') => return Ok('\n'),
        Some('t') => return Ok('\t'),
        Some('r') => return Ok('\r'),
        Some('u') => 4,
        Some('U') => 8,
        _ => return Err("an escape that is not known".into()),
    };
    let code: String = chars.by_ref().take(digits).collect();
    let number = u32::from_str_radix(&code, 16).ok().filter(|_| code.len() == digits);
    number.and_then(char::from_u32).ok_or_else(|| format!("`{code}` is no character"))
}

fn only_comment(rest: &str) -> Result<(), String> {
    let rest = rest.trim();
    if rest.is_empty() || rest.starts_with('#') {
        return Ok(());
    }
    Err(format!("`{rest}` after the text"))
}

fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted += &format!("\\u{:04X}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    quoted + "\""
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
            reason: Some("2.3 times direct;\nµs\t\u{1}".into()),
        }
    }

    #[test]
    fn it_comes_back_as_it_was_written() {
        for profile in [full(), Profile::new(BackendKind::Pread)] {
            let text = profile.render();
            assert_eq!(Profile::parse(&text).unwrap(), profile, "{text}");
        }
    }

    #[test]
    fn what_people_write_is_understood() {
        let text = "# mine\r\n\nversion=1 # yes\nbackend = 'mmap' # fast\n  residency = \"release\"\n\
                    later = { a = 1 }\n[workload.rand]\nbackend = 7\n";
        let profile = Profile::parse(text).unwrap();
        assert_eq!(profile.backend, BackendKind::Mmap);
        assert_eq!(profile.residency, Some(Residency::Release));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let cases = [
            ("", "`version` is missing"),
            ("version = 1", "`backend` is missing"),
            ("version = 2", "line 1: `version`: 2 is not known"),
            ("version = 1\nbackend = \"urnig\"", "line 2: `backend`: there is no backend `urnig`"),
            ("version = 1\nbackend = \"auto\"", "`auto` is no choice"),
            ("version = 1\nbackend = uring", "expected a text in quotes"),
            ("version = 1\nbackend = \"uring", "the quote does not end"),
            ("backend = \"pread\" x", "`x` after the text"),
            ("depth_max = many", "`many` is no number"),
            ("depth_max = 1\ndepth_max = 1", "line 2: `depth_max` stands there twice"),
            ("hello", "expected `key = value`"),
            ("a b = 1", "is no key"),
            ("reason = \"\\uD800\"", "is no character"),
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
    fn it_is_saved_in_one_piece() {
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
    fn what_the_caller_set_stays() {
        let options = BackendOptions { depth_max: 7, ..BackendOptions::default() };
        let applied = full().apply(&options);
        assert_eq!((applied.depth_max, applied.cache_policy), (7, CachePolicy::Buffered));
    }
}
