//! Finds the files of a model.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};

use ringmain_backends::ReadBackend;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use super::damage::Shown;
use super::{Error, WeightsDamage};

/// The usual name of the index of a model in several files.
const INDEX_NAME: &str = "model.safetensors.index.json";
const INDEX_SUFFIX: &str = ".safetensors.index.json";
/// The usual name of a model in one file.
const FILE_NAME: &str = "model.safetensors";
const FILE_SUFFIX: &str = ".safetensors";

/// The location of a model.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ModelLocation {
    Files(Vec<PathBuf>),
    /// The files that an index names.
    Index(PathBuf),
}

/// Resolves a path: a file, an index, or a directory that holds either.
pub(super) fn locate(backend: &dyn ReadBackend, path: &Path) -> Result<ModelLocation, Error> {
    let Some(names) = file_names(backend, path)? else {
        let is_index = path.extension().is_some_and(|extension| extension == "json");
        let path = path.to_owned();
        return Ok(if is_index {
            ModelLocation::Index(path)
        } else {
            ModelLocation::Files(vec![path])
        });
    };
    let ending = |suffix: &'static str| {
        names.iter().filter(move |name| name.ends_with(suffix)).collect::<Vec<_>>()
    };
    let (indexes, files) = (ending(INDEX_SUFFIX), ending(FILE_SUFFIX));
    let no_model = |reason| Error::format(path, WeightsDamage::NoModel { reason });
    if names.contains(INDEX_NAME) {
        return Ok(ModelLocation::Index(path.join(INDEX_NAME)));
    }
    match indexes.as_slice() {
        [] if names.contains(FILE_NAME) => Ok(ModelLocation::Files(vec![path.join(FILE_NAME)])),
        [] if files.is_empty() => {
            Err(no_model("there is no *.safetensors file in this directory".into()))
        }
        [] => Ok(ModelLocation::Files(files.into_iter().map(|name| path.join(name)).collect())),
        [index] => Ok(ModelLocation::Index(path.join(index))),
        _ => Err(no_model(format!("there are several indexes; give one of them: {indexes:?}"))),
    }
}

/// Returns sorted names, so that the order of files is the same on every system. `None` if the path is not that
/// of a folder; if there is nothing at the path, opening it says so.
fn file_names(backend: &dyn ReadBackend, dir: &Path) -> Result<Option<BTreeSet<String>>, Error> {
    let paths = match backend.list(dir) {
        Ok(Some(paths)) => paths,
        Ok(None) => return Ok(None),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::InvalidInput => return Ok(None),
            _ => return Err(Error::unlisted(dir, "listing the directory", error)),
        },
    };
    // A name that is not Unicode is not one of the expected names.
    let name = |path: PathBuf| path.file_name()?.to_str().map(str::to_owned);
    Ok(Some(paths.into_iter().filter_map(name).collect()))
}

/// The text of the smallest entry: `"a":"b",`.
const ENTRY_BYTES_MIN: usize = 8;

/// A decoded index.
#[derive(Debug)]
pub(crate) struct Index {
    /// Sorted by file, and then by tensor.
    entries: Vec<IndexEntry>,
}

/// A tensor, and the file that it is in.
#[derive(Debug)]
pub(crate) struct IndexEntry {
    pub(crate) file: Box<str>,
    pub(crate) tensor: Box<str>,
}

struct IndexVisitor {
    text_bytes: usize,
}

