//! Numbers of bytes as people write them.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// A number of bytes: `65536` or `"64k"` in a plan, always a number in a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_bytes(text).map(Self)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a number of bytes: 65536, \"64k\", \"1MiB\"")]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(bytes) => Ok(Self(bytes)),
            Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

/// The units in lower case, with their bytes. As in `dd` and `head`, a bare letter and `KiB` are powers of
/// 1024, `kB` is a power of 1000.
const UNITS: [(&str, u64); 14] = [
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("kb", 1000),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("mb", 1_000_000),
    ("g", 1 << 30),
    ("gib", 1 << 30),
    ("gb", 1_000_000_000),
    ("t", 1 << 40),
    ("tib", 1 << 40),
    ("tb", 1_000_000_000_000),
];

/// Parses `4096`, `64k`, `1MiB`, `1_000_000`.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    if text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
        return Err("a number of bytes cannot be negative".into());
    }
    let is_number = |c: char| c.is_ascii_digit() || c == '_';
    let (digits, unit) = text.split_at(text.find(|c| !is_number(c)).unwrap_or(text.len()));
    let digits = digits.replace('_', "");
    if digits.is_empty() {
        return Err("a number of bytes starts with a digit: 4096, 64k, 1MiB".into());
    }
    let unit = unit.trim().to_ascii_lowercase();
    let Some((_, unit_bytes)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(format!("`{unit}` is not a unit; use k, M, G, T, KiB, MiB, kB, MB, …"));
    };
    // Only digits are left, so the only possible error is overflow.
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(*unit_bytes));
    bytes.ok_or_else(|| format!("the number is more than {} bytes", u64::MAX))
}

/// Formats bytes with three digits: `1536 MiB` as `1.5 GiB`.
pub(crate) fn format_bytes_short(bytes: f64) -> String {
    let mut value = bytes;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1023.5 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    let decimals = if unit == "B" || value >= 99.95 { 0 } else { 1 };
    format!("{value:.decimals$} {unit}")
}

/// Formats the number of bytes: `1 byte`, `1000 bytes`.
pub(crate) fn exact_bytes(bytes: u64) -> String {
    format!("{bytes} {}", if bytes == 1 { "byte" } else { "bytes" })
}

/// Formats bytes exactly: `8388608` as `8 MiB`; a number that is not a multiple of a unit in bytes.
pub(crate) fn format_bytes(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let whole =
        units.into_iter().find(|(_, bits)| bytes >> bits > 0 && bytes.is_multiple_of(1 << bits));
    match whole {
        Some((unit, bits)) => format!("{} {unit}", bytes >> bits),
        None => exact_bytes(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_units_are_understood() {
        let cases = [
            ("0", 0),
            ("4096", 4096),
            (" 4096 ", 4096),
            ("1_000_000", 1_000_000),
            ("64k", 64 << 10),
            ("64K", 64 << 10),
            ("64 KiB", 64 << 10),
            ("64kB", 64_000),
            ("1MiB", 1 << 20),
            ("3m", 3 << 20),
            ("2GB", 2_000_000_000),
            ("16777215T", 16_777_215 << 40),
            ("12b", 12),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_with_the_reason() {
        let cases = [
            ("", "digit"),
            ("_", "digit"),
            ("k", "digit"),
            ("+5", "digit"),
            ("--length", "digit"),
            ("-1", "negative"),
            ("-1k", "negative"),
            ("1.5M", "unit"),
            ("1x", "unit"),
            ("0x10", "unit"),
            ("1 2", "unit"),
            ("１", "digit"),
            ("18446744073709551616", "more than"),
            ("16777216T", "more than"),
            ("99999999999999999999999999k", "more than"),
        ];
        for (text, reason) in cases {
            let error = parse_bytes(text).unwrap_err();
            assert!(error.contains(reason), "`{text}`: {error}");
        }
    }

    /// A file of one byte had "1 bytes".
    #[test]
    fn whole_units_are_shown_as_such_and_parse_back() {
        let cases = [
            (0, "0 bytes"),
            (1, "1 byte"),
            (512, "512 bytes"),
            (1536, "1536 bytes"),
            (8 << 20, "8 MiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(format_bytes(bytes), text);
        }
        for bits in 10..64 {
            assert_eq!(parse_bytes(&format_bytes(1 << bits)), Ok(1 << bits));
        }
    }
}
