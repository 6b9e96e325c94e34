//! Opens NumPy's `.npy` files: a magic, a version, a Python dict literal that describes one array,
//! and its elements.

use std::path::Path;

use ringmain_backends::{FileHandle, ReadBackendExt};

use super::layout::{Layout, NDIM_MAX};
use crate::{ContiguousMemmap, DType, Damage, Engine, Error, Result};

const MAGIC: &[u8] = b"\x93NUMPY";
/// The magic is followed by major and minor version, and then by the length of the dict.
const LEN_AT: usize = MAGIC.len() + 2;

/// The longest dict that is read. NumPy itself reads 10,000 bytes by default, and pads the dict of
/// a plain dtype to 118.
const DICT_BYTES_MAX: usize = 1 << 20;

/// The size of the first read: one device request, which holds the whole header unless it is
/// unusually long.
const FIRST_READ_BYTES: u64 = 4096;

impl Engine {
    /// Opens a view of the array in a `.npy` file of version 1.0, 2.0 or 3.0.
    ///
    /// An array in Fortran order has the shape that NumPy gives it; reading all of it reads once
    /// and permutes. Structured dtypes are refused, and objects are never unpickled.
    ///
    /// ```
    /// use ringmain::Engine;
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a.npy");
    /// # let dict = b"{'descr': '<u2', 'fortran_order': False, 'shape': (2, 3), }\n";
    /// # let header = [&b"\x93NUMPY\x01\x00"[..], &(dict.len() as u16).to_le_bytes(), dict];
    /// # let elements = [1u16, 2, 3, 4, 5, 6].map(u16::to_le_bytes);
    /// # std::fs::write(&path, [header.concat(), elements.concat()].concat())?;
    ///
    /// let array = Engine::new()?.open_npy(&path)?;
    /// assert_eq!((array.shape(), array.dtype().to_string().as_str()), (&[2, 3][..], "<u2"));
    /// assert_eq!(array.at(-1)?.read_vec::<u16>()?, [4, 5, 6]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_npy(&self, path: impl AsRef<Path>) -> Result<ContiguousMemmap> {
        let file = self.backend().open(path.as_ref())?;
        let Header { dtype, fortran, shape, data_offset } = self.read_npy_header(&file)?;
        // The shape is the file's, so a shape that no file can hold is damage.
        let layout =
            Layout::array(data_offset, &shape, dtype.itemsize(), fortran).map_err(|error| {
                Error::format(file.path(), Damage::Array { reason: error.to_string() })
            })?;
        self.view(file, dtype, layout)
    }

    /// Reads the header. It never reads more than the longest possible header, whatever the file
    /// says.
    fn read_npy_header(&self, file: &FileHandle) -> Result<Header> {
        let refuse = |reason| Error::format(file.path(), Damage::Array { reason });
        let file_len = self.backend().len(file)?;
        let read = |len: u64| self.backend().read_to_vec(file, 0, len.min(file_len) as usize);
        let mut start = read(FIRST_READ_BYTES)?;
        let (_, header_end) = locate_dict(&start).map_err(refuse)?;
        if header_end > start.len() {
            start = read(header_end as u64)?;
        }
        parse_header(&start).map_err(refuse)
    }
}

/// A decoded header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) dtype: DType,
    /// Whether the first axis varies fastest, rather than the last.
    pub(crate) fortran: bool,
    pub(crate) shape: Vec<usize>,
    /// The offset of the first element in the file.
    pub(crate) data_offset: u64,
}

/// Decodes the header at the start of `bytes`, or returns the reason why there is none.
pub(crate) fn parse_header(bytes: &[u8]) -> Result<Header, String> {
    let (dict_start, dict_end) = locate_dict(bytes)?;
    let dict = bytes.get(dict_start..dict_end).ok_or_else(|| {
        let (said, left) = (dict_end - dict_start, bytes.len().saturating_sub(dict_start));
        format!("the header claims {said} bytes, but the file ends after {left} of them")
    })?;
    let (dtype, fortran, shape) = Literal::new(dict).dict()?;
    Ok(Header { dtype, fortran, shape, data_offset: dict_end as u64 })
}

