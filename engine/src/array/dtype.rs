//! Element types, by NumPy's names.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// The type of an element, without its byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// One byte, 0 or 1.
    Bool,
    /// Unsigned, 8 bits.
    U8,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 8 bits.
    I8,
    /// Signed, 16 bits.
    I16,
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits.
    I64,
    /// IEEE half precision.
    F16,
    /// The upper half of an `f32`.
    BF16,
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
    /// Two `f32`.
    Complex64,
    /// Two `f64`.
    Complex128,
    /// 8 bits: 4 of exponent, 3 of mantissa, no infinity.
    F8E4M3,
    /// 8 bits: 5 of exponent, 2 of mantissa, with infinities.
    F8E5M2,
    /// Like [`Kind::F8E4M3`], with a bias of 8 and one zero.
    F8E4M3Fnuz,
    /// Like [`Kind::F8E5M2`], with a bias of 16, one zero and no infinity.
    F8E5M2Fnuz,
    /// 8 bits of exponent, a scale: powers of two.
    F8E8M0,
}

/// The order of the bytes of an element in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum ByteOrder {
    /// The least significant first.
    #[default]
    Little,
    /// The most significant first.
    Big,
}

/// The type of an element and its byte order in the file.
///
/// ```
/// use ringmain::{ByteOrder, DType, Kind};
///
/// let dtype: DType = ">f4".parse()?;
/// assert_eq!((dtype.kind, dtype.order, dtype.itemsize()), (Kind::F32, ByteOrder::Big, 4));
/// assert_eq!("float32".parse::<DType>()?, Kind::F32.into());
/// assert_eq!(dtype.to_string(), ">f4");
/// # Ok::<(), ringmain::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DType {
    /// The type without byte order.
    pub kind: Kind,
    /// The byte order. It is always little if an element has one byte.
    pub order: ByteOrder,
}

/// Each kind: NumPy's (or ml_dtypes') name, its code without byte order, its one-letter character,
/// the size of an element, and the size of the parts that byte order reverses.
const TABLE: [(Kind, &str, &str, &str, usize, usize); 20] = [
    (Kind::Bool, "bool", "b1", "?", 1, 1),
    (Kind::U8, "uint8", "u1", "B", 1, 1),
    (Kind::U16, "uint16", "u2", "H", 2, 2),
    (Kind::U32, "uint32", "u4", "I", 4, 4),
    (Kind::U64, "uint64", "u8", "Q", 8, 8),
    (Kind::I8, "int8", "i1", "b", 1, 1),
    (Kind::I16, "int16", "i2", "h", 2, 2),
    (Kind::I32, "int32", "i4", "i", 4, 4),
    (Kind::I64, "int64", "i8", "q", 8, 8),
    (Kind::F16, "float16", "f2", "e", 2, 2),
    (Kind::BF16, "bfloat16", "bfloat16", "bfloat16", 2, 2),
    (Kind::F32, "float32", "f4", "f", 4, 4),
    (Kind::F64, "float64", "f8", "d", 8, 8),
    (Kind::Complex64, "complex64", "c8", "F", 8, 4),
    (Kind::Complex128, "complex128", "c16", "D", 16, 8),
    (Kind::F8E4M3, "float8_e4m3fn", "float8_e4m3fn", "float8_e4m3fn", 1, 1),
    (Kind::F8E5M2, "float8_e5m2", "float8_e5m2", "float8_e5m2", 1, 1),
    (Kind::F8E4M3Fnuz, "float8_e4m3fnuz", "float8_e4m3fnuz", "float8_e4m3fnuz", 1, 1),
    (Kind::F8E5M2Fnuz, "float8_e5m2fnuz", "float8_e5m2fnuz", "float8_e5m2fnuz", 1, 1),
    (Kind::F8E8M0, "float8_e8m0fnu", "float8_e8m0fnu", "float8_e8m0fnu", 1, 1),
];

impl Kind {
    /// Returns every kind.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.into_iter().map(|row| row.0)
    }

    fn row(self) -> &'static (Self, &'static str, &'static str, &'static str, usize, usize) {
        // The table is in the order of the enum, as a test checks.
        &TABLE[self as usize]
    }

    /// Returns the name in NumPy or `ml_dtypes`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Returns the size of an element in bytes.
    #[must_use]
    pub fn itemsize(self) -> usize {
        self.row().4
    }

    /// Returns the size of the parts that byte order reverses: half of a complex number, else all.
    pub(crate) fn swap_bytes(self) -> usize {
        self.row().5
    }
}

impl DType {
    /// Returns the size of an element in bytes.
    #[must_use]
    pub fn itemsize(self) -> usize {
        self.kind.itemsize()
    }

    /// Returns `true` if the byte order in the file is that of the machine.
    #[must_use]
    pub fn is_native(self) -> bool {
        let native = if cfg!(target_endian = "big") { ByteOrder::Big } else { ByteOrder::Little };
        self.kind.swap_bytes() == 1 || self.order == native
    }
}

impl From<Kind> for DType {
    fn from(kind: Kind) -> Self {
        Self { kind, order: ByteOrder::Little }
    }
}

