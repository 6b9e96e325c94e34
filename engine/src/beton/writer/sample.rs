//! A sample while it is made.

use std::fmt;
use std::path::Path;

use serde_json::value::RawValue;

use super::super::frame::frame_of;
use super::super::{Error, Field, FieldKind, ImageMode, Member};
use crate::Item;

/// An error of the caller's function that makes a sample.
pub type SampleError = Box<dyn std::error::Error + Send + Sync>;

/// The destination of a sample's values.
pub(super) trait SampleSink {
    fn path(&self) -> &Path;

    fn fields(&self) -> &[Field];

    /// Returns room for a region of a field; `None` if the sample is already larger than a page.
    /// The region's offset is set later: in a custom field's member at `ptr_at`.
    fn room(&mut self, field: usize, len: usize, ptr_at: usize)
    -> Result<Option<&mut [u8]>, Error>;

    /// Puts a member without its offset in the row. Returns `false` if the member does not fit the
    /// field.
    fn put(&mut self, field: usize, member: Member<'_>) -> bool;
}

/// Takes the values of one sample, one for each field, in the order of the fields.
///
/// Each call sets the next field; a value that does not fit it is [`Error::InvalidItem`]. The bytes
/// go straight to the page that will be written.
pub struct SampleBuilder<'a> {
    sink: &'a mut dyn SampleSink,
    sample: u64,
    next_field: usize,
    has_failed: bool,
}

/// The part of a custom field's value that is in the pages.
#[derive(Clone, Copy, Debug)]
pub struct CustomRegion<'a> {
    /// The bytes of the region.
    pub bytes: &'a [u8],
    /// The place in the member that receives the offset of the region, a little-endian `u64`.
    pub ptr_at: usize,
}

impl<'a> SampleBuilder<'a> {
    pub(super) fn new(sink: &'a mut dyn SampleSink, sample: u64) -> Self {
        Self { sink, sample, next_field: 0, has_failed: false }
    }

