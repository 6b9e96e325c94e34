//! The rows of metadata: one row for each sample, with one member for each field.

use std::path::Path;
use std::sync::Arc;

use super::header::part;
use super::{BetonDamage, Error, Field, FieldHandler, FieldKind, Handlers, MemberRegion};

const SCALAR_BYTES: usize = 8;
const BLOB_SIZE_AT: usize = 8;
const BLOB_BYTES: usize = BLOB_SIZE_AT + 8;
const IMAGE_WIDTH_AT: usize = 1;
const IMAGE_HEIGHT_AT: usize = IMAGE_WIDTH_AT + 2;
const IMAGE_PTR_AT: usize = IMAGE_HEIGHT_AT + 2;
const IMAGE_BYTES: usize = IMAGE_PTR_AT + 8;

/// The largest alignment in NumPy.
const ALIGN_MAX: usize = 16;
/// More than any NumPy struct needs, and small enough that the size of a row cannot overflow.
const MEMBER_BYTES_MAX: usize = 1 << 20;

/// The encoding of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImageMode {
    /// A JPEG file.
    Jpeg,
    /// Height × width × 3 bytes: red, green, blue.
    Raw,
}

impl ImageMode {
    /// Returns the mode with this id.
    pub(super) fn from_id(id: u8) -> Option<Self> {
        match id {
            0 => Some(Self::Jpeg),
            1 => Some(Self::Raw),
            _ => None,
        }
    }

    /// Returns the id that the file stores.
    #[must_use]
    pub fn id(self) -> u8 {
        match self {
            Self::Jpeg => 0,
            Self::Raw => 1,
        }
    }
}

/// The part of a row that belongs to one field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Member<'a> {
    /// The value.
    Float(f64),
    /// The value.
    Int(i64),
    /// The place of a value of bytes or JSON.
    Blob {
        /// The value's first byte in the file.
        ptr: u64,
        /// The size of the value in bytes.
        size: u64,
    },
    /// The place of an array.
    Array {
        /// The array's first byte in the file.
        ptr: u64,
    },
    /// The encoding, size and place of an image.
    Image {
        /// The id of its [`ImageMode`].
        mode: u8,
        /// The number of pixel columns.
        width: u16,
        /// The number of pixel rows.
        height: u16,
        /// The image's first byte in the file.
        ptr: u64,
    },
    /// The member of a custom field, which its handler interprets.
    Custom(&'a [u8]),
}

/// The places of the members in a row, as NumPy places those of a struct with `align=True`.
#[derive(Clone, Debug)]
pub struct RowLayout {
    slots: Vec<MemberSlot>,
    row_bytes: usize,
}

#[derive(Clone, Debug)]
struct MemberSlot {
    at: usize,
    bytes: usize,
    form: MemberForm,
}

#[derive(Clone, Debug)]
enum MemberForm {
    Float,
    Int,
    Blob,
    Array,
    Image,
    Custom(Arc<dyn FieldHandler>),
}