/// Returns the start and end of the dict. It may end beyond `bytes`.
fn locate_dict(bytes: &[u8]) -> Result<(usize, usize), String> {
    if !bytes.starts_with(MAGIC) {
        return Err("this is not a .npy file: it does not begin with \\x93NUMPY".into());
    }
    let truncated = || "the file ends inside the header".to_owned();
    let version = bytes.get(MAGIC.len()..LEN_AT).ok_or_else(truncated)?;
    let len_bytes = match version {
        [1, 0] => 2,
        [2 | 3, 0] => 4,
        _ => {
            let (major, minor) = (version[0], version[1]);
            return Err(format!(
                ".npy version {major}.{minor} is unknown; versions 1.0, 2.0 and 3.0 can be read"
            ));
        }
    };
    let dict_start = LEN_AT + len_bytes;
    let digits = bytes.get(LEN_AT..dict_start).ok_or_else(truncated)?;
    let dict_len = digits.iter().rev().fold(0, |len, digit| len << 8 | u64::from(*digit));
    match usize::try_from(dict_len) {
        Ok(len) if len <= DICT_BYTES_MAX => Ok((dict_start, dict_start + len)),
        _ => Err(format!(
            "the header claims {dict_len} bytes, but at most {DICT_BYTES_MAX} are allowed"
        )),
    }
}

/// The rest of a Python literal, in the subset that NumPy writes.
struct Literal<'a> {
    rest: &'a [u8],
    len: usize,
}

impl<'a> Literal<'a> {
    fn new(text: &'a [u8]) -> Self {
        Self { rest: text, len: text.len() }
    }

    /// Parses the three entries, in any order, with nothing but space after them.
    fn dict(mut self) -> Result<(DType, bool, Vec<usize>), String> {
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        self.expect(b'{')?;
        while !self.eat(b'}') {
            let key = self.string()?;
            self.expect(b':')?;
            let is_second = match key {
                "descr" => descr.replace(self.descr()?).is_some(),
                "fortran_order" => fortran.replace(self.boolean()?).is_some(),
                "shape" => shape.replace(self.shape()?).is_some(),
                _ => return Err(format!("the header has the unknown key {key:?}")),
            };
            if is_second {
                return Err(format!("the header has the key {key:?} twice"));
            }
            if !self.eat(b',') {
                self.expect(b'}')?;
                break;
            }
        }
        self.skip_space();
        if !self.rest.is_empty() {
            return Err(self.unexpected("nothing"));
        }
        let missing = |key: &str| format!("the header lacks the key {key:?}");
        Ok((
            descr.ok_or_else(|| missing("descr"))?,
            fortran.ok_or_else(|| missing("fortran_order"))?,
            shape.ok_or_else(|| missing("shape"))?,
        ))
    }

    /// Parses a type by its code. A structured type is a list of fields.
    fn descr(&mut self) -> Result<DType, String> {
        self.skip_space();
        if let Some(b'[' | b'(') = self.rest.first() {
            return Err(
                "structured dtypes are not supported; save each field as an array of its own"
                    .into(),
            );
        }
        let code = self.string()?;
        let bare = code.trim_start_matches(['<', '>', '=', '|']);
        if bare.starts_with('O') || bare == "object" {
            return Err(
                "object arrays are never unpickled, because a pickle can run any program; save \
                        the array with a numeric dtype"
                    .into(),
            );
        }
        code.parse().map_err(|_| {
            format!(
                "elements of type {code:?} are not supported; booleans, integers, floats and \
                 complex numbers are"
            )
        })
    }