    /// Returns the id of the sample.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.sample
    }

    /// Sets an int field.
    pub fn int(&mut self, value: i64) -> Result<&mut Self, Error> {
        self.value("an int", |kind| matches!(kind, FieldKind::Int), Member::Int(value))
    }

    /// Sets a float field.
    pub fn float(&mut self, value: f64) -> Result<&mut Self, Error> {
        self.value("a float", |kind| matches!(kind, FieldKind::Float), Member::Float(value))
    }

    /// Sets a bytes field.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<&mut Self, Error> {
        self.bytes_with(bytes.len(), copied(bytes))
    }

    /// Sets a bytes field: `fill` writes the value in place. The memory holds unspecified bytes
    /// before. `fill` is not called if the sample is too large.
    pub fn bytes_with(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), SampleError>,
    ) -> Result<&mut Self, Error> {
        let field = self.expect("bytes", |kind| matches!(kind, FieldKind::Bytes))?;
        self.region(field, len, 0, fill)?;
        self.put(field, Member::Blob { ptr: 0, size: len as u64 })
    }

    /// Sets a JSON field. `text` must be valid JSON.
    pub fn json(&mut self, text: &str) -> Result<&mut Self, Error> {
        let field = self.expect("JSON", |kind| matches!(kind, FieldKind::Json))?;
        if let Err(error) = serde_json::from_str::<&RawValue>(text) {
            return Err(self.invalid(field, format!("the text is not JSON: {error}")));
        }
        let len = text.len() + 1;
        self.region(field, len, 0, |dst| {
            dst[..len - 1].copy_from_slice(text.as_bytes());
            dst[len - 1] = 0; // FFCV searches for the NUL
            Ok(())
        })?;
        self.put(field, Member::Blob { ptr: 0, size: len as u64 })
    }

    /// Sets an array or tensor field to all its bytes, in C order and the field's byte order.
    pub fn array(&mut self, bytes: &[u8]) -> Result<&mut Self, Error> {
        let (field, nbytes) = self.expect_array()?;
        if bytes.len() != nbytes {
            let reason = format!(
                "the value has {} bytes, but the field's arrays have {nbytes}",
                bytes.len()
            );
            return Err(self.invalid(field, reason));
        }
        self.region(field, nbytes, 0, copied(bytes))?;
        self.put(field, Member::Array { ptr: 0 })
    }

    /// Sets an array or tensor field: `fill` writes the value in place. The memory holds
    /// unspecified bytes before. `fill` is not called if the sample is too large.
    pub fn array_with(
        &mut self,
        fill: impl FnOnce(&mut [u8]) -> Result<(), SampleError>,
    ) -> Result<&mut Self, Error> {
        let (field, nbytes) = self.expect_array()?;
        self.region(field, nbytes, 0, fill)?;
        self.put(field, Member::Array { ptr: 0 })
    }

    /// Sets an image field to a raw image: height × width × 3 bytes, red, green, blue.
    pub fn image_raw(&mut self, width: u16, height: u16, bytes: &[u8]) -> Result<&mut Self, Error> {
        let field = self.expect("an image", |kind| matches!(kind, FieldKind::RgbImage))?;
        if Some(bytes.len()) != raw_bytes(width, height) {
            let len = bytes.len();
            let reason = format!("{len} bytes are not a raw image of {width} × {height} pixels");
            return Err(self.invalid(field, reason));
        }
        self.image(field, ImageMode::Raw, (width, height), bytes.len(), copied(bytes))
    }

    /// Sets an image field to a raw image: `fill` writes it in place. The memory holds unspecified
    /// bytes before. `fill` is not called if the sample is too large.
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
                let reason = format!("an image of {width} × {height} pixels is impossible");
                Err(self.invalid(field, reason))
            }
        }
    }

    /// Sets an image field to a JPEG file, which is stored unchanged. Its size is read from the
    /// file.
    pub fn image_jpeg(&mut self, bytes: &[u8]) -> Result<&mut Self, Error> {
        let field = self.expect("an image", |kind| matches!(kind, FieldKind::RgbImage))?;
        match frame_of(bytes) {
            Some(frame) => {
                let size = (frame.width, frame.height);
                self.image(field, ImageMode::Jpeg, size, bytes.len(), copied(bytes))
            }
            None => Err(self.invalid(field, "the bytes are not a JPEG image".to_owned())),
        }
    }

    /// Sets a custom field: its member in the row, as its [`FieldHandler`] defines it, and its
    /// region in the pages.
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
                let reason =
                    format!("the offset at byte {ptr_at} does not fit in a member of {len} bytes");
                return Err(self.invalid(field, reason));
            }
            self.region(field, bytes.len(), ptr_at, copied(bytes))?;
        }
        self.put(field, Member::Custom(member))
    }

    /// Returns an error unless every field has a value.
    pub(super) fn finish(self) -> Result<(), Error> {
        let missing = self.sink.fields().get(self.next_field);
        if let Some(field) = missing {
            let (name, reason) = (field.name().to_owned(), "it has no value".to_owned());
            return Err(self.invalid_named(name, reason));
        }
        if self.has_failed {
            let reason = "one of its values was refused".to_owned();
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

    /// Advances to the next field and returns its number. The field must be of the expected kind.
    fn expect(&mut self, what: &str, is_kind: impl Fn(&FieldKind) -> bool) -> Result<usize, Error> {
        let field = self.next_field;
        self.next_field += 1;
        match self.sink.fields().get(field) {
            Some(found) if is_kind(found.kind()) => Ok(field),
            Some(found) => {
                let reason = format!("a field of kind {:?} cannot take {what}", found.kind());
                Err(self.invalid(field, reason))
            }
            None => {
                let fields = self.sink.fields().len();
                let reason = format!("{what} is one value too many: it has {fields} fields");
                Err(self.invalid(field, reason))
            }
        }
    }

    fn expect_array(&mut self) -> Result<(usize, usize), Error> {
        let field = self.expect("an array", |kind| kind.array().is_some())?;
        let spec = self.sink.fields()[field].kind().array();
        Ok((field, spec.map_or(0, super::super::ArraySpec::nbytes)))
    }

    fn region(
        &mut self,
        field: usize,
        len: usize,
        ptr_at: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), SampleError>,
    ) -> Result<(), Error> {
        let filled = match self.sink.room(field, len, ptr_at) {
            Ok(Some(room)) => fill(room),
            Ok(None) => Ok(()),
            Err(error) => {
                self.has_failed = true;
                return Err(error);
            }
        };
        filled.map_err(|source| {
            self.has_failed = true;
            source_error(self.sink.path(), self.sample, source)
        })
    }

    fn put(&mut self, field: usize, member: Member<'_>) -> Result<&mut Self, Error> {
        if self.sink.put(field, member) {
            return Ok(self);
        }
        let reason = "the member does not have the size that its handler states".to_owned();
        Err(self.invalid(field, reason))
    }

    fn invalid(&mut self, field: usize, reason: String) -> Error {
        self.has_failed = true;
        let name = self.sink.fields().get(field).map_or("", Field::name).to_owned();
        self.invalid_named(name, reason)
    }

    fn invalid_named(&self, field: String, reason: String) -> Error {
        let path = self.sink.path().to_owned();
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

/// Converts an error of the caller's function. An error that the builder returned is passed on
/// unchanged.
pub(super) fn source_error(path: &Path, sample: u64, source: SampleError) -> Error {
    match source.downcast::<Error>() {
        Ok(error) => *error,
        Err(cause) => {
            let (path, item) = (path.to_owned(), Item::Sample { id: sample, field: None });
            Error::Maker { path, item, cause }
        }
    }
}

/// Returns the size of a raw image in bytes; `None` if it is empty or does not fit in memory.
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
