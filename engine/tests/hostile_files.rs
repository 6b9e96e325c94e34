//! A file cannot make a reader allocate more than a small multiple of the file's own size.
//!
//! Each case is the worst file that could be found for one list or text of a format. `docs/reliability.md`
//! explains the bound.

// Clippy allows these in functions marked `#[test]`, but not in the helpers they share.
#![allow(clippy::unwrap_used)]

#[path = "support/peak.rs"]
mod peak;

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use ringmain::beton::{Allocation, ArraySpec, BetonReader, Field, FieldKind, Header};
use ringmain::shards::ShardSource;
use ringmain::weights::Weights;
use ringmain::{BackendKind, Engine, Kind, Profile};

use peak::check_peak;

/// The largest multiple of the file's size.
const MULTIPLE_MAX: u64 = 8;
/// Memory that does not depend on the file: the first read, buffers of the backend, and lists with a
/// fixed limit. The largest is the metadata of safetensors files.
const CONSTANT_BYTES: u64 = 8 << 20;
/// The size of most files, so large that the constant does not hide a wrong multiple. Half of it is enough, and
/// the tests run on Wine, which is slow.
const TEXT_BYTES: usize = if cfg!(windows) { 4 << 20 } else { 8 << 20 };

/// A folder with files, and an engine that reads them with `pread`, in the thread of the test.
struct Place {
    dir: tempfile::TempDir,
    engine: Engine,
    failures: Vec<String>,
}

