//! Decodes the header of a safetensors file and checks it before use.
//!
//! It accepts the files that the `safetensors` crate accepts, apart from duplicate names and the limits
//! below; the fuzz target `safetensors_header` compares the two. That crate's errors do not always name
//! the tensor.
//!
//! The header may come from an untrusted source, so it takes at most a small multiple of its own size
//! in memory: nothing is kept twice, and lists whose items take more memory than text have a limit.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::de::value::StrDeserializer;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::damage::Shown;
use super::{Dtype, Error, TensorDamage, TensorInfo, WeightsDamage};
use crate::Item;
use crate::array::layout::NDIM_MAX;

/// The file begins with the length of its header, a `u64`.
pub(crate) const LENGTH_BYTES: usize = 8;
/// The largest header that the format allows.
pub(crate) const HEADER_BYTES_MAX: u64 = 100_000_000;
/// The largest number of axes. An axis takes two bytes of text and eight of memory. NumPy and torch
/// have the same limit.
const AXES_MAX: usize = NDIM_MAX;
/// The largest number of entries in the metadata. An entry takes about ten bytes of text and a hundred
/// of memory.
const METADATA_ENTRIES_MAX: usize = 1 << 16;
/// The text of the smallest tensor: `"":{"dtype":"U8","shape":[],"data_offsets":[0,1]},`.
const TENSOR_BYTES_MIN: usize = 50;

/// A decoded header.
#[derive(Debug)]
pub(crate) struct Header {
    /// The tensors in the order of the file.
    pub(crate) tensors: Vec<TensorInfo>,
    /// `None` if the header has no metadata, which differs from empty metadata.
    pub(crate) metadata: Option<BTreeMap<String, String>>,
}

/// Returns the size of the header in bytes, given the first bytes of a file.
pub(crate) fn header_bytes(start: &[u8], file_len: u64, path: &Path) -> Result<u64, Error> {
    let bad = |reason| Error::format(path, WeightsDamage::BadHeader { reason });
    let Some(length) = start.first_chunk::<LENGTH_BYTES>() else {
        return Err(bad(format!("it has {file_len} bytes, but its length field alone takes 8")));
    };
    let header_bytes = u64::from_le_bytes(*length);
    if header_bytes > HEADER_BYTES_MAX {
        return Err(bad(format!(
            "its header would have {header_bytes} bytes, but at most {HEADER_BYTES_MAX} are allowed"
        )));
    }
    let rest = file_len.saturating_sub(LENGTH_BYTES as u64);
    if header_bytes > rest {
        let reason = format!(
            "its header would have {header_bytes} bytes, but only {rest} follow; is it truncated?"
        );
        return Err(bad(reason));
    }
    Ok(header_bytes)
}

/// Decodes the header of file number `file`, given all of its bytes and the number of bytes after
/// it.
pub(crate) fn parse(json: &[u8], data_len: u64, file: usize, path: &Path) -> Result<Header, Error> {
    let bad = |reason| Error::format(path, WeightsDamage::BadHeader { reason });
    let text = std::str::from_utf8(json);
    let text = text.map_err(|error| bad(format!("its header is not UTF-8: {error}")))?;
    let RawHeader { mut tensors, metadata } = RawHeader::parse(text)
        .map_err(|error| bad(format!("its header cannot be parsed: {error}")))?;
    let covered = check(&mut tensors, data_len).map_err(|(tensor, damage)| {
        Error::damaged(path, Item::Tensor(tensor), WeightsDamage::BadTensor(damage))
    })?;
    if covered != data_len {
        return Err(bad(format!(
            "{data_len} bytes follow its header, but the tensors take {covered}"
        )));
    }
    let data_start = (LENGTH_BYTES + json.len()) as u64;
    let place = |tensor| RawTensor::place(tensor, file, data_start);
    Ok(Header { tensors: tensors.into_iter().map(place).collect(), metadata })
}

/// The parsed JSON, in its own order and with duplicates.
#[derive(Debug)]
struct RawHeader {
    tensors: Vec<RawTensor>,
    metadata: Option<BTreeMap<String, String>>,
}

/// A tensor as the header describes it.
#[derive(Debug)]
struct RawTensor {
    name: Box<str>,
    entry: RawEntry,
}

#[derive(Debug, Deserialize)]
struct RawEntry {
    dtype: RawDtype,
    shape: RawShape,
    data_offsets: (u64, u64),
}

impl RawHeader {
    fn parse(text: &str) -> serde_json::Result<Self> {
        let mut json = serde_json::Deserializer::from_str(text);
        let header = json.deserialize_map(RawHeaderVisitor { text_bytes: text.len() })?;
        json.end()?;
        Ok(header)
    }
}

struct RawHeaderVisitor {
    text_bytes: usize,
}