impl RowLayout {
    /// Returns the layout of rows with these fields. A custom field without a handler is
    /// [`BetonDamage::UnknownType`]. Errors name `path`.
    ///
    /// ```
    /// use std::path::Path;
    /// use ringmain::beton::{Field, FieldKind, Handlers, Member, RowLayout};
    ///
    /// let fields = [Field::new("image", FieldKind::RgbImage)?, Field::new("label", FieldKind::Int)?];
    /// let layout = RowLayout::new(&fields, &Handlers::new(), Path::new("a.beton"))?;
    /// assert_eq!(layout.row_bytes(), 24);
    /// let mut row = vec![0; layout.row_bytes()];
    /// assert!(layout.put(&mut row, 1, Member::Int(-7)));
    /// assert_eq!(layout.member(&row, 1), Member::Int(-7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(fields: &[Field], handlers: &Handlers, path: &Path) -> Result<Self, Error> {
        let (mut slots, mut end, mut row_align) = (Vec::with_capacity(fields.len()), 0usize, 1);
        for (index, field) in fields.iter().enumerate() {
            let (form, bytes, align) = form_of(field, index, handlers, path)?;
            let at = end.next_multiple_of(align);
            slots.push(MemberSlot { at, bytes, form });
            // No overflow: at most 65535 members of 1 MiB each.
            end = at + bytes;
            row_align = row_align.max(align);
        }
        Ok(Self { slots, row_bytes: end.next_multiple_of(row_align) })
    }

    /// Returns the size of a row in bytes.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Returns the offset of a field's member in a row.
    pub(super) fn member_at(&self, field: usize) -> usize {
        self.slots[field].at
    }

    /// Returns the member of a field in a row.
    ///
    /// # Panics
    /// If there is no such field, or `row` is shorter than [`row_bytes`](Self::row_bytes).
    #[must_use]
    pub fn member<'a>(&self, row: &'a [u8], field: usize) -> Member<'a> {
        let slot = &self.slots[field];
        let bytes = &row[slot.at..slot.at + slot.bytes];
        match slot.form {
            MemberForm::Float => Member::Float(f64::from_le_bytes(part(bytes, 0))),
            MemberForm::Int => Member::Int(i64::from_le_bytes(part(bytes, 0))),
            MemberForm::Blob => Member::Blob {
                ptr: u64::from_le_bytes(part(bytes, 0)),
                size: u64::from_le_bytes(part(bytes, BLOB_SIZE_AT)),
            },
            MemberForm::Array => Member::Array { ptr: u64::from_le_bytes(part(bytes, 0)) },
            MemberForm::Image => Member::Image {
                mode: bytes[0],
                width: u16::from_le_bytes(part(bytes, IMAGE_WIDTH_AT)),
                height: u16::from_le_bytes(part(bytes, IMAGE_HEIGHT_AT)),
                ptr: u64::from_le_bytes(part(bytes, IMAGE_PTR_AT)),
            },
            MemberForm::Custom(_) => Member::Custom(bytes),
        }
    }

    /// Writes the member of a field into a row. Returns `false` and writes nothing if the member
    /// does not fit the field: another form, or a custom member of another size.
    ///
    /// # Panics
    /// If there is no such field, or `row` is shorter than [`row_bytes`](Self::row_bytes).
    #[must_use]
    pub fn put(&self, row: &mut [u8], field: usize, member: Member<'_>) -> bool {
        let slot = &self.slots[field];
        let bytes = &mut row[slot.at..slot.at + slot.bytes];
        match (&slot.form, member) {
            (MemberForm::Float, Member::Float(value)) => {
                bytes.copy_from_slice(&value.to_le_bytes())
            }
            (MemberForm::Int, Member::Int(value)) => bytes.copy_from_slice(&value.to_le_bytes()),
            (MemberForm::Blob, Member::Blob { ptr, size }) => {
                bytes[..BLOB_SIZE_AT].copy_from_slice(&ptr.to_le_bytes());
                bytes[BLOB_SIZE_AT..].copy_from_slice(&size.to_le_bytes());
            }
            (MemberForm::Array, Member::Array { ptr }) => bytes.copy_from_slice(&ptr.to_le_bytes()),
            (MemberForm::Image, Member::Image { mode, width, height, ptr }) => {
                bytes[0] = mode;
                bytes[IMAGE_WIDTH_AT..IMAGE_HEIGHT_AT].copy_from_slice(&width.to_le_bytes());
                bytes[IMAGE_HEIGHT_AT..IMAGE_PTR_AT].copy_from_slice(&height.to_le_bytes());
                bytes[IMAGE_PTR_AT..].copy_from_slice(&ptr.to_le_bytes());
            }
            (MemberForm::Custom(_), Member::Custom(value)) if value.len() == bytes.len() => {
                bytes.copy_from_slice(value);
            }
            _ => return false,
        }
        true
    }

    /// Returns the fields whose values can have regions in the pages.
    pub(super) fn paged(&self) -> Vec<usize> {
        let is_paged =
            |slot: &MemberSlot| !matches!(slot.form, MemberForm::Float | MemberForm::Int);
        self.slots.iter().enumerate().filter(|(_, slot)| is_paged(slot)).map(|(at, _)| at).collect()
    }

    /// Returns the size of a field's member in bytes.
    pub(super) fn member_bytes(&self, field: usize) -> usize {
        self.slots[field].bytes
    }

    /// Returns the region of a custom field's value, according to its handler.
    pub(super) fn custom_region(&self, row: &[u8], field: usize) -> Option<MemberRegion> {
        let slot = &self.slots[field];
        match &slot.form {
            MemberForm::Custom(handler) => handler.region(&row[slot.at..slot.at + slot.bytes]),
            _ => None,
        }
    }
}