impl<'de> Visitor<'de> for IndexVisitor {
    type Value = Vec<IndexEntry>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a `weight_map`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = None;
        while let Some(key) = map.next_key::<Key>()? {
            match key {
                Key::WeightMap if entries.is_some() => {
                    return Err(A::Error::duplicate_field("weight_map"));
                }
                Key::WeightMap => {
                    entries = Some(map.next_value_seed(WeightMap { text_bytes: self.text_bytes })?);
                }
                Key::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        entries.ok_or_else(|| A::Error::missing_field("weight_map"))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Key {
    WeightMap,
    #[serde(other)]
    Other,
}

/// Reads all entries, with duplicates.
struct WeightMap {
    text_bytes: usize,
}

impl<'de> DeserializeSeed<'de> for WeightMap {
    type Value = Vec<IndexEntry>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for WeightMap {
    type Value = Vec<IndexEntry>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors and the files that they are in")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        // A vector that grows would take three times as much for a moment.
        let mut entries = Vec::with_capacity(self.text_bytes / ENTRY_BYTES_MIN);
        while let Some(tensor) = map.next_key::<Box<str>>()? {
            let file = map.next_value();
            let named =
                |error| A::Error::custom(format_args!("tensor `{}`: {error}", Shown(&tensor)));
            let file = file.map_err(named)?;
            entries.push(IndexEntry { file, tensor });
        }
        Ok(entries)
    }
}

impl Index {
    pub(crate) fn parse(json: &[u8], path: &Path) -> Result<Self, Error> {
        let bad = |reason| Error::format(path, WeightsDamage::BadIndex { reason });
        let mut entries = read_entries(json)
            .map_err(|error| bad(format!("it is not the index of a model: {error}")))?;
        if entries.is_empty() {
            return Err(bad("it names no tensors".into()));
        }
        entries.sort_unstable_by(|a, b| a.tensor.cmp(&b.tensor));
        if let Some(twice) = entries.windows(2).find(|pair| pair[0].tensor == pair[1].tensor) {
            return Err(bad(format!("tensor `{}` occurs twice", Shown(&twice[0].tensor))));
        }
        if let Some(IndexEntry { tensor, file }) = entries.iter().find(|it| !is_below(&it.file)) {
            let (tensor, file) = (Shown(tensor), Shown(file));
            return Err(bad(format!(
                "it places tensor `{tensor}` in `{file}`; only files beside the index, or in \
                 folders beside it, are read"
            )));
        }
        if let Some(IndexEntry { tensor, file }) =
            entries.iter().find(|it| it.file.len() > PATH_BYTES_MAX)
        {
            let (tensor, len) = (Shown(tensor), file.len());
            return Err(bad(format!(
                "it places tensor `{tensor}` in a file whose name has {len} bytes; no path is longer than \
                 {PATH_BYTES_MAX}"
            )));
        }
        entries.sort_unstable_by(|a, b| (&a.file, &a.tensor).cmp(&(&b.file, &b.tensor)));
        Ok(Self { entries })
    }

    /// Returns the entries of each file, the files in order, and the tensors of each in order.
    pub(crate) fn files(&self) -> impl Iterator<Item = &[IndexEntry]> {
        self.entries.chunk_by(|a, b| a.file == b.file)
    }
}

fn read_entries(json: &[u8]) -> serde_json::Result<Vec<IndexEntry>> {
    let mut parser = serde_json::Deserializer::from_slice(json);
    let entries = parser.deserialize_map(IndexVisitor { text_bytes: json.len() })?;
    parser.end()?;
    Ok(entries)
}

/// No path of Linux is longer. A system call would convert a longer name first, which takes a multiple of its
/// size on Windows.
const PATH_BYTES_MAX: usize = 4096;

/// Returns `true` if a name leads to a file below the index's own directory. A downloaded index
/// must not be able to name other files, nor one file in several ways (`a//b`, `a/./b`), because the
/// header of each file is kept.
fn is_below(name: &str) -> bool {
    // `components` leaves out empty parts and dots.
    let is_plain = |part| !matches!(part, "" | "." | "..");
    let is_name = |part| matches!(part, Component::Normal(_));
    name.split(std::path::is_separator).all(is_plain) && Path::new(name).components().all(is_name)
}

#[cfg(test)]
mod tests {
    use ringmain_backends::MemoryBackend;

    use super::*;
    use crate::Damage;

    fn parse(json: &str) -> Result<Index, Error> {
        Index::parse(json.as_bytes(), Path::new("m.safetensors.index.json"))
    }

    /// A name as long as the whole index took 12 times its size on Windows, for the system call.
    #[test]
    fn a_file_name_that_no_path_can_have_is_refused() {
        let index =
            |len: usize| parse(&format!(r#"{{"weight_map":{{"a":"{}"}}}}"#, "x".repeat(len)));
        assert!(index(PATH_BYTES_MAX).is_ok());
        let error = index(PATH_BYTES_MAX + 1).unwrap_err().to_string();
        assert!(error.contains("4097 bytes") && error.contains("`a`"), "{error}");
    }

    #[test]
    fn tensors_are_found_by_file() {
        let json = r#"{"metadata":{"total_size":3},"weight_map":{"b":"2","c":"1","a":"2"}}"#;
        let index = parse(json).unwrap();
        let names = |entries: &[IndexEntry]| {
            let tensors: Vec<_> = entries.iter().map(|entry| entry.tensor.to_string()).collect();
            (entries[0].file.to_string(), tensors)
        };
        let files: Vec<_> = index.files().map(names).collect();
        let expected = [("1", vec!["c"]), ("2", vec!["a", "b"])];
        let owned = |(file, tensors): (&str, Vec<&str>)| {
            (file.to_owned(), tensors.into_iter().map(str::to_owned).collect())
        };
        assert_eq!(files, expected.map(owned));
    }

    #[test]
    fn a_bad_index_is_refused_with_the_reason() {
        let cases = [
            ("", "not the index"),
            ("[]", "not the index"),
            ("{}", "weight_map"),
            (r#"{"weight_map":[]}"#, "an object of tensors"),
            (r#"{"weight_map":{}}"#, "names no tensors"),
            (r#"{"weight_map":{"a":1}}"#, "tensor `a`"),
            (r#"{"weight_map":{"a":"1","a":"2"}}"#, "tensor `a` occurs twice"),
            (r#"{"weight_map":{"a":"../1"}}"#, "beside the index"),
            (r#"{"weight_map":{"a":"/etc/passwd"}}"#, "beside the index"),
            (r#"{"weight_map":{"a":""}}"#, "beside the index"),
            (r#"{"weight_map":{"a":"b//c"}}"#, "beside the index"),
            (r#"{"weight_map":{"a":"b/"}}"#, "beside the index"),
            // One file had as many names as there are dots.
            (r#"{"weight_map":{"a":"b/./c"}}"#, "beside the index"),
            (r#"{"weight_map":{"a":"b/."}}"#, "beside the index"),
            (r#"{"weight_map":{"a":"b/../c"}}"#, "beside the index"),
            (r#"{"weight_map":{"a":"b"},"weight_map":{"a":"b"}}"#, "duplicate field"),
        ];
        for (json, expected) in cases {
            let error = parse(json).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("index.json"), "{json}: {error}");
        }
    }

    #[test]
    fn a_directory_resolves_to_its_index_or_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str| std::fs::write(dir.path().join(name), "").unwrap();
        let missing = locate(&MemoryBackend::new(), dir.path()).unwrap_err();
        assert!(
            matches!(missing.damage(), Some(Damage::Weights(WeightsDamage::NoModel { .. }))),
            "{missing}"
        );
        write("b.safetensors");
        write("a.safetensors");
        let paths = |names: &[&str]| names.iter().map(|name| dir.path().join(name)).collect();
        let both = ModelLocation::Files(paths(&["a.safetensors", "b.safetensors"]));
        assert_eq!(locate(&MemoryBackend::new(), dir.path()).unwrap(), both);
        write("model.safetensors");
        assert_eq!(
            locate(&MemoryBackend::new(), dir.path()).unwrap(),
            ModelLocation::Files(paths(&["model.safetensors"]))
        );
        write("x.safetensors.index.json");
        let index = |name| ModelLocation::Index(dir.path().join(name));
        assert_eq!(
            locate(&MemoryBackend::new(), dir.path()).unwrap(),
            index("x.safetensors.index.json")
        );
        write("y.safetensors.index.json");
        let several = locate(&MemoryBackend::new(), dir.path()).unwrap_err().to_string();
        assert!(several.contains("several indexes"), "{several}");
        write("model.safetensors.index.json");
        assert_eq!(
            locate(&MemoryBackend::new(), dir.path()).unwrap(),
            index("model.safetensors.index.json")
        );
    }
}