impl<'de> Visitor<'de> for RawHeaderVisitor {
    type Value = RawHeader;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
        // A vector that grows would take three times as much for a moment.
        let mut tensors = Vec::with_capacity(self.text_bytes / TENSOR_BYTES_MIN);
        let mut metadata = None;
        while let Some(name) = map.next_key::<Box<str>>()? {
            if &*name == "__metadata__" {
                if metadata.is_some() {
                    return Err(A::Error::custom("`__metadata__` occurs twice"));
                }
                metadata = Some(map.next_value::<Option<RawMetadata>>()?);
                continue;
            }
            let entry = map.next_value();
            let named =
                |error| A::Error::custom(format_args!("tensor `{}`: {error}", Shown(&name)));
            let entry = entry.map_err(named)?;
            tensors.push(RawTensor { name, entry });
        }
        Ok(RawHeader { tensors, metadata: metadata.flatten().map(|RawMetadata(map)| map) })
    }
}

#[derive(Debug)]
struct RawMetadata(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for RawMetadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RawMetadataVisitor)
    }
}

struct RawMetadataVisitor;

impl<'de> Visitor<'de> for RawMetadataVisitor {
    type Value = RawMetadata;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawMetadata, A::Error> {
        let mut metadata = BTreeMap::new();
        while let Some((key, value)) = map.next_entry()? {
            if metadata.len() == METADATA_ENTRIES_MAX {
                return Err(A::Error::custom(format_args!(
                    "`__metadata__` has more than {METADATA_ENTRIES_MAX} entries"
                )));
            }
            metadata.insert(key, value);
        }
        Ok(RawMetadata(metadata))
    }
}

/// An element type, or the name of an unknown one.
#[derive(Debug)]
enum RawDtype {
    Known(Dtype),
    Unknown(Box<str>),
}

impl<'de> Deserialize<'de> for RawDtype {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(RawDtypeVisitor)
    }
}

struct RawDtypeVisitor;

impl Visitor<'_> for RawDtypeVisitor {
    type Value = RawDtype;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<RawDtype, E> {
        let dtype = Dtype::deserialize(StrDeserializer::<serde::de::value::Error>::new(name));
        Ok(dtype.map_or_else(|_| RawDtype::Unknown(name.into()), RawDtype::Known))
    }
}

#[derive(Debug)]
struct RawShape(Box<[usize]>);

impl<'de> Deserialize<'de> for RawShape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(RawShapeVisitor)
    }
}

struct RawShapeVisitor;

impl<'de> Visitor<'de> for RawShapeVisitor {
    type Value = RawShape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RawShape, A::Error> {
        let (mut shape, mut axes) = ([0; AXES_MAX], 0);
        while let Some(len) = seq.next_element()? {
            let Some(axis) = shape.get_mut(axes) else {
                return Err(A::Error::custom(format_args!(
                    "the shape has more than {AXES_MAX} axes"
                )));
            };
            *axis = len;
            axes += 1;
        }
        Ok(RawShape(shape[..axes].into()))
    }
}

/// Sorts the tensors into the order of the file. Returns the size of all of them, or the first
/// impossible tensor and the reason.
fn check(tensors: &mut [RawTensor], data_len: u64) -> Result<u64, (Box<str>, TensorDamage)> {
    tensors.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    if let Some(twice) = tensors.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err((twice[0].name.clone(), TensorDamage::Twice));
    }
    // Empty tensors have the same offsets, and stay sorted by name.
    tensors.sort_unstable_by(|a, b| {
        (a.entry.data_offsets, &a.name).cmp(&(b.entry.data_offsets, &b.name))
    });
    let mut covered = 0;
    for tensor in tensors {
        let checked = tensor.entry.check(covered, data_len);
        covered = checked.map_err(|damage| (tensor.name.clone(), damage))?;
    }
    Ok(covered)
}

impl RawEntry {
    /// Checks the tensor, given that the tensors before it end at `covered`. Returns its end.
    fn check(&self, covered: u64, data_len: u64) -> Result<u64, TensorDamage> {
        let (begin, end) = self.data_offsets;
        let dtype = match &self.dtype {
            RawDtype::Known(dtype) => *dtype,
            RawDtype::Unknown(name) => {
                return Err(TensorDamage::UnknownDtype { dtype: name.clone().into() });
            }
        };
        let shape = || self.shape.0.to_vec();
        if end < begin {
            return Err(TensorDamage::Reversed { begin, end });
        }
        if end > data_len || usize::try_from(end).is_err() {
            return Err(TensorDamage::OutsideFile { end, data_len });
        }
        if begin < covered {
            return Err(TensorDamage::Overlap { begin, covered });
        }
        if begin > covered {
            return Err(TensorDamage::Hole { begin, covered });
        }
        let elements = self.shape.0.iter().try_fold(1usize, |count, len| count.checked_mul(*len));
        let bits = elements.and_then(|count| count.checked_mul(dtype.bitsize()));
        let bits = bits.ok_or_else(|| TensorDamage::Overflow { dtype, shape: shape() })?;
        if bits % 8 != 0 {
            return Err(TensorDamage::PartByte { dtype, shape: shape() });
        }
        let (expected, actual) = ((bits / 8) as u64, end - begin);
        if expected != actual {
            return Err(TensorDamage::WrongSize { dtype, shape: shape(), expected, actual });
        }
        Ok(end)
    }
}

