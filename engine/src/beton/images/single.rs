//! One image in its own size.

use super::decoder::DecoderState;
use crate::beton::{Batch, BetonDamage, Error, Image, Value};

impl Image<'_> {
    /// Decodes the image into `rgb`, which must have exactly [`rgb_bytes`](Self::rgb_bytes) bytes:
    /// height × width × 3, red, green and blue. A raw image is copied.
    ///
    /// The decoder is strict: a malformed JPEG is an error, never a guess. It allocates memory for
    /// the size in the metadata, and refuses an image of another size. It also refuses CMYK, and levels of
    /// more than 8 bits. For many images, an [`ImageDecoder`](super::ImageDecoder) is faster.
    pub fn decode_into(&self, rgb: &mut [u8]) -> Result<(), BetonDamage> {
        DecoderState::default().decode(self, u64::MAX, rgb)
    }
}

impl Batch {
    /// Decodes the image of the sample at place `at` of the batch into `rgb`, which must have
    /// exactly height × width × 3 bytes. An error names the sample and the field.
    ///
    /// # Panics
    /// If there is no such sample in the batch, or no such field.
    pub fn decode_image(&self, at: usize, field: usize, rgb: &mut [u8]) -> Result<(), Error> {
        let decoded = self.image(at, field)?.decode_into(rgb);
        decoded.map_err(|damage| self.dataset.damaged(self.ids()[at], field, damage))
    }

    /// Returns the image of a sample, or an error if the field has no images.
    pub(super) fn image(&self, at: usize, field: usize) -> Result<Image<'_>, Error> {
        match self.value(at, field)? {
            Value::Image(image) => Ok(image),
            _ => {
                let damage = BetonDamage::BadJpeg { reason: "the field has no images".to_owned() };
                Err(self.dataset.damaged(self.ids()[at], field, damage))
            }
        }
    }
}
