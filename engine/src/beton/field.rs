//! Fields and their descriptors.

use std::path::Path;

use super::{ArraySpec, BetonDamage, Error};

/// The size of a name in bytes.
const NAME_LEN: usize = 16;
/// The size of a field's arguments in bytes.
pub(super) const ARGUMENTS_LEN: usize = 1024;

const NAME_AT: usize = 1;
const ARGUMENTS_AT: usize = NAME_AT + NAME_LEN;
/// The size of a descriptor in bytes.
pub const FIELD_LEN: usize = ARGUMENTS_AT + ARGUMENTS_LEN;

const FLOAT: u8 = 0;
const INT: u8 = 1;
const RGB_IMAGE: u8 = 2;
const BYTES: u8 = 3;
const ND_ARRAY: u8 = 4;
const JSON: u8 = 5;
const TORCH_TENSOR: u8 = 6;

/// The kind of value that a field holds in every sample.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldKind {
    /// An `f64`, stored in the row.
    Float,
    /// An `i64`, stored in the row.
    Int,
    /// An image: JPEG, or raw RGB.
    RgbImage,
    /// A byte string of any length.
    Bytes,
    /// An array that has the same shape in every sample.
    NdArray(ArraySpec),
    /// JSON text.
    Json,
    /// An array that FFCV delivers as a tensor, stored like [`NdArray`](Self::NdArray).
    TorchTensor(ArraySpec),
    /// A type that only a [`FieldHandler`](super::FieldHandler) can decode.
    Custom {
        /// The type id. FFCV's own types are below 7; it writes 255 for its users' types.
        type_id: u8,
    },
}

impl FieldKind {
    /// Returns the type id that the file stores.
    #[must_use]
    pub fn type_id(&self) -> u8 {
        match self {
            Self::Float => FLOAT,
            Self::Int => INT,
            Self::RgbImage => RGB_IMAGE,
            Self::Bytes => BYTES,
            Self::NdArray(_) => ND_ARRAY,
            Self::Json => JSON,
            Self::TorchTensor(_) => TORCH_TENSOR,
            Self::Custom { type_id } => *type_id,
        }
    }

    /// Returns the shape and element type of an array field; `None` for other fields.
    #[must_use]
    pub fn array(&self) -> Option<&ArraySpec> {
        match self {
            Self::NdArray(spec) | Self::TorchTensor(spec) => Some(spec),
            _ => None,
        }
    }
}

/// A field of a dataset: its name, its kind, and the arguments that the descriptor stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    name: String,
    kind: FieldKind,
    arguments: Box<[u8; ARGUMENTS_LEN]>,
}

impl Field {
    /// Returns a field to write. Fails with [`Error::InvalidOption`] if FFCV could not read it. The name
    /// must be ASCII of up to 16 bytes. A custom field has no arguments unless
    /// [`with_arguments`](Self::with_arguments) makes it.
    ///
    /// ```
    /// use ringmain::beton::{Field, FieldKind};
    /// let field = Field::new("label", FieldKind::Int)?;
    /// assert_eq!((field.name(), field.kind().type_id()), ("label", 1));
    /// assert!(Field::new("a name that is too long", FieldKind::Int).is_err());
    /// # Ok::<(), ringmain::Error>(())
    /// ```
    pub fn new(name: &str, kind: FieldKind) -> Result<Self, Error> {
        if name.len() > NAME_LEN || !name.is_ascii() || name.contains('\0') {
            let name = format!("`{}`", name.escape_debug());
            let reason = format!("field names are ASCII without NUL, up to {NAME_LEN} bytes");
            return Err(Error::invalid_option("name", name, reason));
        }
        if let FieldKind::Custom { type_id: type_id @ 0..=TORCH_TENSOR } = kind {
            let reason = "the id belongs to FFCV's own types; a custom field needs 7 or more";
            return Err(Error::invalid_option("type_id", type_id, reason));
        }
        let arguments = match kind.array() {
            Some(spec) => spec
                .encode()
                .map_err(|reason| Error::invalid_option("kind", spec.dtype(), reason))?,
            None => [0; ARGUMENTS_LEN],
        };
        Ok(Self { name: name.to_owned(), kind, arguments: Box::new(arguments) })
    }

    /// Returns a custom field to write, with up to 1024 bytes of arguments.
    pub fn with_arguments(name: &str, type_id: u8, arguments: &[u8]) -> Result<Self, Error> {
        let mut field = Self::new(name, FieldKind::Custom { type_id })?;
        let Some(out) = field.arguments.get_mut(..arguments.len()) else {
            let value = format!("{} bytes", arguments.len());
            let reason = format!("at most {ARGUMENTS_LEN} bytes are possible");
            return Err(Error::invalid_option("arguments", value, reason));
        };
        out.copy_from_slice(arguments);
        Ok(field)
    }