impl RawTensor {
    /// Returns the description of a tensor that was checked.
    fn place(self, file: usize, data_start: u64) -> TensorInfo {
        let Self { name, entry: RawEntry { dtype, shape, data_offsets: (begin, end) } } = self;
        let RawDtype::Known(dtype) = dtype else {
            unreachable!("a tensor of an unknown type was refused")
        };
        let (offset, nbytes) = (data_start + begin, (end - begin) as usize);
        TensorInfo { name, dtype, shape: shape.0, file, offset, nbytes }
    }
}

#[cfg(test)]
mod tests {
    use safetensors::SafeTensors;

    use super::*;
    use crate::Damage;

    /// Returns a file with this header and `data_len` bytes of data.
    fn file(json: &str, data_len: usize) -> Vec<u8> {
        let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(json.as_bytes());
        bytes.resize(bytes.len() + data_len, 0);
        bytes
    }

    fn open(bytes: &[u8]) -> Result<Header, Error> {
        let (path, file_len) = (Path::new("a.safetensors"), bytes.len() as u64);
        let json_len = header_bytes(bytes, file_len, path)? as usize;
        let (json, data) = bytes[LENGTH_BYTES..].split_at(json_len);
        parse(json, data.len() as u64, 0, path)
    }

    fn fault(tensors: &str, data_len: usize) -> (String, TensorDamage) {
        let error = open(&file(tensors, data_len)).unwrap_err();
        match (error.tensor(), error.damage()) {
            (Some(tensor), Some(Damage::Weights(WeightsDamage::BadTensor(damage)))) => {
                (tensor.to_owned(), damage.clone())
            }
            _ => panic!("{tensors}: {error:?}"),
        }
    }

    fn tensor(dtype: &str, shape: &str, offsets: &str) -> String {
        format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#)
    }

