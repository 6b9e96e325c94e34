//! The arguments of an array field: its shape and the type of its elements.

use super::field::ARGUMENTS_LEN;
use super::header::part;
use crate::{DType, Error, Kind};

/// The format has room for this many axes.
const AXES_MAX: usize = 32;
const TYPE_LEN_AT: usize = AXES_MAX * 8;
const TYPE_AT: usize = TYPE_LEN_AT + 8;
const TYPE_LEN_MAX: usize = ARGUMENTS_LEN - TYPE_AT;

/// The shape and element type that an array field has in every sample.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArraySpec {
    dtype: DType,
    shape: Vec<usize>,
    nbytes: usize,
}

impl ArraySpec {
    /// Returns the spec of arrays with this element type and shape. Fails with [`Error::Shape`] if no
    /// field can have it. No axis may be empty: FFCV reads zeros at the end of a shape as missing axes.
    ///
    /// ```
    /// use ringmain::Kind;
    /// use ringmain::beton::ArraySpec;
    /// let spec = ArraySpec::new(Kind::F32.into(), &[4, 6])?;
    /// assert_eq!(spec.nbytes(), 96);
    /// assert!(ArraySpec::new(Kind::F32.into(), &[4, 0]).is_err());
    /// # Ok::<(), ringmain::Error>(())
    /// ```
    pub fn new(dtype: DType, shape: &[usize]) -> Result<Self, Error> {
        Self::checked(dtype, shape).map_err(|reason| Error::Shape { reason })
    }

    /// Like [`new`](Self::new), but returns only the reason of an error.
    fn checked(dtype: DType, shape: &[usize]) -> Result<Self, String> {
        if shape.len() > AXES_MAX {
            return Err(format!(
                "the shape has {} axes, but at most {AXES_MAX} are possible",
                shape.len()
            ));
        }
        if shape.contains(&0) {
            return Err(format!("the shape {shape:?} has an axis of length 0"));
        }
        let nbytes = shape.iter().try_fold(dtype.itemsize(), |bytes, len| bytes.checked_mul(*len));
        match nbytes.filter(|bytes| isize::try_from(*bytes).is_ok()) {
            Some(nbytes) => Ok(Self { dtype, shape: shape.to_vec(), nbytes }),
            None => Err(format!("an array of shape {shape:?} is larger than any file")),
        }
    }

    /// Returns the type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the lengths of the axes.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the size of one array in bytes.
    #[must_use]
    pub fn nbytes(&self) -> usize {
        self.nbytes
    }

    pub(super) fn decode(arguments: &[u8; ARGUMENTS_LEN]) -> Result<Self, String> {
        let axis = |at: usize| u64::from_le_bytes(part(arguments, at * 8));
        let axes = (0..AXES_MAX).take_while(|at| axis(*at) != 0).count();
        if let Some(at) = (axes..AXES_MAX).find(|at| axis(*at) != 0) {
            return Err(format!("axis {at} of the shape comes after one of length 0"));
        }
        let len = |at| {
            usize::try_from(axis(at))
                .map_err(|_| format!("axis {at} has {} elements, which is too many", axis(at)))
        };
        let shape = (0..axes).map(len).collect::<Result<Vec<_>, _>>()?;
        let type_len = u64::from_le_bytes(part(arguments, TYPE_LEN_AT));
        let text = usize::try_from(type_len).ok().filter(|len| *len <= TYPE_LEN_MAX);
        let Some(type_len) = text else {
            return Err(format!(
                "its type has {type_len} bytes, but at most {TYPE_LEN_MAX} are possible"
            ));
        };
        Self::checked(parse_dtype(&arguments[TYPE_AT..TYPE_AT + type_len])?, &shape)
    }

    pub(super) fn encode(&self) -> Result<[u8; ARGUMENTS_LEN], String> {
        let mut arguments = [0; ARGUMENTS_LEN];
        for (out, len) in arguments.chunks_exact_mut(8).zip(&self.shape) {
            out.copy_from_slice(&(*len as u64).to_le_bytes());
        }
        if !is_numpys(self.dtype.kind) {
            return Err(format!(
                "NumPy has no type {}, so FFCV could not read the field",
                self.dtype
            ));
        }
        let text = format!("[[\"\", \"{}\"]]", self.dtype);
        arguments[TYPE_LEN_AT..TYPE_AT].copy_from_slice(&(text.len() as u64).to_le_bytes());
        arguments[TYPE_AT..TYPE_AT + text.len()].copy_from_slice(text.as_bytes());
        Ok(arguments)
    }
}

