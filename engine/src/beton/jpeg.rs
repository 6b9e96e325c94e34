//! Decodes the images of a batch.

use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::{Batch, BetonDamage, Error, Image, ImageMode, Value};

impl Image<'_> {
    /// Decodes the image into `rgb`, which must have exactly [`rgb_bytes`](Self::rgb_bytes) bytes:
    /// height × width × 3, red, green and blue. A raw image is copied.
    ///
    /// The decoder is strict: a malformed JPEG is an error, never a guess. It allocates memory for
    /// the size in the metadata, and refuses an image of another size.
    pub fn decode_into(&self, rgb: &mut [u8]) -> Result<(), BetonDamage> {
        let bad = |reason| Err(BetonDamage::BadJpeg { reason });
        if rgb.len() != self.rgb_bytes() {
            let (given, needed) = (rgb.len(), self.rgb_bytes());
            return bad(format!("the buffer has {given} bytes, but the image needs {needed}"));
        }
        if self.mode == ImageMode::Raw {
            rgb.copy_from_slice(self.bytes);
            return Ok(());
        }
        let (width, height) = (usize::from(self.width), usize::from(self.height));
        let options = DecoderOptions::default()
            .set_strict_mode(true)
            .set_max_width(width)
            .set_max_height(height)
            .jpeg_set_out_colorspace(ColorSpace::RGB);
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(self.bytes), options);
        let failed = |error| BetonDamage::BadJpeg { reason: format!("{error}") };
        decoder.decode_headers().map_err(failed)?;
        if decoder.dimensions() != Some((width, height)) {
            let found = decoder.dimensions().unwrap_or_default();
            return bad(format!(
                "it has {found:?} pixels, but the metadata says ({width}, {height})"
            ));
        }
        decoder.decode_into(rgb).map_err(failed)
    }
}

impl Batch {
    /// Decodes the image of the sample at place `at` of the batch into `rgb`, which must have
    /// exactly height × width × 3 bytes. An error names the sample and the field.
    ///
    /// # Panics
    /// If there is no such sample in the batch, or no such field.
    pub fn decode_image(&self, at: usize, field: usize, rgb: &mut [u8]) -> Result<(), Error> {
        let decoded = match self.value(at, field)? {
            Value::Image(image) => image.decode_into(rgb),
            _ => Err(BetonDamage::BadJpeg { reason: "the field has no images".to_owned() }),
        };
        decoded.map_err(|damage| self.dataset.damaged(self.ids()[at], field, damage))
    }
}
