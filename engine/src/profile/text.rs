//! The text of a profile: lines of `key = value`, a subset of TOML that needs no library.
//! `docs/formats.md` lists the keys.

use std::path::PathBuf;

use super::{Profile, ProfileError};
use crate::{Access, BackendKind, CachePolicy, PageSize, Residency};

/// The only version there is.
const VERSION: usize = 1;

/// The first lines of a file.
const HEAD: &str = "# What `auto` takes for files on the filesystem of `measured_on`, or only for those in `only_for`.\n\
                    # Written by `ringmain recommend --save`; delete it to let `auto` choose by itself.\n";

/// The values of an option, and their names in the file.
trait Named: Copy + PartialEq + 'static {
    const NAMES: &'static [(Self, &'static str)];

    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(value, _)| *value == self).map_or("", |(_, name)| name)
    }

    /// The value of that name; the error lists the names.
    fn parse(text: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(_, name)| *name == text).map(|(value, _)| *value);
        found.ok_or_else(|| {
            let names: Vec<&str> = Self::NAMES.iter().map(|(_, name)| *name).collect();
            let (last, others) = names.split_last().unwrap_or((&"", &[]));
            format!("{} or {last}", others.join(", "))
        })
    }
}

impl Named for CachePolicy {
    const NAMES: &'static [(Self, &'static str)] =
        &[(Self::Direct, "direct"), (Self::Buffered, "buffered"), (Self::Uncached, "uncached")];
}

impl Named for Residency {
    const NAMES: &'static [(Self, &'static str)] =
        &[(Self::Keep, "keep"), (Self::Release, "release")];
}

impl Named for PageSize {
    const NAMES: &'static [(Self, &'static str)] = &[(Self::Base, "base"), (Self::Huge, "huge")];
}

impl Named for Access {
    const NAMES: &'static [(Self, &'static str)] = &[
        (Self::AsItComes, "as-it-comes"),
        (Self::Random, "random"),
        (Self::Sequential, "sequential"),
    ];
}

impl Profile {
    /// Parses the text of a profile. Unknown keys and sections belong to a later version and are
    /// ignored.
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

    /// The text of the profile, which [`parse`](Self::parse) understands.
    #[must_use]
    pub fn render(&self) -> String {
        fn named<T: Named>(value: Option<T>) -> Option<String> {
            value.map(|value| quote(value.name()))
        }
        let number = |value: Option<usize>| value.map(|value| value.to_string());
        let path =
            |path: &Option<PathBuf>| path.as_ref().map(|path| quote(&path.to_string_lossy()));
        let entries = [
            ("version", Some(VERSION.to_string())),
            ("backend", Some(quote(self.backend.name()))),
            ("depth_max", number(self.depth_max)),
            ("chunk_bytes", number(self.chunk_bytes)),
            ("cache_policy", named(self.cache_policy)),
            ("residency", named(self.residency)),
            ("page_size", named(self.page_size)),
            ("access", named(self.access)),
            ("measured_on", path(&self.measured_on)),
            ("only_for", path(&self.only_for)),
            ("reason", self.reason.as_deref().map(quote)),
        ];
        entries.into_iter().fold(HEAD.to_owned(), |text, (key, value)| match value {
            Some(value) => format!("{text}{key} = {value}\n"),
            None => text,
        })
    }
}

/// The keys met so far.
#[derive(Default)]
struct Draft {
    keys: Vec<String>,
    has_version: bool,
    backend: Option<BackendKind>,
    /// All keys but the backend, of which this has none.
    rest: Option<Profile>,
}

impl Draft {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        if self.keys.iter().any(|known| known == key) {
            return Err(format!("`{key}` is set twice"));
        }
        self.keys.push(key.to_owned());
        self.set_value(key, value).map_err(|message| format!("`{key}`: {message}"))
    }

    fn set_value(&mut self, key: &str, value: &str) -> Result<(), String> {
        let rest = self.rest.get_or_insert_with(|| Profile::new(BackendKind::Auto));
        match key {
            "version" => match number(value)? {
                VERSION => self.has_version = true,
                other => return Err(format!("{other} is not known here, only {VERSION}")),
            },
            "backend" => self.backend = Some(backend(&string(value)?)?),
            "depth_max" => rest.depth_max = Some(number(value)?),
            "chunk_bytes" => rest.chunk_bytes = Some(number(value)?),
            "cache_policy" => rest.cache_policy = Some(Named::parse(&string(value)?)?),
            "residency" => rest.residency = Some(Named::parse(&string(value)?)?),
            "page_size" => rest.page_size = Some(Named::parse(&string(value)?)?),
            "access" => rest.access = Some(Named::parse(&string(value)?)?),
            "measured_on" => rest.measured_on = Some(string(value)?.into()),
            "only_for" => rest.only_for = Some(string(value)?.into()),
            "reason" => rest.reason = Some(string(value)?),
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<Profile, ProfileError> {
        if !self.has_version {
            return Err(ProfileError::Missing("version"));
        }
        let backend = self.backend.ok_or(ProfileError::Missing("backend"))?;
        Ok(Profile { backend, ..self.rest.unwrap_or_else(|| Profile::new(backend)) })
    }
}

enum Line<'a> {
    Blank,
    Section,
    /// A key and the text of its value, which a comment may follow.
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
        return Err(format!("`{key}` is not a key"));
    }
    Ok(Line::Entry(key, value.trim()))
}

fn backend(name: &str) -> Result<BackendKind, String> {
    match name.parse::<BackendKind>() {
        Ok(BackendKind::Auto | BackendKind::Memory) => {
            Err(format!("`{name}` cannot be a profile's backend"))
        }
        Ok(kind) => Ok(kind),
        Err(error) => Err(error.to_string()),
    }
}

fn number(value: &str) -> Result<usize, String> {
    let digits = value.split('#').next().unwrap_or_default().trim();
    digits.parse().map_err(|_| format!("`{digits}` is not a number"))
}

/// A TOML string on one line: `"basic"` with escapes, or `'literal'`.
fn string(value: &str) -> Result<String, String> {
    if let Some(rest) = value.strip_prefix('\'') {
        let (text, tail) = rest.split_once('\'').ok_or("the quote does not end")?;
        return only_comment(tail).map(|()| text.to_owned());
    }
    let mut chars = value.strip_prefix('"').ok_or("expected text in quotes")?.chars();
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
        _ => return Err("unknown escape".into()),
    };
    let code: String = chars.by_ref().take(digits).collect();
    let number = u32::from_str_radix(&code, 16).ok().filter(|_| code.len() == digits);
    number.and_then(char::from_u32).ok_or_else(|| format!("`{code}` is not a character"))
}

fn only_comment(rest: &str) -> Result<(), String> {
    let rest = rest.trim();
    if rest.is_empty() || rest.starts_with('#') {
        return Ok(());
    }
    Err(format!("`{rest}` follows the text"))
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
