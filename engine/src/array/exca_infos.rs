//! Parses exca's info files: a line of JSON for each entry of a cache.
//!
//! exca deletes an entry by overwriting its line with spaces, and other processes append lines while a file is
//! read. So a line that begins with a space is not an entry, and a last line without a line end is still being
//! written.
//!
//! The file may come from an untrusted source, so it takes at most a small multiple of its own size in memory: values
//! stay text until their type is known, those of other keys are never kept, and a shape has a limit.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use ringmain_backends::ReadBackendExt;
use serde::de::{DeserializeOwned, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::layout::NDIM_MAX;
use crate::{Damage, Engine, Error, MemmapArrayInfo, Result};

/// The names under which exca stores an array as its bytes in a `.data` file. `MemmapArrayFile` is the name that
/// older versions gave to `MemmapArray`.
const ARRAY_TYPES: [&str; 4] =
    ["MemmapArray", "ContiguousMemmapArray", "TorchTensor", "MemmapArrayFile"];

impl Engine {
    /// Reads one of exca's info files (`…-info.jsonl`) and returns the arrays in it by key, in the order of the
    /// file. Entries of other types are left out, as are deleted ones. If a key occurs twice, its last entry counts.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let folder = dir.path();
    /// # std::fs::write(folder.join("a.data"), [0, 0, 128, 63, 0, 0, 0, 64])?;
    /// # std::fs::write(folder.join("host-1-info.jsonl"), concat!(
    /// #     r##"{"filename":"a.data","offset":0,"shape":[2],"dtype":"float32","#type":"MemmapArray","#key":"one"}"##, "\n"))?;
    /// let engine = ringmain::Engine::new()?;
    /// for (key, info) in engine.read_exca_infos(folder.join("host-1-info.jsonl"))? {
    ///     let array = engine.open_exca(folder, &info)?;
    ///     println!("{key}: {:?}", array.shape());
    /// #   assert_eq!((key.as_str(), array.read_vec::<f32>()?), ("one", vec![1.0, 2.0]));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "exca")))]
    pub fn read_exca_infos(
        &self,
        path: impl AsRef<Path>,
    ) -> Result<Vec<(String, MemmapArrayInfo)>> {
        let path = path.as_ref();
        let read = || {
            let file = self.backend().open(path)?;
            let len = usize::try_from(self.backend().len(&file)?).unwrap_or(usize::MAX);
            self.backend().read_to_vec(&file, 0, len)
        };
        let bytes = read().map_err(|error| Error::backend(path, error))?;
        parse_infos(&bytes).map_err(|reason| Error::format(path, Damage::Array { reason }))
    }
}

/// Returns the arrays in the bytes of an info file, or the reason why the file cannot be understood.
pub(crate) fn parse_infos(
    bytes: &[u8],
) -> std::result::Result<Vec<(String, MemmapArrayInfo)>, String> {
    if bytes.starts_with(b"metadata=") {
        return Err("it is an info file of exca 0.5.14 or older; load its entries with exca, and dump them \
                    with exca 0.5.15 or newer"
            .into());
    }
    let mut infos: Vec<(String, MemmapArrayInfo)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (at, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        if line.starts_with(b" ") || line.trim_ascii().is_empty() {
            continue;
        }
        let value = match parse_json(line) {
            Ok(value) => value,
            Err(_) if !line.ends_with(b"\n") => break,
            Err(error) => return Err(format!("line {} is not JSON: {error}", at + 1)),
        };
        let entry = parse_entry(value).map_err(|reason| format!("line {} {reason}", at + 1))?;
        let Some((key, info)) = entry else { continue };
        match places.get(&key) {
            Some(place) => infos[*place] = (key, info),
            None => {
                places.insert(key.clone(), infos.len());
                infos.push((key, info));
            }
        }
    }
    Ok(infos)
}

/// Checks that a line is a value of JSON, and returns its text.
fn parse_json(line: &[u8]) -> std::result::Result<&RawValue, String> {
    let text = std::str::from_utf8(line).map_err(|error| error.to_string())?;
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// The keys of an entry that say where its array lies. Their values may have any type.
#[derive(Deserialize)]
struct RawEntry<'a> {
    #[serde(borrow, rename = "#key")]
    key: Option<&'a RawValue>,
    #[serde(borrow, rename = "#type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    filename: Option<&'a RawValue>,
    #[serde(borrow)]
    offset: Option<&'a RawValue>,
    #[serde(borrow)]
    shape: Option<&'a RawValue>,
    #[serde(borrow)]
    dtype: Option<&'a RawValue>,
}

/// Returns the key and the array of an entry, or `None` if the entry is not an array.
fn parse_entry(value: &RawValue) -> std::result::Result<Option<(String, MemmapArrayInfo)>, String> {
    if !value.get().starts_with('{') {
        return Err("is not a JSON object".into());
    }
    let entry: RawEntry<'_> = serde_json::from_str(value.get())
        .map_err(|error| format!("cannot be understood: {error}"))?;
    let Some(key) = typed(entry.key) else { return Err("has no `#key`".into()) };
    let Some(kind) = typed::<String>(entry.kind) else { return Err("has no `#type`".into()) };
    if !ARRAY_TYPES.contains(&kind.as_str()) {
        return Ok(None);
    }
    Ok(Some((key, parse_array(&entry)?)))
}

fn parse_array(entry: &RawEntry<'_>) -> std::result::Result<MemmapArrayInfo, String> {
    let Some(filename) = typed::<String>(entry.filename) else {
        return Err("has an array without a `filename` that is a text".into());
    };
    let Some(offset) = typed(entry.offset) else {
        return Err("has an array without an `offset` that is a number of bytes".into());
    };
    let Some(Shape(shape)) = typed(entry.shape) else {
        return Err(format!(
            "has an array without a `shape` that is a list of at most {NDIM_MAX} lengths"
        ));
    };
    let Some(dtype) = typed(entry.dtype) else {
        return Err("has an array without a `dtype` that is a text".into());
    };
    Ok(MemmapArrayInfo { filename: filename.into(), offset, shape, dtype })
}

/// Returns the value as this type, or `None` if it is missing or of another type.
fn typed<T: DeserializeOwned>(value: Option<&RawValue>) -> Option<T> {
    serde_json::from_str(value?.get()).ok()
}

/// The lengths of the axes of an array. A longer list is refused before it is in memory.
struct Shape(Vec<usize>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_seq(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of lengths")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut axes: A) -> std::result::Result<Shape, A::Error> {
        let mut shape = Vec::new();
        while let Some(len) = axes.next_element()? {
            if shape.len() == NDIM_MAX {
                return Err(A::Error::custom("too many axes"));
            }
            shape.push(len);
        }
        // The list grew in steps.
        shape.shrink_to_fit();
        Ok(Shape(shape))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = r##"{"filename":"a.data","offset":8,"shape":[2,3],"dtype":"<f4","#type":"MemmapArray","#key":"one"}"##;

    fn keys(text: &str) -> Vec<String> {
        parse_infos(text.as_bytes()).unwrap().into_iter().map(|(key, _)| key).collect()
    }

    #[test]
    fn arrays_are_found_and_other_entries_left_out() {
        let json = r##"{"content":3,"#type":"Json","#key":"number"}"##;
        let text = format!("{ONE}\n{json}\n{}\n", ONE.replace("one", "two"));
        let infos = parse_infos(text.as_bytes()).unwrap();
        assert_eq!(keys(&text), ["one", "two"]);
        let info = MemmapArrayInfo {
            filename: "a.data".into(),
            offset: 8,
            shape: vec![2, 3],
            dtype: "<f4".into(),
        };
        assert_eq!(infos[0], ("one".to_owned(), info));
        for name in ARRAY_TYPES {
            assert_eq!(keys(&ONE.replace("MemmapArray", name)), ["one"]);
        }
    }

    #[test]
    fn deleted_and_unfinished_lines_are_no_entries() {
        let blank = format!(" {}", " ".repeat(ONE.len() - 1));
        let marked = format!(" {}", &ONE[1..]);
        assert_eq!(keys(&format!("{blank}\n{marked}\n\n{ONE}\n")), ["one"]);
        let two = ONE.replace("one", "two");
        for len in 0..two.len() {
            assert_eq!(keys(&format!("{ONE}\n{}", &two[..len])), ["one"], "{len}");
        }
        assert_eq!(
            keys(&format!("{ONE}\n{two}")),
            ["one", "two"],
            "only the end of the line is missing"
        );
    }

    #[test]
    fn only_entries_of_arrays_must_describe_one() {
        let other =
            r##"{"shape":"square","offset":[],"dtype":null,"#type":"Json","#key":"number"}"##;
        let axes = ONE.replace("[2,3]", &format!("{:?}", [1; 64]));
        assert_eq!(keys(&format!("{other}\n{axes}\n")), ["one"]);
        assert_eq!(keys(&ONE.replace("one", "\\u00f6\\n")), ["ö\n"], "a text with escapes");
    }

    #[test]
    fn the_last_entry_of_a_key_counts() {
        let text = format!("{ONE}\n{}\n", ONE.replace("\"offset\":8", "\"offset\":9"));
        let infos = parse_infos(text.as_bytes()).unwrap();
        assert_eq!((infos.len(), infos[0].1.offset), (1, 9));
    }

    #[test]
    fn a_bad_line_is_an_error_that_names_it() {
        let cases = [
            ("{\n".to_owned(), "line 2 is not JSON"),
            ("3\n".to_owned(), "line 2 is not a JSON object"),
            ("{}\n".to_owned(), "line 2 has no `#key`"),
            (ONE.replace("\"#type\"", "\"type\""), "line 2 has no `#type`"),
            (ONE.replace("\"a.data\"", "3"), "without a `filename`"),
            (ONE.replace(":8,", ":-8,"), "without an `offset`"),
            (ONE.replace("[2,3]", "[2,-3]"), "without a `shape`"),
            (ONE.replace("[2,3]", "[2,3.5]"), "without a `shape`"),
            (ONE.replace("[2,3]", &format!("{:?}", [1; 65])), "a list of at most 64 lengths"),
            (ONE.replace("\"<f4\"", "null"), "without a `dtype`"),
            (ONE.replace("\"offset\":8", "\"offset\":8,\"offset\":9"), "duplicate field `offset`"),
        ];
        for (line, expected) in cases {
            let error = parse_infos(format!("{ONE}\n{line}").as_bytes()).unwrap_err();
            assert!(error.contains(expected), "`{expected}` is missing in: {error}");
        }
        let error = parse_infos(b"metadata={\"cache_type\":\"x\"}\n").unwrap_err();
        assert!(error.contains("exca 0.5.14 or older"), "{error}");
    }
}