impl fmt::Display for DType {
    /// Writes NumPy's code, or the name if there is no code.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, name, code, _, itemsize, _) = *self.kind.row();
        let order = match self.order {
            _ if name == code => "",
            _ if itemsize == 1 => "|",
            ByteOrder::Little => "<",
            ByteOrder::Big => ">",
        };
        write!(f, "{order}{code}")
    }
}

/// As NumPy's name, such as `float32`.
#[cfg(feature = "serde")]
impl serde::Serialize for Kind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// From any name or code that a [`DType`] is parsed from, without a byte order.
#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Kind {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let has_order = text.starts_with(['<', '>', '!', '=']);
        match text.parse::<DType>() {
            Ok(dtype) if !has_order => Ok(dtype.kind),
            Ok(_) => Err(serde::de::Error::custom(format!(
                "`{text}` has a byte order, but a kind has none"
            ))),
            Err(error) => Err(serde::de::Error::custom(error)),
        }
    }
}

/// As NumPy's code, such as `<f4`.
#[cfg(feature = "serde")]
impl serde::Serialize for DType {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for DType {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for DType {
    type Err = Error;

    /// Parses NumPy's names (`float32`), codes (`<f4`, `|u1`) and characters (`d`).
    fn from_str(text: &str) -> Result<Self> {
        let unknown = || Error::UnknownDType { text: text.to_owned() };
        let native = if cfg!(target_endian = "big") { ByteOrder::Big } else { ByteOrder::Little };
        let (order, code) = match text.as_bytes().first() {
            Some(b'<') => (ByteOrder::Little, &text[1..]),
            Some(b'>' | b'!') => (ByteOrder::Big, &text[1..]),
            Some(b'=') => (native, &text[1..]),
            Some(b'|') => (ByteOrder::Little, &text[1..]),
            _ => (native, text),
        };
        // C's `long` has 8 bytes on the platforms that most NumPy files come from.
        let code = match code {
            "l" => "i8",
            "L" => "u8",
            "bool_" => "bool",
            other => other,
        };
        let matches = |row: &&(Kind, &str, &str, &str, usize, usize)| {
            code == row.1 || code == row.2 || code == row.3
        };
        let row = TABLE.iter().find(matches).ok_or_else(unknown)?;
        let order = if row.5 == 1 { ByteOrder::Little } else { order };
        Ok(Self { kind: row.0, order })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "serde")]
    #[test]
    fn types_are_written_as_numpys_codes() {
        for (text, json) in [("float32", "\"<f4\""), (">u2", "\">u2\""), ("uint8", "\"|u1\"")] {
            let dtype: DType = text.parse().unwrap();
            assert_eq!(serde_json::to_string(&dtype).unwrap(), json);
            assert_eq!(serde_json::from_str::<DType>(json).unwrap(), dtype);
        }
        assert!(serde_json::from_str::<DType>("\"float31\"").is_err());
    }

    #[cfg(feature = "serde")]
    #[test]
    fn kinds_are_written_as_numpys_names() {
        for kind in Kind::all() {
            let json = serde_json::to_string(&kind).unwrap();
            assert_eq!(json, format!("\"{}\"", kind.name()));
            assert_eq!(serde_json::from_str::<Kind>(&json).unwrap(), kind);
        }
        assert_eq!(serde_json::from_str::<Kind>("\"f4\"").unwrap(), Kind::F32);
        assert!(serde_json::from_str::<Kind>("\">f4\"").is_err(), "a kind has no byte order");
        assert_eq!(serde_json::to_string(&ByteOrder::Big).unwrap(), "\"big\"");
        assert_eq!(serde_json::from_str::<ByteOrder>("\"little\"").unwrap(), ByteOrder::Little);
    }

    #[test]
    fn the_table_is_in_the_order_of_the_enum() {
        for (at, kind) in Kind::all().enumerate() {
            assert_eq!(kind as usize, at);
        }
    }

    #[test]
    fn every_code_and_name_parses_to_its_kind() {
        for kind in Kind::all() {
            assert_eq!(kind.name().parse::<DType>().unwrap().kind, kind);
            for order in [ByteOrder::Little, ByteOrder::Big] {
                let order = if kind.swap_bytes() == 1 { ByteOrder::Little } else { order };
                let dtype = DType { kind, order };
                let back: DType = dtype.to_string().parse().unwrap();
                assert_eq!(back.kind, kind);
                assert!(kind == Kind::BF16 || back.order == order, "{dtype}");
            }
        }
    }

    #[test]
    fn codes_that_numpy_writes_are_parsed() {
        for (text, kind) in [("|b1", Kind::Bool), ("?", Kind::Bool), ("<c16", Kind::Complex128)] {
            assert_eq!(text.parse::<DType>().unwrap().kind, kind, "{text}");
        }
        assert_eq!(">i8".parse::<DType>().unwrap().order, ByteOrder::Big);
        assert_eq!("l".parse::<DType>().unwrap().kind, Kind::I64);
    }

    #[test]
    fn types_without_a_kind_are_refused() {
        for text in ["", "<", "|O", "<U5", "S10", "<M8[ns]", "f3", "é4", "void", ">"] {
            assert!(matches!(text.parse::<DType>(), Err(Error::UnknownDType { .. })), "{text}");
        }
    }
}
