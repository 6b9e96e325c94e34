//! Decodes JPEGs with zune-jpeg, which is written in Rust.

use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::scans::guarded;

/// The state of the library. It has none between two images.
#[derive(Debug, Default)]
pub(super) struct Library;

impl Library {
    /// Decodes a JPEG of this size, of one or three colours, to red, green and blue.
    pub(super) fn decode(
        &mut self,
        jpeg: &[u8],
        (width, height): (usize, usize),
        rgb: &mut [u8],
    ) -> Result<(), String> {
        let jpeg = guarded(jpeg)?;
        // With some samplings, zune-jpeg leaves rows unwritten. They must not have pixels of another image.
        rgb.fill(0);
        let options = DecoderOptions::default()
            .set_strict_mode(true)
            .set_max_width(width)
            .set_max_height(height)
            .jpeg_set_out_colorspace(ColorSpace::RGB);
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(jpeg), options);
        decoder.decode_headers().map_err(|error| error.to_string())?;
        if decoder.dimensions() != Some((width, height)) {
            return Err("it has frames of different sizes".to_owned());
        }
        decoder.decode_into(rgb).map_err(|error| error.to_string())
    }
}
