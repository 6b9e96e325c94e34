//! Finds the files of a model.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde::de::{Error as _, MapAccess, Visitor};

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
pub(super) fn locate(path: &Path) -> Result<ModelLocation, Error> {
    if !path.is_dir() {
        let is_index = path.extension().is_some_and(|extension| extension == "json");
        let path = path.to_owned();
        return Ok(if is_index {
            ModelLocation::Index(path)
        } else {
            ModelLocation::Files(vec![path])
        });
    }
    let names = file_names(path)?;
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

/// Returns sorted names, so that the order of files is the same on every system.
fn file_names(dir: &Path) -> Result<BTreeSet<String>, Error> {
    let failed = |source| Error::looking(dir, "listing the directory", source);
    let mut names = BTreeSet::new();
    for entry in dir.read_dir().map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        // A name that is not Unicode is not one of the expected names.
        names.extend(name.into_string().ok());
    }
    Ok(names)
}

/// A decoded index: the files, and the tensors of each, both in order.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) files: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct Json {
    weight_map: WeightMap,
}

/// Pairs of tensor and file, with duplicates.
struct WeightMap(Vec<(String, String)>);

impl<'de> Deserialize<'de> for WeightMap {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(WeightMapVisitor)
    }
}

struct WeightMapVisitor;

impl<'de> Visitor<'de> for WeightMapVisitor {
    type Value = WeightMap;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors and the files that they are in")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WeightMap, A::Error> {
        let mut entries = Vec::new();
        while let Some(tensor) = map.next_key::<String>()? {
            let file = map.next_value();
            let named = |error| A::Error::custom(format_args!("tensor `{tensor}`: {error}"));
            let file = file.map_err(named)?;
            entries.push((tensor, file));
        }
        Ok(WeightMap(entries))
    }
}

impl Index {
    pub(super) fn parse(json: &[u8], path: &Path) -> Result<Self, Error> {
        let bad = |reason| Error::format(path, WeightsDamage::BadIndex { reason });
        let parsed = serde_json::from_slice::<Json>(json);
        let parsed =
            parsed.map_err(|error| bad(format!("it is not the index of a model: {error}")))?;
        let WeightMap(mut entries) = parsed.weight_map;
        if entries.is_empty() {
            return Err(bad("it names no tensors".into()));
        }
        entries.sort();
        if let Some(twice) = entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(bad(format!("tensor `{}` occurs twice", twice[0].0)));
        }
        let mut files = BTreeMap::<String, Vec<String>>::new();
        for (tensor, file) in entries {
            if !is_below(&file) {
                let reason = format!(
                    "it places tensor `{tensor}` in `{file}`; only files beside the index, or \
                     in folders beside it, are read"
                );
                return Err(bad(reason));
            }
            files.entry(file).or_default().push(tensor);
        }
        Ok(Self { files })
    }
}

/// Returns `true` if a name leads to a file below the index's own directory. A downloaded index
/// must not be able to name other files.
fn is_below(name: &str) -> bool {
    let is_name = |part| matches!(part, Component::Normal(_));
    !name.is_empty() && Path::new(name).components().all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Damage;

    fn parse(json: &str) -> Result<Index, Error> {
        Index::parse(json.as_bytes(), Path::new("m.safetensors.index.json"))
    }

    #[test]
    fn tensors_are_found_by_file() {
        let json = r#"{"metadata":{"total_size":3},"weight_map":{"b":"2","c":"1","a":"2"}}"#;
        let files: Vec<_> = parse(json).unwrap().files.into_iter().collect();
        let expected = [("1", vec!["c"]), ("2", vec!["a", "b"])];
        for ((file, tensors), (name, names)) in files.iter().zip(expected) {
            assert_eq!((file.as_str(), tensors.as_slice()), (name, &names.map_owned()[..]));
        }
        assert_eq!(files.len(), 2);
    }

    trait MapOwned {
        fn map_owned(self) -> Vec<String>;
    }

    impl MapOwned for Vec<&str> {
        fn map_owned(self) -> Vec<String> {
            self.into_iter().map(str::to_owned).collect()
        }
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
        let missing = locate(dir.path()).unwrap_err();
        assert!(
            matches!(missing.damage(), Some(Damage::Weights(WeightsDamage::NoModel { .. }))),
            "{missing}"
        );
        write("b.safetensors");
        write("a.safetensors");
        let paths = |names: &[&str]| names.iter().map(|name| dir.path().join(name)).collect();
        let both = ModelLocation::Files(paths(&["a.safetensors", "b.safetensors"]));
        assert_eq!(locate(dir.path()).unwrap(), both);
        write("model.safetensors");
        assert_eq!(
            locate(dir.path()).unwrap(),
            ModelLocation::Files(paths(&["model.safetensors"]))
        );
        write("x.safetensors.index.json");
        let index = |name| ModelLocation::Index(dir.path().join(name));
        assert_eq!(locate(dir.path()).unwrap(), index("x.safetensors.index.json"));
        write("y.safetensors.index.json");
        let several = locate(dir.path()).unwrap_err().to_string();
        assert!(several.contains("several indexes"), "{several}");
        write("model.safetensors.index.json");
        assert_eq!(locate(dir.path()).unwrap(), index("model.safetensors.index.json"));
    }
}