/// Returns the form, size and alignment of a field's member. NumPy aligns a nested struct by that
/// struct's own alignment, and FFCV's nested structs are packed: 1.
fn form_of(
    field: &Field,
    index: usize,
    handlers: &Handlers,
    path: &Path,
) -> Result<(MemberForm, usize, usize), Error> {
    match field.kind() {
        FieldKind::Float => Ok((MemberForm::Float, SCALAR_BYTES, SCALAR_BYTES)),
        FieldKind::Int => Ok((MemberForm::Int, SCALAR_BYTES, SCALAR_BYTES)),
        FieldKind::Bytes | FieldKind::Json => Ok((MemberForm::Blob, BLOB_BYTES, 1)),
        FieldKind::NdArray(_) | FieldKind::TorchTensor(_) => {
            Ok((MemberForm::Array, SCALAR_BYTES, SCALAR_BYTES))
        }
        FieldKind::RgbImage => Ok((MemberForm::Image, IMAGE_BYTES, 1)),
        FieldKind::Custom { type_id } => {
            let name = field.name().to_owned();
            let Some(handler) = handlers.of(field) else {
                let damage = BetonDamage::UnknownType { index, name, type_id: *type_id };
                return Err(Error::format(path, damage));
            };
            let (bytes, align) = (handler.member_bytes(), handler.member_align());
            if !align.is_power_of_two() || align > ALIGN_MAX || bytes > MEMBER_BYTES_MAX {
                let reason = format!(
                    "its handler wants members of {bytes} bytes aligned to {align}; possible are up \
                     to {MEMBER_BYTES_MAX} bytes, aligned to a power of two up to {ALIGN_MAX}"
                );
                return Err(Error::format(path, BetonDamage::BadField { index, name, reason }));
            }
            Ok((MemberForm::Custom(Arc::clone(handler)), bytes, align))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Damage;
    use crate::Kind;
    use crate::beton::ArraySpec;

    #[derive(Debug)]
    struct Opaque(usize, usize);

    impl FieldHandler for Opaque {
        fn member_bytes(&self) -> usize {
            self.0
        }

        fn member_align(&self) -> usize {
            self.1
        }

        fn region(&self, _: &[u8]) -> Option<MemberRegion> {
            None
        }
    }

    fn field(which: usize) -> Field {
        let spec = ArraySpec::new(Kind::F32.into(), &[4, 6]).unwrap();
        let kind = match which {
            0 => FieldKind::Int,
            1 => FieldKind::Float,
            2 => FieldKind::Bytes,
            3 => FieldKind::NdArray(spec),
            4 => FieldKind::Json,
            5 => FieldKind::RgbImage,
            6 => FieldKind::TorchTensor(spec),
            _ => FieldKind::Custom { type_id: 255 },
        };
        Field::new(&format!("f{which}"), kind).unwrap()
    }

    fn layout(which: &[usize], handlers: &Handlers) -> Result<RowLayout, Error> {
        let fields: Vec<_> = which.iter().map(|which| field(*which)).collect();
        RowLayout::new(&fields, handlers, Path::new("a"))
    }

    fn places(layout: &RowLayout) -> (Vec<usize>, usize) {
        (layout.slots.iter().map(|slot| slot.at).collect(), layout.row_bytes())
    }

    /// The numbers are those of `np.dtype([...], align=True)`.
    #[test]
    fn members_are_placed_as_numpy_places_them() {
        let of = |which: &[usize]| places(&layout(which, &Handlers::new()).unwrap());
        assert_eq!(of(&[0, 1, 2, 3, 4, 5]), (vec![0, 8, 16, 32, 40, 56], 72));
        assert_eq!(of(&[5, 0]), (vec![0, 16], 24));
        assert_eq!(of(&[5]), (vec![0], 13));
        assert_eq!(of(&[5, 5, 2]), (vec![0, 13, 26], 42));
        assert_eq!(of(&[5, 3, 5]), (vec![0, 16, 24], 40));
        assert_eq!(of(&[]), (vec![], 0));
        let handlers = Handlers::new().for_type(255, Opaque(6, 2));
        assert_eq!(places(&layout(&[5, 7, 5], &handlers).unwrap()), (vec![0, 14, 20], 34));
    }

    #[test]
    fn a_custom_field_needs_a_valid_handler() {
        let error = layout(&[0, 7], &Handlers::new()).unwrap_err();
        assert!(
            matches!(
                error.damage(),
                Some(Damage::Beton(BetonDamage::UnknownType { index: 1, type_id: 255, .. }))
            ),
            "{error}"
        );
        for handler in [Opaque(8, 0), Opaque(8, 3), Opaque(8, 32), Opaque(usize::MAX, 1)] {
            let error = layout(&[7], &Handlers::new().for_name("f7", handler)).unwrap_err();
            assert!(
                matches!(
                    error.damage(),
                    Some(Damage::Beton(BetonDamage::BadField { index: 0, .. }))
                ),
                "{error}"
            );
        }
    }

    proptest! {
        #[test]
        fn reading_a_written_member_returns_it(
            which in proptest::collection::vec(0usize..8, 1..12),
            numbers in proptest::collection::vec(any::<(u64, u64, u8, u16, u16)>(), 12),
        ) {
            let layout = layout(&which, &Handlers::new().for_type(255, Opaque(5, 1))).unwrap();
            let mut row = vec![0; layout.row_bytes()];
            let custom: Vec<_> = numbers.iter().map(|numbers| numbers.0.to_le_bytes()).collect();
            let member = |at: usize| {
                let (ptr, size, mode, width, height) = numbers[at];
                match which[at] {
                    0 => Member::Int(ptr as i64),
                    1 => Member::Float(size as f64),
                    2 | 4 => Member::Blob { ptr, size },
                    3 | 6 => Member::Array { ptr },
                    5 => Member::Image { mode, width, height, ptr },
                    _ => Member::Custom(&custom[at][..5]),
                }
            };
            for at in 0..which.len() {
                prop_assert!(layout.put(&mut row, at, member(at)));
                prop_assert!(!layout.put(&mut row, at, Member::Custom(&[0; 4])));
            }
            for at in 0..which.len() {
                prop_assert_eq!(layout.member(&row, at), member(at));
            }
        }
    }
}