    /// Decodes the descriptor of the field `index`. If `is_handled` returns `true` for a field, its
    /// kind is custom, and its arguments are not decoded.
    pub(super) fn decode(
        bytes: &[u8; FIELD_LEN],
        index: usize,
        is_handled: impl FnOnce(&str, u8) -> bool,
        path: &Path,
    ) -> Result<Self, Error> {
        let (type_id, stored) = (bytes[0], &bytes[NAME_AT..ARGUMENTS_AT]);
        let end = stored.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        // Some terminals and C APIs would cut the message at a NUL.
        let name = String::from_utf8_lossy(&stored[..end]).replace('\0', "\\0");
        let bad = |reason| {
            Error::format(path, BetonDamage::BadField { index, name: name.clone(), reason })
        };
        if !stored[..end].is_ascii() {
            return Err(bad("its name is not ASCII".to_owned()));
        }
        if stored[..end].contains(&0) {
            return Err(bad("its name has a NUL inside".to_owned()));
        }
        let arguments: [u8; ARGUMENTS_LEN] = super::header::part(bytes, ARGUMENTS_AT);
        let kind = match type_id {
            _ if is_handled(&name, type_id) => FieldKind::Custom { type_id },
            FLOAT => FieldKind::Float,
            INT => FieldKind::Int,
            RGB_IMAGE => FieldKind::RgbImage,
            BYTES => FieldKind::Bytes,
            ND_ARRAY => FieldKind::NdArray(ArraySpec::decode(&arguments).map_err(bad)?),
            JSON => FieldKind::Json,
            TORCH_TENSOR => FieldKind::TorchTensor(ArraySpec::decode(&arguments).map_err(bad)?),
            type_id => FieldKind::Custom { type_id },
        };
        Ok(Self { name, kind, arguments: Box::new(arguments) })
    }

    /// Returns the bytes of the descriptor.
    #[must_use]
    pub fn encode(&self) -> [u8; FIELD_LEN] {
        let mut bytes = [0; FIELD_LEN];
        bytes[0] = self.kind.type_id();
        bytes[NAME_AT..NAME_AT + self.name.len()].copy_from_slice(self.name.as_bytes());
        bytes[ARGUMENTS_AT..].copy_from_slice(&*self.arguments);
        bytes
    }

    /// Returns the name. FFCV cuts names to 16 bytes, so two fields can have the same one.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the kind of the field.
    #[must_use]
    pub fn kind(&self) -> &FieldKind {
        &self.kind
    }

    /// Returns the arguments: bytes that the field's type interprets.
    #[must_use]
    pub fn arguments(&self) -> &[u8; ARGUMENTS_LEN] {
        &self.arguments
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Damage;
    use crate::Kind;

    fn decode(bytes: &[u8; FIELD_LEN]) -> Result<Field, Error> {
        Field::decode(bytes, 3, |_, _| false, Path::new("a"))
    }

    proptest! {
        #[test]
        fn decoding_an_encoded_descriptor_returns_it(
            name in "[ -~]{0,16}", which in 0usize..9, shape in proptest::collection::vec(1usize..9, 0..4),
            arguments in proptest::collection::vec(any::<u8>(), 0..=ARGUMENTS_LEN),
        ) {
            let spec = ArraySpec::new(Kind::U16.into(), &shape).unwrap();
            let field = match which {
                0 => Field::new(&name, FieldKind::Float),
                1 => Field::new(&name, FieldKind::Int),
                2 => Field::new(&name, FieldKind::RgbImage),
                3 => Field::new(&name, FieldKind::Bytes),
                4 => Field::new(&name, FieldKind::NdArray(spec)),
                5 => Field::new(&name, FieldKind::Json),
                6 => Field::new(&name, FieldKind::TorchTensor(spec)),
                7 => Field::with_arguments(&name, 255, &arguments),
                _ => Field::with_arguments(&name, 100, &arguments),
            }.unwrap();
            prop_assert_eq!(decode(&field.encode()).unwrap(), field);
        }
    }

    #[test]
    fn names_with_nul_or_non_ascii_are_refused() {
        for (name, is_good) in [
            (*b"sixteen letters!", true),
            (*b"label\0\0\0\0\0\0\0\0\0\0\0", true),
            ([0; 16], true),
            (*b"label\0more\0\0\0\0\0\0", false),
            (*b"\xff\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", false),
            (*b"na\xc3\xafve\0\0\0\0\0\0\0\0\0\0", false),
        ] {
            let mut bytes = Field::new("", FieldKind::Int).unwrap().encode();
            bytes[NAME_AT..ARGUMENTS_AT].copy_from_slice(&name);
            match decode(&bytes) {
                Ok(field) => assert!(is_good, "{field:?}"),
                Err(error) => {
                    let reason = bad_field(&error, 3);
                    assert!(!is_good);
                    assert_eq!(reason.contains("NUL"), name.starts_with(b"label"), "{reason}");
                }
            }
        }
        assert!(Field::new("ä", FieldKind::Int).is_err());
        assert!(Field::new("a\0b", FieldKind::Int).is_err());
        assert!(Field::with_arguments("a", 255, &[0; ARGUMENTS_LEN + 1]).is_err());
        assert!(Field::with_arguments("a", 6, &[]).is_err());
    }

    fn bad_field(error: &Error, number: usize) -> &str {
        match error.damage() {
            Some(Damage::Beton(BetonDamage::BadField { index, reason, .. }))
                if *index == number =>
            {
                reason
            }
            _ => panic!("{error}"),
        }
    }

    /// A structured array is an error only if no handler takes the field.
    #[test]
    fn a_handled_field_is_not_decoded() {
        let mut bytes = Field::new("a", FieldKind::Int).unwrap().encode();
        bytes[0] = ND_ARRAY;
        bad_field(&decode(&bytes).unwrap_err(), 3);
        let field = Field::decode(&bytes, 0, |name, id| (name, id) == ("a", 4), Path::new("a"));
        assert_eq!(*field.unwrap().kind(), FieldKind::Custom { type_id: 4 });
    }
}
