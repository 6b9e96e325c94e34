//! Reads a result from disk.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::failure::Failure;
use crate::result::{Run, SCHEMA_VERSION};
use crate::system::regular::open_regular;

/// The fields of an object, by name.
type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// Reads a `run.json`. The version is checked first, so that a result of another version is refused for
/// that reason and not because of a missing field.
pub(crate) fn load_run(path: &Path) -> Result<Run, Failure> {
    let failed = |source| Failure::ReadFile { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    open_regular(path).and_then(|mut file| file.read_to_end(&mut bytes)).map_err(failed)?;
    parse_run(&bytes).map_err(|message| Failure::Run { path: path.to_owned(), message })
}

pub(crate) fn parse_run(bytes: &[u8]) -> Result<Run, String> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err("the file is empty; a run writes it when it ends".into());
    }
    if let Some((head, cells)) = split_log(bytes) {
        return parse_log(head, cells);
    }
    let fields: Fields<'_> = serde_json::from_slice(bytes).map_err(not_a_result)?;
    let Some(version) = fields.get("schema_version") else {
        return Err("it has no `schema_version`, so it is not a result of `ringmain bench`".into());
    };
    let version: u32 = version
        .get()
        .parse()
        .map_err(|_| format!("`schema_version` is {}, not a number", shortened(version.get())))?;
    check_version(version)?;
    serde_json::from_slice(bytes).map_err(not_a_result)
}

/// Parses the log of a run that was killed: its head on the first line, a cell on each other line.
fn split_log(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let (head, cells) = (&bytes[..end], &bytes[end + 1..]);
    let is_log = cells.first() == Some(&b'{') && head.starts_with(b"{") && head.ends_with(b"}");
    is_log.then_some((head, cells))
}

fn parse_log(head: &[u8], cells: &[u8]) -> Result<Run, String> {
    let mut run = parse_run(head)?;
    let mut lines = cells.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).peekable();
    while let Some(line) = lines.next() {
        match serde_json::from_slice(line) {
            Ok(cell) => run.cells.push(cell),
            // The last line may have been cut off.
            Err(_) if lines.peek().is_none() => {}
            Err(error) => return Err(not_a_result(error)),
        }
    }
    Ok(run)
}

fn check_version(version: u32) -> Result<(), String> {
    let ours = env!("CARGO_PKG_VERSION");
    match version.cmp(&SCHEMA_VERSION) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(format!(
            "it has schema version {version}, from a newer ringmain; this one ({ours}) reads \
             version {SCHEMA_VERSION}: use the ringmain that measured it, or update this one"
        )),
        std::cmp::Ordering::Less => Err(format!(
            "it has schema version {version}, from an older ringmain; this one ({ours}) reads \
             version {SCHEMA_VERSION}: use the ringmain that measured it, or measure again"
        )),
    }
}

fn not_a_result(error: serde_json::Error) -> String {
    match error.classify() {
        Category::Eof => format!(
            "it ends in the middle ({error}): it was cut off while it was written or copied; \
             copy it again, or measure again"
        ),
        Category::Syntax => format!("it is not JSON ({error}); name the run.json of a run"),
        Category::Data | Category::Io => format!(
            "it is not a result of `ringmain bench` ({error}); `ringmain schema` prints what one \
             looks like"
        ),
    }
}

/// Returns the start of a text.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_result_survives_a_round_trip() {
        let run = fixture::small_run();
        let text = serde_json::to_vec(&run).unwrap();
        let back = parse_run(&text).unwrap();
        assert!(serde_json::to_vec(&back).unwrap() == text);
    }

    #[test]
    fn other_files_are_refused_with_a_hint() {
        let whole = serde_json::to_string(&fixture::small_run()).unwrap();
        let cut = &whole[..whole.len() / 2];
        let cases = [
            ("", "is empty"),
            (" \n", "is empty"),
            ("<html>", "not JSON"),
            ("[1, 2]", "not a result of `ringmain bench`"),
            ("{}", "no `schema_version`"),
            ("{\"schema_version\": \"1\"}", "not a number"),
            ("{\"schema_version\": 1}", "missing field"),
            ("{\"schema_version\": 0}", "older ringmain"),
            ("{\"schema_version\": 2, \"cells\": 7}", "newer ringmain"),
            (cut, "ends in the middle"),
        ];
        for (text, part) in cases {
            let message = parse_run(text.as_bytes()).unwrap_err();
            assert!(message.contains(part), "{text:.60}: {message}");
        }
    }
}
