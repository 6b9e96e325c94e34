//! A sample while it is made.

use std::fmt;
use std::path::Path;

use serde_json::value::RawValue;

use super::super::{Error, Field, FieldKind, ImageMode, Member};
use super::jpeg;
use crate::Item;

/// What the maker of samples may fail with.
pub type SampleError = Box<dyn std::error::Error + Send + Sync>;

/// Where the values of a sample go.
pub(super) trait Packing {
    fn path(&self) -> &Path;

    fn fields(&self) -> &[Field];

    /// Room for a region of a field, whose place is told to the row later: `None` if the sample is
    /// larger than a page already. `ptr_at` is where in a custom field's member the place belongs.
    fn room(&mut self, field: usize, len: usize, ptr_at: usize)
    -> Result<Option<&mut [u8]>, Error>;

    /// Puts a member in the row, its place left open; false if it is no member of that field.
    fn put(&mut self, field: usize, member: Member<'_>) -> bool;
}

/// Takes the values of one sample, one for each field, in the order of the fields.
///
/// Each call is for the next field; one that does not fit it is
/// [`Error::InvalidItem`]. The bytes go straight to the page that will be written.
pub struct SampleBuilder<'a> {
    packing: &'a mut dyn Packing,
    sample: u64,
    next_field: usize,
    has_failed: bool,
}

/// The part of a custom field's value that is in the pages.
#[derive(Clone, Copy, Debug)]
pub struct CustomRegion<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Where in the member the place of the region is put, as a little-endian `u64`.
    pub ptr_at: usize,
}

impl<'a> SampleBuilder<'a> {
    pub(super) fn new(packing: &'a mut dyn Packing, sample: u64) -> Self {
        Self { packing, sample, next_field: 0, has_failed: false }
    }

