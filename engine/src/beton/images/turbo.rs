//! Decodes JPEGs with libjpeg-turbo, which is written in C and assembler. It takes 0.76 to 0.87 of the time that
//! zune-jpeg takes, and its pixels are those of Pillow.

use turbojpeg::{Decompressor, Image, PixelFormat};

/// The library's decoder, which is used for one image after the other.
#[derive(Debug, Default)]
pub(super) struct Library {
    decompressor: Option<Decompressor>,
}

impl Library {
    /// Decodes a JPEG of this size, of one or three colours, to red, green and blue.
    pub(super) fn decode(
        &mut self,
        jpeg: &[u8],
        (width, height): (usize, usize),
        rgb: &mut [u8],
    ) -> Result<(), String> {
        let decompressor = match &mut self.decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(Decompressor::new().map_err(|error| error.to_string())?),
        };
        let pixels =
            Image { pixels: rgb, width, pitch: width * 3, height, format: PixelFormat::RGB };
        decompressor.decompress(jpeg, pixels).map_err(|error| error.to_string())
    }
}