    fn boolean(&mut self) -> Result<bool, String> {
        self.skip_space();
        for (word, value) in [(&b"True"[..], true), (b"False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err(self.unexpected("True or False"))
    }

    /// Parses a tuple of lengths: `()`, `(3,)`, `(3, 4)`. In Python `(3)` is a number.
    fn shape(&mut self) -> Result<Vec<usize>, String> {
        let mut shape = Vec::new();
        self.expect(b'(')?;
        while !self.eat(b')') {
            if shape.len() == NDIM_MAX {
                // The longest header has room for half a million.
                return Err(format!("the shape has more than {NDIM_MAX} axes"));
            }
            shape.push(self.length()?);
            if self.eat(b',') {
                continue;
            }
            if shape.len() == 1 {
                return Err(self.unexpected("`,` (the shape is a tuple)"));
            }
            self.expect(b')')?;
            break;
        }
        Ok(shape)
    }

    fn length(&mut self) -> Result<usize, String> {
        if self.eat(b'-') {
            return Err("the shape has a negative length".into());
        }
        let count = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 {
            return Err(self.unexpected("a length"));
        }
        let (digits, rest) = self.rest.split_at(count);
        // Python 2 wrote a long as `3L`.
        self.rest = rest.strip_prefix(b"L").unwrap_or(rest);
        let add = |length: usize, digit: &u8| {
            length.checked_mul(10)?.checked_add(usize::from(digit - b'0'))
        };
        let length = digits.iter().try_fold(0, add);
        length.ok_or_else(|| "the shape has a length larger than any file".into())
    }

    /// Parses a string in either kind of quotes. NumPy writes no backslash here.
    fn string(&mut self) -> Result<&'a str, String> {
        self.skip_space();
        let Some((quote @ (b'\'' | b'"'), rest)) = self.rest.split_first() else {
            return Err(self.unexpected("a string"));
        };
        let end = rest.iter().position(|byte| byte == quote || matches!(byte, b'\\' | b'\n'));
        match end {
            Some(end) if rest[end] == *quote => {
                self.rest = &rest[end + 1..];
                let text = std::str::from_utf8(&rest[..end]);
                text.map_err(|_| "the header has a string that is not UTF-8".into())
            }
            _ => Err(self.unexpected("a terminated string without escapes")),
        }
    }

    fn eat(&mut self, wanted: u8) -> bool {
        self.skip_space();
        let rest = self.rest.strip_prefix(&[wanted]);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, wanted: u8) -> Result<(), String> {
        if self.eat(wanted) {
            return Ok(());
        }
        Err(self.unexpected(&format!("`{}`", char::from(wanted))))
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    fn unexpected(&self, wanted: &str) -> String {
        let at = self.len - self.rest.len();
        match self.rest.first() {
            Some(byte) => {
                let found = byte.escape_ascii();
                format!("the header has `{found}` at byte {at}, where {wanted} should be")
            }
            None => format!("the header ends where {wanted} should be"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ByteOrder, Kind};

    fn file(version: u8, dict: &[u8]) -> Vec<u8> {
        let len = (dict.len() as u32).to_le_bytes();
        let len = if version == 1 { &len[..2] } else { &len[..] };
        [MAGIC, &[version, 0], len, dict].concat()
    }

    fn parse(dict: &str) -> Result<Header, String> {
        parse_header(&file(1, dict.as_bytes()))
    }

    fn with_descr(descr: &str) -> Result<Header, String> {
        parse(&format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (3,), }}"))
    }

    fn with_shape(shape: &str) -> Result<Header, String> {
        parse(&format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"))
    }

    fn expect_reason(outcome: Result<Header, String>, part: &str) {
        let reason = outcome.unwrap_err();
        assert!(reason.contains(part), "`{part}` is missing in: {reason}");
    }

    #[test]
    fn files_of_every_numpy_version_are_read() {
        let dict = b"{'descr': '>f8', 'fortran_order': True, 'shape': (13, 19), }      \n";
        for (version, data_offset) in [(1, 10), (2, 12), (3, 12)] {
            let mut bytes = file(version, dict);
            bytes.extend([0; 100]);
            let expected = Header {
                dtype: DType { kind: Kind::F64, order: ByteOrder::Big },
                fortran: true,
                shape: vec![13, 19],
                data_offset: data_offset + dict.len() as u64,
            };
            assert_eq!(parse_header(&bytes), Ok(expected), "version {version}");
        }
    }

    #[test]
    fn equivalent_literals_are_read() {
        let usual = parse("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }").unwrap();
        for dict in [
            "{'shape':(3,4),'fortran_order':False,'descr':'<f4'}",
            "{\"descr\": \"<f4\", \"fortran_order\": False, \"shape\": (3, 4,)}",
            "\t{ 'descr' : 'float32' ,\n'fortran_order'\r\n: False, 'shape': ( 3L , 4L ) , } \n\n",
        ] {
            let header = parse(dict).unwrap();
            let Header { dtype, fortran, shape, .. } = &usual;
            assert_eq!((header.dtype, header.fortran), (*dtype, *fortran), "{dict}");
            assert_eq!(&header.shape, shape, "{dict}");
        }
        assert_eq!(with_shape("()").unwrap().shape, [0usize; 0]);
        assert_eq!(with_shape("(0, 8)").unwrap().shape, [0, 8]);
        assert_eq!(with_shape("(7L,)").unwrap().shape, [7]);
    }

    #[test]
    fn non_numeric_types_are_refused_by_name() {
        expect_reason(with_descr("[('a', '<i4'), ('b', '<f8')]"), "structured dtypes are not");
        expect_reason(with_descr("('<f4', (2,))"), "structured dtypes are not");
        expect_reason(with_descr("'|O'"), "never unpickled");
        expect_reason(with_descr("\"object\""), "never unpickled");
        for descr in ["<M8[ns]", "<U5", "|S10", "|V8", "", "<f3", "é"] {
            expect_reason(with_descr(&format!("'{descr}'")), &format!("type {descr:?} are not"));
        }
        expect_reason(with_descr("'<f4\\x00'"), "without escapes");
        expect_reason(parse("{'descr': '<f4"), "terminated string");
        expect_reason(with_descr("3"), "where a string should be");
    }

    #[test]
    fn impossible_shapes_are_refused() {
        expect_reason(with_shape("(-1, 3)"), "negative");
        assert_eq!(with_shape(&format!("({})", "1,".repeat(64))).unwrap().shape.len(), 64);
        expect_reason(with_shape(&format!("({})", "1,".repeat(65))), "more than 64 axes");
        expect_reason(with_shape("(99999999999999999999999,)"), "larger than any file");
        for shape in ["(3)", "3", "(,)", "(3 4)", "(3,,4)", "(3, 4", "[3]", "(True,)", "(1.5,)"] {
            expect_reason(with_shape(shape), "should be");
        }
    }

    #[test]
    fn malformed_dicts_are_refused() {
        for (dict, part) in [
            ("", "ends where `{`"),
            ("{", "ends where a string"),
            ("{}", "lacks the key \"descr\""),
            ("{'descr': '<f4', 'shape': (3,)}", "lacks the key \"fortran_order\""),
            ("{'fortran_order': False, 'descr': '<f4'}", "lacks the key \"shape\""),
            ("{'descr': '<f4', 'descr': '<f4'}", "twice"),
            ("{'colour': 'red'}", "unknown key \"colour\""),
            ("{'fortran_order': 0}", "True or False"),
            ("{'descr' '<f4'}", "where `:` should be"),
            ("{'descr': '<f4' 'shape': (3,)}", "where `}` should be"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} x", "where nothing"),
        ] {
            expect_reason(parse(dict), part);
        }
        expect_reason(parse_header(&file(1, b"{'\xFF': 3}")), "not UTF-8");
    }

    #[test]
    fn wrong_or_truncated_headers_are_refused() {
        let whole = file(1, b"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }\n");
        for len in 0..whole.len() {
            assert!(parse_header(&whole[..len]).is_err(), "{len} bytes of {}", whole.len());
        }
        assert!(parse_header(&whole).is_ok());
        expect_reason(parse_header(b"PK\x03\x04 a zip file"), "not a .npy file");
        for version in [[0, 0], [1, 1], [4, 0], [255, 255]] {
            let bytes = [MAGIC, &version, &[0; 8]].concat();
            expect_reason(parse_header(&bytes), "is unknown");
        }
        let huge = [MAGIC, &[2, 0], &u32::MAX.to_le_bytes()].concat();
        expect_reason(parse_header(&huge), "4294967295 bytes, but at most");
        expect_reason(parse_header(&file(1, b"{}")[..11]), "ends after 1 of them");
    }
}