/// Returns `true` for the types of NumPy itself, `false` for those that other packages add.
fn is_numpys(kind: Kind) -> bool {
    !matches!(
        kind,
        Kind::BF16
            | Kind::F8E4M3
            | Kind::F8E5M2
            | Kind::F8E4M3Fnuz
            | Kind::F8E5M2Fnuz
            | Kind::F8E8M0
    )
}

/// Parses NumPy's description of a type, which is JSON: `[["", "<f4"]]`.
fn parse_dtype(json: &[u8]) -> Result<DType, String> {
    let shown = || String::from_utf8_lossy(json).into_owned();
    let parsed: Vec<Vec<serde_json::Value>> = serde_json::from_slice(json)
        .map_err(|error| format!("its type {:?} is not a type description: {error}", shown()))?;
    let code = match parsed.as_slice() {
        [one] => match one.as_slice() {
            [_, serde_json::Value::String(code)] => Some(code),
            _ => None,
        },
        _ => None,
    };
    let Some(code) = code else {
        return Err(format!("its elements have several parts: {}; add a handler for it", shown()));
    };
    code.parse().map_err(|error: Error| error.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ByteOrder;

    fn arguments(shape: &[u64], type_len: u64, text: &[u8]) -> [u8; ARGUMENTS_LEN] {
        let mut bytes = [0; ARGUMENTS_LEN];
        for (out, len) in bytes.chunks_exact_mut(8).zip(shape) {
            out.copy_from_slice(&len.to_le_bytes());
        }
        bytes[TYPE_LEN_AT..TYPE_AT].copy_from_slice(&type_len.to_le_bytes());
        bytes[TYPE_AT..TYPE_AT + text.len()].copy_from_slice(text);
        bytes
    }

    fn refused(shape: &[u64], text: &str) -> String {
        ArraySpec::decode(&arguments(shape, text.len() as u64, text.as_bytes())).unwrap_err()
    }

    proptest! {
        #[test]
        fn decoding_encoded_arguments_returns_them(
            kind in proptest::sample::select(Kind::all().filter(|kind| is_numpys(*kind)).collect::<Vec<_>>()),
            is_big: bool, shape in proptest::collection::vec(1usize..5, 0..=12),
        ) {
            let order = if is_big && kind.itemsize() > 1 { ByteOrder::Big } else { ByteOrder::Little };
            let spec = ArraySpec::new(DType { kind, order }, &shape).unwrap();
            prop_assert_eq!(ArraySpec::decode(&spec.encode().unwrap()).unwrap(), spec);
        }
    }

    #[test]
    fn impossible_shapes_are_refused() {
        let float = r#"[["", "<f4"]]"#;
        assert!(refused(&[u64::MAX], float).contains("larger than any file"));
        assert!(refused(&[1 << 32, 1 << 32], float).contains("larger than any file"));
        assert!(refused(&[3, 0, 4], float).contains("axis 2"));
        assert_eq!(ArraySpec::decode(&arguments(&[], 13, float.as_bytes())).unwrap().nbytes(), 4);
        assert!(ArraySpec::new(Kind::U8.into(), &[1; 33]).is_err());
        assert_eq!(ArraySpec::new(Kind::U8.into(), &[1; 32]).unwrap().shape().len(), 32);
    }

    #[test]
    fn impossible_types_are_refused() {
        assert!(refused(&[2], "").contains("not a type description"));
        assert!(refused(&[2], "[[").contains("not a type description"));
        assert!(refused(&[2], r#"[["a", "<f4"], ["b", "<f4"]]"#).contains("several parts"));
        assert!(refused(&[2], r#"[["", "<f4", [2]]]"#).contains("several parts"));
        assert!(refused(&[2], "[]").contains("several parts"));
        assert!(refused(&[2], r#"[["", "|O"]]"#).contains("|O"));
        for type_len in [TYPE_LEN_MAX as u64 + 1, u64::MAX] {
            assert!(ArraySpec::decode(&arguments(&[2], type_len, b"")).is_err());
        }
        assert!(ArraySpec::new(Kind::BF16.into(), &[2]).unwrap().encode().is_err());
    }
}