    /// Which sample it is.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.sample
    }

    /// A value of an int field.
    pub fn int(&mut self, value: i64) -> Result<&mut Self, Error> {
        self.value("an int", |kind| matches!(kind, FieldKind::Int), Member::Int(value))
    }

    /// A value of a float field.
    pub fn float(&mut self, value: f64) -> Result<&mut Self, Error> {
        self.value("a float", |kind| matches!(kind, FieldKind::Float), Member::Float(value))
    }

    /// A value of a bytes field.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<&mut Self, Error> {
        self.bytes_with(bytes.len(), copied(bytes))
    }

    /// A value of a bytes field, which `fill` writes to where it belongs. What is there before is
    /// unspecified. It is not called for a sample that is too large.
    pub fn bytes_with(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), SampleError>,
    ) -> Result<&mut Self, Error> {
        let field = self.expect("bytes", |kind| matches!(kind, FieldKind::Bytes))?;
        self.region(field, len, 0, fill)?;
        self.put(field, Member::Blob { ptr: 0, size: len as u64 })
    }

    /// A value of a JSON field: a text that is JSON.
    pub fn json(&mut self, text: &str) -> Result<&mut Self, Error> {
        let field = self.expect("JSON", |kind| matches!(kind, FieldKind::Json))?;
        if let Err(error) = serde_json::from_str::<&RawValue>(text) {
            return Err(self.invalid(field, format!("the text is no JSON: {error}")));
        }
        let len = text.len() + 1;
        self.region(field, len, 0, |dst| {
            dst[..len - 1].copy_from_slice(text.as_bytes());
            dst[len - 1] = 0; // FFCV looks for the end
            Ok(())
        })?;
        self.put(field, Member::Blob { ptr: 0, size: len as u64 })
    }

    /// A value of an array or tensor field: all its bytes, in C order and the field's byte order.
    pub fn array(&mut self, bytes: &[u8]) -> Result<&mut Self, Error> {
        let (field, nbytes) = self.expect_array()?;
        if bytes.len() != nbytes {
            let reason = format!("{} bytes, where its arrays have {nbytes}", bytes.len());
            return Err(self.invalid(field, reason));
        }
        self.region(field, nbytes, 0, copied(bytes))?;
        self.put(field, Member::Array { ptr: 0 })
    }

    /// A value of an array or tensor field, which `fill` writes to where it belongs. What is there
    /// before is unspecified. It is not called for a sample that is too large.
    pub fn array_with(
        &mut self,
        fill: impl FnOnce(&mut [u8]) -> Result<(), SampleError>,
    ) -> Result<&mut Self, Error> {
        let (field, nbytes) = self.expect_array()?;
        self.region(field, nbytes, 0, fill)?;
        self.put(field, Member::Array { ptr: 0 })
    }

    /// A raw image: height × width × 3 bytes, red, green, blue.
    pub fn image_raw(&mut self, width: u16, height: u16, bytes: &[u8]) -> Result<&mut Self, Error> {
        let field = self.expect("an image", |kind| matches!(kind, FieldKind::RgbImage))?;
        if Some(bytes.len()) != raw_bytes(width, height) {
            let len = bytes.len();
            let reason = format!("{len} bytes are no raw image of {width} × {height} pixels");
            return Err(self.invalid(field, reason));
        }
        self.image(field, ImageMode::Raw, (width, height), bytes.len(), copied(bytes))
    }

    /// A raw image, which `fill` writes to where it belongs. What is there before is unspecified. It
    /// is not called for a sample that is too large.
    pub fn image_raw_with(
        &mut self,
        width: u16,
        height: u16,
        fill: impl FnOnce(&mut [u8]) -> Result<(), SampleError>,
    ) -> Result<&mut Self, Error> {
        let field = self.expect("an image", |kind| matches!(kind, FieldKind::RgbImage))?;
        match raw_bytes(width, height) {
            Some(len) => self.image(field, ImageMode::Raw, (width, height), len, fill),
            None => {
                let reason = format!("an image of {width} × {height} pixels cannot be");
                Err(self.invalid(field, reason))
            }
        }
    }

    /// An image as a JPEG file, which is kept as it is. Its size is read from it.
    pub fn image_jpeg(&mut self, bytes: &[u8]) -> Result<&mut Self, Error> {
        let field = self.expect("an image", |kind| matches!(kind, FieldKind::RgbImage))?;
        match jpeg::dimensions(bytes) {
            Some(size) => self.image(field, ImageMode::Jpeg, size, bytes.len(), copied(bytes)),
            None => Err(self.invalid(field, "the bytes are no JPEG image".to_owned())),
        }
    }

    /// A value of a custom field: its member in the row, as its [`FieldHandler`] has it, and what it
    /// has in the pages.
    ///
    /// [`FieldHandler`]: super::super::FieldHandler
    pub fn custom(
        &mut self,
        member: &[u8],
        region: Option<CustomRegion<'_>>,
    ) -> Result<&mut Self, Error> {
        let custom = |kind: &FieldKind| matches!(kind, FieldKind::Custom { .. });
        let field = self.expect("a custom value", custom)?;
        if let Some(CustomRegion { bytes, ptr_at }) = region {
            if ptr_at.checked_add(8).is_none_or(|end| end > member.len()) {
                let len = member.len();
                let reason = format!("a place at {ptr_at} is not inside a member of {len} bytes");
                return Err(self.invalid(field, reason));
            }
            self.region(field, bytes.len(), ptr_at, copied(bytes))?;
        }
        self.put(field, Member::Custom(member))
    }

    /// An error unless every field has its value.
    pub(super) fn finish(self) -> Result<(), Error> {
        let missing = self.packing.fields().get(self.next_field);
        if let Some(field) = missing {
            let (name, reason) = (field.name().to_owned(), "it was given no value".to_owned());
            return Err(self.invalid_named(name, reason));
        }
        if self.has_failed {
            let reason = "one of its values was refused before".to_owned();
            return Err(self.invalid_named(String::new(), reason));
        }
        Ok(())
    }

    fn value(
        &mut self,
        what: &str,
        is_kind: impl Fn(&FieldKind) -> bool,
        member: Member<'_>,
    ) -> Result<&mut Self, Error> {
        let field = self.expect(what, is_kind)?;
        self.put(field, member)
    }

    fn image(
        &mut self,
        field: usize,
        mode: ImageMode,
        (width, height): (u16, u16),
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), SampleError>,
    ) -> Result<&mut Self, Error> {
        self.region(field, len, 0, fill)?;
        self.put(field, Member::Image { mode: mode.id(), width, height, ptr: 0 })
    }

    /// The next field, which must be of that kind.
    fn expect(&mut self, what: &str, is_kind: impl Fn(&FieldKind) -> bool) -> Result<usize, Error> {
        let field = self.next_field;
        self.next_field += 1;
        match self.packing.fields().get(field) {
            Some(found) if is_kind(found.kind()) => Ok(field),
            Some(found) => {
                let reason = format!("{what} was given to a field of kind {:?}", found.kind());
                Err(self.invalid(field, reason))
            }
            None => {
                let fields = self.packing.fields().len();
                let reason = format!("{what} too many: it has {fields} fields");
                Err(self.invalid(field, reason))
            }
        }
    }

    fn expect_array(&mut self) -> Result<(usize, usize), Error> {
        let field = self.expect("an array", |kind| kind.array().is_some())?;
        let spec = self.packing.fields()[field].kind().array();
        Ok((field, spec.map_or(0, super::super::ArraySpec::nbytes)))
    }

    fn region(
        &mut self,
        field: usize,
        len: usize,
        ptr_at: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), SampleError>,
    ) -> Result<(), Error> {
        let filled = match self.packing.room(field, len, ptr_at) {
            Ok(Some(room)) => fill(room),
            Ok(None) => Ok(()),
            Err(error) => {
                self.has_failed = true;
                return Err(error);
            }
        };
        filled.map_err(|source| {
            self.has_failed = true;
            source_error(self.packing.path(), self.sample, source)
        })
    }

    fn put(&mut self, field: usize, member: Member<'_>) -> Result<&mut Self, Error> {
        if self.packing.put(field, member) {
            return Ok(self);
        }
        let reason = "its handler has members of another size".to_owned();
        Err(self.invalid(field, reason))
    }

    fn invalid(&mut self, field: usize, reason: String) -> Error {
        self.has_failed = true;
        let name = self.packing.fields().get(field).map_or("", Field::name).to_owned();
        self.invalid_named(name, reason)
    }

    fn invalid_named(&self, field: String, reason: String) -> Error {
        let path = self.packing.path().to_owned();
        let item = Some(Item::Sample { id: self.sample, field: Some(field.into()) });
        Error::InvalidItem { path, item, reason }
    }
}

impl fmt::Debug for SampleBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampleBuilder")
            .field("sample", &self.sample)
            .field("next_field", &self.next_field)
            .finish_non_exhaustive()
    }
}

/// What the maker of a sample has failed with. An error of the builder stays what it is.
pub(super) fn source_error(path: &Path, sample: u64, source: SampleError) -> Error {
    match source.downcast::<Error>() {
        Ok(error) => *error,
        Err(cause) => {
            let (path, item) = (path.to_owned(), Item::Sample { id: sample, field: None });
            Error::Maker { path, item, cause }
        }
    }
}

/// The bytes of a raw image; `None` for one that has none, or more than there are.
fn raw_bytes(width: u16, height: u16) -> Option<usize> {
    let pixels = usize::from(width).checked_mul(usize::from(height))?;
    pixels.checked_mul(3).filter(|bytes| *bytes > 0)
}

fn copied(bytes: &[u8]) -> impl FnOnce(&mut [u8]) -> Result<(), SampleError> {
    |dst| {
        dst.copy_from_slice(bytes);
        Ok(())
    }
}
