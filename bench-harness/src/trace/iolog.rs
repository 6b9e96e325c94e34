//! fio's iolog, versions 2 and 3: one action a line.
//!
//! A line of version 2 is `FILE ACTION [OFFSET LENGTH]`. In version 3, a time in microseconds comes
//! before that (the code of fio uses microseconds; its manual does not say). Words are separated by
//! spaces, so a file name cannot contain spaces. Only reads are replayed, each as a batch of one read;
//! other actions are counted.

use std::collections::HashSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::TraceBuilder;
use super::lines::{Fault, Lines, Word, Words, path_from};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Two,
    Three,
}

/// Actions that are not replayed.
const IGNORED: [&str; 5] = ["write", "sync", "datasync", "trim", "wait"];

/// Parses the lines after the first.
pub(super) fn parse(
    lines: &mut Lines<impl Read>,
    version: Version,
    builder: &mut TraceBuilder,
) -> Result<(), Fault> {
    let mut log = Log { version, builder, added: HashSet::new(), ignored: [0; IGNORED.len()] };
    while let Some(line) = lines.next()? {
        let mut words = line.words();
        if words.clone().next().is_some() {
            log.line(&mut words)?;
        }
    }
    log.say_what_was_ignored();
    Ok(())
}

struct Log<'a> {
    version: Version,
    builder: &'a mut TraceBuilder,
    added: HashSet<PathBuf>,
    ignored: [u64; IGNORED.len()],
}

impl Log<'_> {
    fn line(&mut self, words: &mut Words<'_>) -> Result<(), Fault> {
        let at_us = match self.version {
            Version::Two => 0,
            Version::Three => words.number("the time in microseconds")?,
        };
        let name = words.expect("a file name")?;
        let action = words.expect("an action")?;
        let path = path_from(name.text.to_vec());
        let path =
            path.ok_or_else(|| name.fault("this is not a file name on this system".into()))?;
        match action.text {
            b"add" => {
                self.added.insert(path);
                words.end()
            }
            b"open" | b"close" => self.must_be_added(&path, &name).and_then(|()| words.end()),
            b"read" => {
                self.must_be_added(&path, &name)?;
                self.read(at_us, &path, words)
            }
            other => match IGNORED.iter().position(|ignored| ignored.as_bytes() == other) {
                Some(at) => {
                    self.ignored[at] += 1;
                    // fio writes two numbers after each action; they may be missing in other logs.
                    words.by_ref().take(2).for_each(drop);
                    words.end()
                }
                None => Err(action.fault(format!(
                    "expected an action (add, open, close, read, {}), found `{}`; a file name \
                     cannot have spaces in this format",
                    IGNORED.join(", "),
                    action.shown()
                ))),
            },
        }
    }

    fn read(&mut self, at_us: u64, path: &Path, words: &mut Words<'_>) -> Result<(), Fault> {
        let first = words.clone();
        let offset = words.number("an offset in bytes")?;
        let bytes = words.number("a length in bytes")?;
        words.end()?;
        if bytes == 0 {
            return Ok(());
        }
        self.builder.begin_plain_batch(at_us);
        self.builder.read(path, offset, bytes).map_err(|message| match first.clone().next() {
            Some(word) => word.fault(message),
            None => Fault::whole(message),
        })
    }

    fn must_be_added(&self, path: &Path, name: &Word<'_>) -> Result<(), Fault> {
        if self.added.contains(path) {
            return Ok(());
        }
        Err(name.fault(format!("`{}` is used before an `add` line names it", name.shown())))
    }

    fn say_what_was_ignored(self) {
        let counts = IGNORED.iter().zip(self.ignored).filter(|(_, count)| *count > 0);
        let counts: Vec<String> = counts.map(|(name, count)| format!("{count} {name}")).collect();
        if !counts.is_empty() {
            self.builder
                .note(format!("not replayed, because only reads are: {}", counts.join(", ")));
        }
    }
}
