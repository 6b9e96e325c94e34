//! Finds the texts that the sources of this crate put into messages, such as the reasons of
//! [`Error::InvalidOption`](crate::Error::InvalidOption), which no enum lists.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");

/// Names of files and folders that hold only tests.
const OF_TESTS: [&str; 5] = ["fuzzing", "messages", "schedules", "testing", "tests"];

/// Returns every string literal of two words or more, each file's in the order of the source.
pub(super) fn source_texts() -> String {
    let mut listing = String::new();
    for path in sources(Path::new(SOURCES)) {
        let source = fs::read_to_string(&path).unwrap().replace("\r\n", "\n");
        let texts = literals(&source);
        let texts: Vec<_> = texts.iter().filter(|text| text.trim().contains(' ')).collect();
        if texts.is_empty() {
            continue;
        }
        let name = path.strip_prefix(SOURCES).unwrap().to_str().unwrap().replace('\\', "/");
        writeln!(listing, "texts of {name}").unwrap();
        texts.iter().for_each(|text| writeln!(listing, "    {text}").unwrap());
    }
    listing
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| !OF_TESTS.iter().any(|name| path.file_stem().unwrap() == *name));
    // Compared as text, so that the order is the same on Windows.
    paths.sort_by_key(|path| path.to_str().unwrap().replace('\\', "/"));
    let files = |path: PathBuf| if path.is_dir() { sources(&path) } else { vec![path] };
    paths.into_iter().flat_map(files).collect()
}

/// Returns the string literals outside of comments, attributes and inline tests.
fn literals(source: &str) -> Vec<String> {
    let mut rest = source.split("#[cfg(test)]\nmod ").next().unwrap();
    let mut literals = Vec::new();
    while let Some(start) = rest.find(['/', '#', '\'', '"']) {
        let (before, after) = rest.split_at(start + 1);
        rest = match before.as_bytes()[start] {
            b'/' if after.starts_with('/') => after.split_once('\n').map_or("", |(_, next)| next),
            b'#' if after.starts_with(['[', '!']) => after_attribute(after),
            b'\'' => after_character(after),
            b'"' => {
                assert!(
                    !before.ends_with("r\"") && !before.ends_with("#\""),
                    "raw literals cannot be read here"
                );
                let len = literal_len(after);
                literals.push(plain(&after[..len]));
                &after[len + 1..]
            }
            _ => after,
        };
    }
    literals
}

/// Returns the source behind the bracket that closes an attribute.
fn after_attribute(source: &str) -> &str {
    let (mut depth, mut is_in_text) = (0, false);
    for (at, character) in source.char_indices() {
        match character {
            '"' => is_in_text = !is_in_text,
            '[' if !is_in_text => depth += 1,
            ']' if !is_in_text && depth == 1 => return &source[at + 1..],
            ']' if !is_in_text => depth -= 1,
            _ => {}
        }
    }
    panic!("an attribute does not end");
}

/// Returns the source behind a character literal, or behind the quote of a lifetime.
fn after_character(source: &str) -> &str {
    let mut characters = source.chars();
    let len = match (characters.next(), characters.next()) {
        (Some('\\'), _) => 2 + source[2..].find('\'').unwrap() + 1,
        (Some(only), Some('\'')) => only.len_utf8() + 1,
        _ => 0,
    };
    &source[len..]
}

/// Returns the length of a literal up to its closing quote.
fn literal_len(source: &str) -> usize {
    let mut is_escaped = false;
    let ends = |(at, character): (usize, char)| {
        let was_escaped = is_escaped;
        is_escaped = character == '\\' && !was_escaped;
        (character == '"' && !was_escaped).then_some(at)
    };
    source.char_indices().find_map(ends).unwrap()
}

/// Returns the text of a literal without the line breaks of the source.
fn plain(literal: &str) -> String {
    let mut lines = literal.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |text, line| text + line.trim_start()).replace("\\\"", "\"")
}

#[test]
fn literals_are_found_between_other_quotes() {
    let source = r#"
        // A "comment" here.
        #[allow(dead_code, reason = "an [attribute")]
        fn f<'a>(x: &'a str) -> char { g(b'"', '"', '\'', "one \
            message: \"{x}\"", "a second") }
        #[cfg(test)]
mod tests { "no message" }
    "#;
    // The marker of inline tests begins a line.
    let source = source.replace("        #[cfg(test)]", "#[cfg(test)]");
    assert_eq!(literals(&source), ["one message: \"{x}\"", "a second"]);
}