impl Place {
    fn new() -> Self {
        let engine = Engine::builder().backend(BackendKind::Pread).ignore_profile().build();
        Self { dir: tempfile::tempdir().unwrap(), engine: engine.unwrap(), failures: Vec::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Opens the file and notes if that takes too much memory. `open` returns the message of its error;
    /// whether it succeeds does not matter.
    fn check(
        &mut self,
        what: &str,
        path: &Path,
        open: impl FnOnce(&Engine, &Path) -> Result<(), String>,
    ) {
        let file_bytes = std::fs::metadata(path).unwrap().len();
        let bytes_max = MULTIPLE_MAX * file_bytes + CONSTANT_BYTES;
        let checked = check_peak(what, file_bytes, bytes_max, || open(&self.engine, path));
        self.failures.extend(checked.err());
        std::fs::remove_file(path).unwrap();
    }

    fn finish(self) {
        assert!(self.failures.is_empty(), "too much memory:\n{}", self.failures.join("\n"));
    }
}

/// Repeats texts until they fill a file. `item` gets the number of the text.
fn repeated(mut item: impl FnMut(&mut String, usize)) -> String {
    let (mut text, mut number) = (String::with_capacity(TEXT_BYTES + 4096), 0);
    while text.len() < TEXT_BYTES {
        item(&mut text, number);
        number += 1;
    }
    text
}

/// Removes the comma after the last item.
fn without_comma(mut text: String) -> String {
    text.truncate(text.trim_end_matches(',').len());
    text
}

fn safetensors(json: &str) -> Vec<u8> {
    [&(json.len() as u64).to_le_bytes(), json.as_bytes()].concat()
}

const TENSOR: &str = r#"{"dtype":"U8","shape":[0],"data_offsets":[0,0]}"#;

/// Headers of safetensors files, by what they consist of.
fn headers() -> Vec<(&'static str, String)> {
    let zeros = without_comma("0,".repeat(TEXT_BYTES / 2));
    let long = "x".repeat(TEXT_BYTES);
    let escaped = "\\n".repeat(TEXT_BYTES / 2);
    let nested = format!("{}{}", "[".repeat(TEXT_BYTES / 2), "]".repeat(TEXT_BYTES / 2));
    let shallow = repeated(|text, _| text.push_str("[[[[[]]]]],"));
    let tensors = |tensor: &str| {
        let item = |text: &mut String, number| write!(text, r#""{number:x}":{tensor},"#).unwrap();
        format!("{{{}}}", without_comma(repeated(item)))
    };
    let axes = without_comma("0,".repeat(64));
    let strings = repeated(|text, number| write!(text, r#""{number:x}":"","#).unwrap());
    let few_strings: String = (0..65_536).fold(String::new(), |mut text, number| {
        write!(text, r#""{number:x}":"","#).unwrap();
        text
    });
    let same = repeated(|text, _| write!(text, r#""a":{TENSOR},"#).unwrap());
    let one =
        |shape: &str| format!(r#"{{"a":{{"dtype":"U8","shape":[{shape}],"data_offsets":[0,0]}}}}"#);
    vec![
        ("one shape", one(&zeros)),
        ("one number", one(&"1".repeat(TEXT_BYTES))),
        ("tiny tensors", tensors(TENSOR)),
        ("scalars that are empty", tensors(r#"{"dtype":"U8","shape":[],"data_offsets":[0,0]}"#)),
        (
            "tensors of many axes",
            tensors(&format!(r#"{{"dtype":"U8","shape":[{axes}],"data_offsets":[0,0]}}"#)),
        ),
        ("the same tensor", format!("{{{}}}", without_comma(same))),
        ("tensors of an unknown type", tensors(r#"{"dtype":"","shape":[],"data_offsets":[0,0]}"#)),
        ("a long name", format!(r#"{{"{long}":{TENSOR}}}"#)),
        ("a long name with escapes", format!(r#"{{"{escaped}":{TENSOR}}}"#)),
        ("a long name of a bad tensor", format!(r#"{{"{long}":{{"dtype":1}}}}"#)),
        (
            "a long name, twice",
            format!(r#"{{"{0}":{TENSOR},"{0}":{TENSOR}}}"#, &long[..TEXT_BYTES / 2]),
        ),
        ("a long type", format!(r#"{{"a":{{"dtype":"{long}","shape":[],"data_offsets":[0,1]}}}}"#)),
        ("nested lists", format!(r#"{{"a":{nested}}}"#)),
        ("lists in an unknown key", format!(r#"{{"a":{{"b":[{}]}}}}"#, without_comma(shallow))),
        ("metadata", format!(r#"{{"__metadata__":{{{}}}}}"#, without_comma(strings))),
        (
            "as much metadata as allowed",
            format!(r#"{{"__metadata__":{{{}}}}}"#, without_comma(few_strings)),
        ),
        ("a long text in the metadata", format!(r#"{{"__metadata__":{{"a":"{escaped}"}}}}"#)),
        ("spaces", format!("{{}}{}", " ".repeat(TEXT_BYTES))),
        ("text that does not end", format!(r#"{{"{long}"#)),
    ]
}

#[test]
fn headers_of_safetensors() {
    let mut place = Place::new();
    for (what, json) in headers() {
        let path = place.write("a.safetensors", &safetensors(&json));
        place.check(what, &path, |engine, path| {
            Weights::open(engine, path).map(drop).map_err(|error| error.to_string())
        });
    }
    place.finish();
}

#[test]
fn indexes_of_models() {
    let mut place = Place::new();
    let map = |items: String| format!(r#"{{"weight_map":{{{}}}}}"#, without_comma(items));
    let long = "x".repeat(TEXT_BYTES);
    let cases = [
        (
            "tensors of one file",
            map(repeated(|text, number| write!(text, r#""{number:x}":"a","#).unwrap())),
        ),
        (
            "files of one tensor",
            map(repeated(|text, number| write!(text, r#""{number:x}":"{number:x}","#).unwrap())),
        ),
        ("the same tensor", map(repeated(|text, _| text.push_str(r#""a":"a","#)))),
        ("a long name", map(format!(r#""{long}":"a","#))),
        ("a long file", map(format!(r#""a":"{long}","#))),
        ("a file that is not below", map(format!(r#""a":"../{long}","#))),
        ("nested lists", format!(r#"{{"a":{}}}"#, "[".repeat(TEXT_BYTES))),
        (
            "other keys",
            format!(
                "{{{}}}",
                without_comma(repeated(|text, number| {
                    write!(text, r#""{number:x}":1,"#).unwrap();
                }))
            ),
        ),
    ];
    for (what, json) in cases {
        let path = place.write("m.safetensors.index.json", json.as_bytes());
        place.check(what, &path, |engine, path| {
            Weights::open(engine, path).map(drop).map_err(|error| error.to_string())
        });
    }
    place.finish();
}

/// A file that an index names in many ways would be opened, and its metadata kept, each time.
#[test]
fn one_file_under_many_names() {
    let mut place = Place::new();
    let names = 64usize;
    let tensors: String = (0..names).map(|number| format!(r#""{number}":{TENSOR},"#)).collect();
    let text = "x".repeat(1 << 20);
    let json = format!(r#"{{{tensors}"__metadata__":{{"a":"{text}"}}}}"#);
    std::fs::create_dir(place.path("b")).unwrap();
    place.write("b/a", &safetensors(&json));
    let entry = |number| format!(r#""{number}":"b{}a","#, "/".repeat(number + 1));
    let entries: String = (0..names).map(entry).collect();
    let index = format!(r#"{{"weight_map":{{{}}}}}"#, without_comma(entries));
    let path = place.write("m.safetensors.index.json", index.as_bytes());
    place.check("one file under many names", &path, |engine, path| {
        Weights::open(engine, path).map(drop).map_err(|error| error.to_string())
    });
    place.finish();
}

#[test]
fn headers_of_npy_files() {
    let mut place = Place::new();
    let longest = 1 << 20;
    let start = "{'descr':'<f4','fortran_order':False,'shape':(";
    let cases = [
        ("one shape", format!("{start}{})}}", "0,".repeat((longest - 64) / 2))),
        ("one number", format!("{start}{},)}}", "1".repeat(longest - 64))),
        ("a long type", format!("{{'descr':'{}'}}", "x".repeat(longest - 64))),
        ("a long key", format!("{{'{}'}}", "x".repeat(longest - 64))),
        ("spaces", format!("{start}1,)}}{}", " ".repeat(longest - 64))),
    ];
    for (what, dict) in cases {
        let len = (dict.len() as u32).to_le_bytes();
        let path = place.write("a.npy", &[b"\x93NUMPY\x02\0", &len[..], dict.as_bytes()].concat());
        place.check(what, &path, |engine, path| {
            engine.open_npy(path).map(drop).map_err(|error| error.to_string())
        });
    }
    // The length is a lie.
    for len in [longest as u32, u32::MAX] {
        let path = place.write("a.npy", &[b"\x93NUMPY\x02\0", &len.to_le_bytes()[..]].concat());
        place.check("only a length", &path, |engine, path| {
            engine.open_npy(path).map(drop).map_err(|error| error.to_string())
        });
    }
    place.finish();
}

/// Returns exca's info of an array, with these texts in place of its lists and names.
fn exca_info(key: &str, filename: &str, shape: &str) -> String {
    format!(
        r##"{{"filename":"{filename}","offset":0,"shape":[{shape}],"dtype":"","#type":"TorchTensor","#key":"{key}"}}"##
    )
}

/// Info files of exca's caches, by what they consist of.
fn infos_of_exca() -> Vec<(&'static str, String)> {
    let zeros = without_comma("0,".repeat(TEXT_BYTES / 2));
    let long = "x".repeat(TEXT_BYTES);
    let escaped = "\\n".repeat(TEXT_BYTES / 2);
    let lines = |shape: &str| {
        repeated(|text, number| {
            writeln!(text, "{}", exca_info(&format!("{number:x}"), "", shape)).unwrap();
        })
    };
    let other = |content: &str| format!(r##"{{"#type":"Json","#key":"a","content":{content}}}"##);
    let keys = without_comma(repeated(|text, number| write!(text, r#""{number:x}":0,"#).unwrap()));
    let shallow = without_comma(repeated(|text, _| text.push_str("[[[[[]]]]],")));
    vec![
        ("one shape", exca_info("a", "", &zeros)),
        ("arrays", lines("")),
        ("arrays of 33 axes", lines(&without_comma("0,".repeat(33)))),
        ("arrays of 64 axes", lines(&without_comma("0,".repeat(64)))),
        (
            "the same array",
            repeated(|text, _| writeln!(text, "{}", exca_info("a", "", "")).unwrap()),
        ),
        ("a long key", exca_info(&long, "", "")),
        ("a long key with escapes", exca_info(&escaped, "", "")),
        ("a long name", exca_info("a", &escaped, "")),
        (
            "a long key and a long name",
            exca_info(&escaped[..TEXT_BYTES / 2], &escaped[..TEXT_BYTES / 2], ""),
        ),
        ("numbers in an unknown key", other(&format!("[{zeros}]"))),
        ("lists in an unknown key", other(&format!("[{shallow}]"))),
        ("nested lists", other(&"[".repeat(TEXT_BYTES))),
        ("unknown keys", other(&format!("{{{keys}}}"))),
        ("a list in place of an entry", format!("[{zeros}]\n")),
        ("a line without its end", format!("{{\"#key\":[{zeros}")),
        ("spaces", " ".repeat(TEXT_BYTES)),
        ("lines without entries", "\n".repeat(TEXT_BYTES)),
    ]
}

#[test]
fn infos_of_exca_caches() {
    let mut place = Place::new();
    for (what, text) in infos_of_exca() {
        let path = place.write("a-info.jsonl", text.as_bytes());
        place.check(what, &path, |engine, path| {
            engine.read_exca_infos(path).map(drop).map_err(|error| error.to_string())
        });
    }
    place.finish();
}

#[test]
fn headers_of_shards() {
    let mut place = Place::new();
    for (rows, width) in
        [(u64::MAX, 1), (1, u64::MAX), (1 << 40, 1 << 20), (1 << 60, 0), (0, 1 << 60)]
    {
        let numbers = [rows.to_le_bytes(), width.to_le_bytes(), [0; 8]].concat();
        let path = place.write("a.shard", &[b"GAMSAE01", &numbers[..]].concat());
        place.check("a huge shard", &path, |engine, path| {
            let opened = ShardSource::open(engine, [path]);
            opened.map(drop).map_err(|error| error.to_string())
        });
    }
    place.finish();
}

/// Returns the bytes before the metadata.
fn beton_head(fields: &[Field], samples: u64, alloc_table_ptr: u64) -> Vec<u8> {
    let fields_len = u16::try_from(fields.len()).unwrap();
    let header = Header { fields: fields_len, page_bytes: 2 << 20, samples, alloc_table_ptr };
    let fields = fields.iter().flat_map(Field::encode);
    header.encode().into_iter().chain(fields).collect()
}

fn check_beton(place: &mut Place, what: &str, path: &Path) {
    place.check(what, path, |engine, path| {
        let reader = BetonReader::open(engine, path).map_err(|error| error.to_string())?;
        let checked = (0..reader.len().min(1000)).try_for_each(|id| reader.check_sample(id));
        checked.map_err(|error| error.to_string())
    });
}

#[test]
fn datasets_of_fields() {
    let mut place = Place::new();
    let array = ArraySpec::new(Kind::U8.into(), &[1; 32]).unwrap();
    let field = Field::new("sixteen letters!", FieldKind::NdArray(array)).unwrap();
    let arrays = vec![field; TEXT_BYTES / 1041];
    let head = beton_head(&arrays, 0, 24 + 1041 * arrays.len() as u64);
    let path = place.write("a.beton", &head);
    check_beton(&mut place, "arrays of 32 axes", &path);

    // Descriptors of zeros are numbers without a name. The file has no blocks on the disk.
    let (path, end) = (place.path("a.beton"), 24 + 1041 * 65535);
    let header = Header { fields: u16::MAX, page_bytes: 2 << 20, samples: 0, alloc_table_ptr: end };
    let mut file = File::create(&path).unwrap();
    file.write_all(&header.encode()).unwrap();
    file.set_len(end).unwrap();
    drop(file);
    check_beton(&mut place, "65535 fields", &path);

    let head = header.encode();
    let path = place.write("a.beton", &head);
    check_beton(&mut place, "65535 fields that are not there", &path);
    place.finish();
}

#[test]
fn datasets_of_samples_and_regions() {
    let mut place = Place::new();
    let fields = [Field::new("a", FieldKind::Bytes).unwrap()];
    for samples in [u64::MAX, 1 << 60, 1 << 40, 1 << 20] {
        let path = place.write("a.beton", &beton_head(&fields, samples, 24 + 1041));
        check_beton(&mut place, "samples that are not there", &path);
    }

    let rows = TEXT_BYTES / 16;
    let table_at = 24 + 1041 + 16 * rows as u64;
    let head = beton_head(&fields, rows as u64, table_at);
    let path = place.write("a.beton", &[head, vec![0xFF; 16 * rows]].concat());
    check_beton(&mut place, "metadata of many samples", &path);

    let head = beton_head(&fields, 1, 24 + 1041 + 16);
    let region = Allocation { sample: 0, ptr: 0, size: u64::MAX }.encode();
    let table = region.repeat(TEXT_BYTES / 24);
    let path = place.write("a.beton", &[head, vec![0; 16], table].concat());
    check_beton(&mut place, "a table of impossible regions", &path);
    place.finish();
}

#[test]
fn profiles() {
    let mut place = Place::new();
    let key = |number: usize| format!("a{number:x}=\n");
    let keys: String = (0..)
        .map(key)
        .scan(0, |len, key| {
            *len += key.len();
            (*len < 65_500).then_some(key)
        })
        .collect();
    let cases = [
        ("keys", format!("version = 1\n{keys}")),
        ("a long text", format!("version = 1\nreason = \"{}\"\n", "\\n".repeat(30_000))),
        ("a long line", "x".repeat(60_000)),
        ("a file that is no profile", "x".repeat(TEXT_BYTES)),
    ];
    for (what, text) in cases {
        let path = place.write("profile.toml", text.as_bytes());
        place.check(what, &path, |_, path| {
            Profile::read(path).map(drop).map_err(|error| error.to_string())
        });
    }
    place.finish();
}