    #[test]
    fn tensors_come_in_the_order_of_the_file_with_metadata() {
        let (a, b) = (tensor("F32", "[2]", "[4,12]"), tensor("U8", "[2,2]", "[0,4]"));
        let empty = tensor("I64", "[0,7]", "[4,4]");
        let json =
            format!(r#"{{"a":{a},"z":{empty},"b":{b},"__metadata__":{{"k":"v"}},"e":{empty}}}  "#);
        let header = open(&file(&json, 12)).unwrap();
        let names: Vec<_> = header.tensors.iter().map(TensorInfo::name).collect();
        assert_eq!(names, ["b", "e", "z", "a"]);
        assert_eq!(header.metadata.unwrap()["k"], "v");
        let (a, data_start) = (&header.tensors[3], 8 + json.len() as u64);
        assert_eq!((a.offset(), a.nbytes(), a.shape()), (data_start + 4, 8, &[2][..]));
    }

    #[test]
    fn each_kind_of_tensor_damage_is_reported() {
        let twice = tensor("U8", "[1]", "[0,1]");
        let cases = [
            (format!(r#"{{"a":{twice},"a":{twice}}}"#), 1, TensorDamage::Twice),
            (
                format!(r#"{{"a":{}}}"#, tensor("F128", "[1]", "[0,16]")),
                16,
                TensorDamage::UnknownDtype { dtype: "F128".into() },
            ),
            (
                format!(r#"{{"a":{}}}"#, tensor("U8", "[1]", "[1,0]")),
                1,
                TensorDamage::Reversed { begin: 1, end: 0 },
            ),
            (
                format!(r#"{{"a":{}}}"#, tensor("U8", "[2]", "[0,2]")),
                1,
                TensorDamage::OutsideFile { end: 2, data_len: 1 },
            ),
            (
                format!(r#"{{"a":{}}}"#, tensor("U8", "[2]", "[1,3]")),
                3,
                TensorDamage::Hole { begin: 1, covered: 0 },
            ),
            (
                format!(r#"{{"a":{}}}"#, tensor("F4", "[3]", "[0,2]")),
                2,
                TensorDamage::PartByte { dtype: Dtype::F4, shape: vec![3] },
            ),
            (
                format!(r#"{{"a":{}}}"#, tensor("F32", "[2]", "[0,4]")),
                4,
                TensorDamage::WrongSize {
                    dtype: Dtype::F32,
                    shape: vec![2],
                    expected: 8,
                    actual: 4,
                },
            ),
            (
                format!(r#"{{"a":{}}}"#, tensor("F32", "[4294967296,4294967296]", "[0,0]")),
                0,
                TensorDamage::Overflow { dtype: Dtype::F32, shape: vec![1 << 32, 1 << 32] },
            ),
        ];
        for (json, data_len, expected) in cases {
            assert_eq!(fault(&json, data_len), ("a".to_owned(), expected), "{json}");
        }
        let overlap = format!(
            r#"{{"a":{},"b":{}}}"#,
            tensor("U8", "[3]", "[0,3]"),
            tensor("U8", "[2]", "[2,4]")
        );
        let expected = TensorDamage::Overlap { begin: 2, covered: 3 };
        assert_eq!(fault(&overlap, 4), ("b".to_owned(), expected));
    }

    #[test]
    fn offsets_near_the_largest_number_do_not_overflow() {
        let huge = tensor("U8", "[1]", "[18446744073709551614,18446744073709551615]");
        let fault = fault(&format!(r#"{{"a":{huge}}}"#), 1).1;
        assert!(matches!(fault, TensorDamage::OutsideFile { .. }), "{fault}");
    }

    #[test]
    fn bad_headers_are_refused_with_the_reason() {
        let long = |len: u64| [len.to_le_bytes().as_slice(), b"{}"].concat();
        let cases = [
            (vec![1, 2, 3], "length field"),
            (long(3), "only 2 follow"),
            (long(100_000_001), "100000000 are allowed"),
            (long(u64::MAX), "100000000 are allowed"),
            (file("not json", 0), "cannot be parsed"),
            (file("[]", 0), "an object of tensors"),
            (file("{}", 1), "1 bytes follow"),
            (file(r#"{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}"#, 1), "tensor `a`"),
            (file(r#"{"a":{"dtype":"U8","shape":[1]}}"#, 1), "data_offsets"),
            (file(r#"{"__metadata__":{},"__metadata__":{}}"#, 0), "twice"),
            (file(r#"{"__metadata__":{"a":1}}"#, 0), "string"),
            (file("{\"\u{7f}", 0), "EOF"),
            (file(&format!(r#"{{"{}":1}}"#, "é".repeat(201)), 0), "éé…`: "),
            ([8u64.to_le_bytes().as_slice(), &[0xFF; 8]].concat(), "UTF-8"),
        ];
        for (bytes, expected) in cases {
            let error = open(&bytes).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("a.safetensors"), "{error}");
        }
    }

    #[test]
    fn lists_are_read_up_to_their_limits() {
        let with_axes = |count: usize| {
            let shape = format!("{:?}", vec![1; count]);
            open(&file(&format!(r#"{{"a":{}}}"#, tensor("U8", &shape, "[0,1]")), 1))
        };
        let with_entries = |count: usize| {
            let entries: Vec<_> = (0..count).map(|number| format!(r#""{number}":"""#)).collect();
            open(&file(&format!(r#"{{"__metadata__":{{{}}}}}"#, entries.join(",")), 0))
        };
        let longest = with_axes(AXES_MAX).unwrap();
        assert_eq!(longest.tensors[0].shape(), [1; AXES_MAX]);
        let longest = with_entries(METADATA_ENTRIES_MAX).unwrap();
        assert_eq!(longest.metadata.unwrap().len(), METADATA_ENTRIES_MAX);
        for (longer, expected) in [
            (with_axes(AXES_MAX + 1), "64 axes"),
            (with_entries(METADATA_ENTRIES_MAX + 1), "65536 entries"),
        ] {
            let error = longer.unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("a.safetensors"), "{error}");
        }
    }

    /// This module and the `safetensors` crate must agree on every file, except for duplicate
    /// names.
    #[test]
    fn the_safetensors_crate_agrees() {
        let whole = tensor("BF16", "[3,2]", "[0,12]");
        let sub = tensor("F6_E2M3", "[4]", "[12,15]");
        let json = format!(r#"{{"a":{whole},"b":{sub}}}"#);
        let bytes = file(&json, 15);
        assert!(open(&bytes).is_ok() && SafeTensors::deserialize(&bytes).is_ok());
        // Miri is some thousand times slower than the processor.
        for at in (0..bytes.len()).step_by(if cfg!(miri) { 5 } else { 1 }) {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                let (ours, theirs) = (open(&changed), SafeTensors::deserialize(&changed));
                assert_eq!(ours.is_ok(), theirs.is_ok(), "byte {at} bit {bit}: {ours:?}");
            }
        }
    }
}
