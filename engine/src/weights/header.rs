//! Decodes the header of a safetensors file and checks it before use.
//!
//! The `safetensors` crate makes the final decision on validity. Its errors do not always name the
//! tensor, and it accepts duplicate names, so this module checks each tensor first.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use safetensors::tensor;
use serde::Deserialize;
use serde::de::value::StrDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};

use super::{Dtype, Error, TensorDamage, TensorInfo, WeightsDamage};
use crate::Item;

/// The file begins with the length of its header, a `u64`.
pub(super) const LENGTH_BYTES: usize = 8;
/// The largest header that the format allows.
pub(super) const HEADER_BYTES_MAX: u64 = 100_000_000;

/// A decoded header.
#[derive(Debug)]
pub(super) struct Header {
    /// The tensors in the order of the file.
    pub(super) tensors: Vec<TensorInfo>,
    /// `None` if the header has no metadata, which differs from empty metadata.
    pub(super) metadata: Option<BTreeMap<String, String>>,
}

/// Returns the size of the header in bytes, given the first bytes of a file.
pub(super) fn header_bytes(start: &[u8], file_len: u64, path: &Path) -> Result<u64, Error> {
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
pub(super) fn parse(json: &[u8], data_len: u64, file: usize, path: &Path) -> Result<Header, Error> {
    let bad = |reason| Error::format(path, WeightsDamage::BadHeader { reason });
    let text = std::str::from_utf8(json);
    let text = text.map_err(|error| bad(format!("its header is not UTF-8: {error}")))?;
    let mut entries: RawHeader = serde_json::from_str(text)
        .map_err(|error| bad(format!("its header cannot be parsed: {error}")))?;
    let bad_tensor = |(tensor, damage): (&str, TensorDamage)| {
        Error::damaged(path, Item::Tensor(tensor.into()), WeightsDamage::BadTensor(damage))
    };
    let metadata = entries.metadata.take();
    let tensors = entries.check(data_len).map_err(bad_tensor)?;
    let named = |(name, info): &(&str, tensor::TensorInfo)| ((*name).to_owned(), info.clone());
    let checked = tensor::Metadata::new(None, tensors.iter().map(named).collect());
    let checked = checked.map_err(|error| bad(error.to_string()))?;
    if checked.data_len() as u64 != data_len {
        let covered = checked.data_len();
        return Err(bad(format!(
            "{data_len} bytes follow its header, but the tensors take {covered}"
        )));
    }
    let data_start = (LENGTH_BYTES + json.len()) as u64;
    let take = |(name, info): (&str, tensor::TensorInfo)| {
        let (begin, end) = info.data_offsets;
        let offset = data_start + begin as u64;
        TensorInfo::new(name, info.dtype, info.shape, file, offset, end - begin)
    };
    Ok(Header { tensors: tensors.into_iter().map(take).collect(), metadata })
}

/// The parsed JSON, in its own order and with duplicates.
#[derive(Debug, Default)]
struct RawHeader {
    tensors: Vec<(String, RawTensor)>,
    metadata: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
struct RawTensor {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RawHeaderVisitor)
    }
}

struct RawHeaderVisitor;

impl<'de> Visitor<'de> for RawHeaderVisitor {
    type Value = RawHeader;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
        let (mut entries, mut has_metadata) = (RawHeader::default(), false);
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                if std::mem::replace(&mut has_metadata, true) {
                    return Err(A::Error::custom("`__metadata__` occurs twice"));
                }
                entries.metadata = map.next_value()?;
                continue;
            }
            let entry = map.next_value();
            let named = |error| A::Error::custom(format_args!("tensor `{name}`: {error}"));
            let entry = entry.map_err(named)?;
            entries.tensors.push((name, entry));
        }
        Ok(entries)
    }
}

impl RawHeader {
    /// Returns the tensors in the order of the file, or the first impossible tensor and the reason.
    fn check(
        &self,
        data_len: u64,
    ) -> Result<Vec<(&str, tensor::TensorInfo)>, (&str, TensorDamage)> {
        let mut sorted: Vec<_> = self.tensors.iter().collect();
        sorted.sort_by_key(|(name, _)| name);
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err((&twice[0].0, TensorDamage::Twice));
        }
        // Sorted by offset; empty tensors stay sorted by name.
        sorted.sort_by_key(|(_, entry)| entry.data_offsets);
        let (mut covered, mut checked) = (0, Vec::with_capacity(sorted.len()));
        for (name, entry) in sorted {
            let info = entry.check(covered, data_len).map_err(|fault| (name.as_str(), fault))?;
            covered = entry.data_offsets.1;
            checked.push((name.as_str(), info));
        }
        Ok(checked)
    }
}

impl RawTensor {
    /// Checks the tensor, given that the tensors before it end at `covered`.
    fn check(&self, covered: u64, data_len: u64) -> Result<tensor::TensorInfo, TensorDamage> {
        let (begin, end) = self.data_offsets;
        let dtype = self.dtype()?;
        let shape = || self.shape.clone();
        if end < begin {
            return Err(TensorDamage::Reversed { begin, end });
        }
        if end > data_len {
            return Err(TensorDamage::OutsideFile { end, data_len });
        }
        if begin < covered {
            return Err(TensorDamage::Overlap { begin, covered });
        }
        if begin > covered {
            return Err(TensorDamage::Hole { begin, covered });
        }
        let elements = self.shape.iter().try_fold(1usize, |count, len| count.checked_mul(*len));
        let bits = elements.and_then(|count| count.checked_mul(dtype.bitsize()));
        let bits = bits.ok_or_else(|| TensorDamage::Overflow { dtype, shape: shape() })?;
        if bits % 8 != 0 {
            return Err(TensorDamage::PartByte { dtype, shape: shape() });
        }
        let (expected, actual) = ((bits / 8) as u64, end - begin);
        if expected != actual {
            return Err(TensorDamage::WrongSize { dtype, shape: shape(), expected, actual });
        }
        // No overflow: the sizes of this tensor and of those before it were checked.
        let offset =
            |at| usize::try_from(at).map_err(|_| TensorDamage::OutsideFile { end, data_len });
        let data_offsets = (offset(begin)?, offset(end)?);
        Ok(tensor::TensorInfo { dtype, shape: shape(), data_offsets })
    }

    fn dtype(&self) -> Result<Dtype, TensorDamage> {
        let name = StrDeserializer::<serde::de::value::Error>::new(&self.dtype);
        let unknown = |_| TensorDamage::UnknownDtype { dtype: self.dtype.clone() };
        Dtype::deserialize(name).map_err(unknown)
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
            ([8u64.to_le_bytes().as_slice(), &[0xFF; 8]].concat(), "UTF-8"),
        ];
        for (bytes, expected) in cases {
            let error = open(&bytes).unwrap_err().to_string();
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
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                let (ours, theirs) = (open(&changed), SafeTensors::deserialize(&changed));
                assert_eq!(ours.is_ok(), theirs.is_ok(), "byte {at} bit {bit}: {ours:?}");
            }
        }
    }
}
