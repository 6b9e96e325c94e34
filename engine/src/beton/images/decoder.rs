//! Decodes images one after the other, with memory that all of them use.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::library::Library;
use super::resample::Resampler;
use super::{CHANNELS, ImageForm};
use crate::beton::frame::frame_of;
use crate::beton::{BetonDamage, Error, Image, ImageMode};
use crate::memory::zeroed;

/// More memory than this is not kept for the next image.
pub(super) const KEPT_BYTES_MAX: usize = 64 << 20;

/// The state of one thread that decodes.
#[derive(Debug, Default)]
pub(super) struct DecoderState {
    library: Library,
    resampler: Resampler,
    /// The pixels of a JPEG.
    decoded: Vec<u8>,
    /// The pixels in their new size.
    resized: Vec<u8>,
}

/// The reason why an image could not be decoded.
#[derive(Debug)]
pub(super) enum Failed {
    Damaged(BetonDamage),
    Other(Error),
}

impl From<BetonDamage> for Failed {
    fn from(damage: BetonDamage) -> Self {
        Self::Damaged(damage)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

fn bad_jpeg(reason: String) -> BetonDamage {
    BetonDamage::BadJpeg { reason }
}

/// Checks that an image can be decoded to the size in the metadata, before memory is allocated for it.
pub(super) fn check(image: &Image<'_>, pixels_max: u64) -> Result<(), BetonDamage> {
    if image.mode == ImageMode::Raw {
        return Ok(());
    }
    let (width, height) = (image.width, image.height);
    if u64::from(width) * u64::from(height) > pixels_max {
        return Err(BetonDamage::TooManyPixels { width, height, limit: pixels_max });
    }
    let Some(frame) = frame_of(image.bytes) else {
        return Err(bad_jpeg("it has no frame header with a size".to_owned()));
    };
    if (frame.width, frame.height) != (width, height) {
        let found = (frame.width, frame.height);
        let reason = format!("it has {found:?} pixels, but the metadata says ({width}, {height})");
        return Err(bad_jpeg(reason));
    }
    match (frame.bits, frame.components) {
        (8, 1 | 3) => Ok(()),
        (8, 4) => Err(bad_jpeg(
            "its colours are CMYK; convert it to RGB, and write the dataset again".to_owned(),
        )),
        (8, colours) => Err(bad_jpeg(format!("it has {colours} colours, not 1 or 3"))),
        (bits, _) => Err(bad_jpeg(format!(
            "its levels have {bits} bits, not 8; convert it, and write the dataset again"
        ))),
    }
}

impl DecoderState {
    /// Decodes an image in its own size. `rgb` must have its size.
    pub(super) fn decode(
        &mut self,
        image: &Image<'_>,
        pixels_max: u64,
        rgb: &mut [u8],
    ) -> Result<(), BetonDamage> {
        let (given, needed) = (rgb.len(), image.rgb_bytes());
        if given != needed {
            let reason = format!("the buffer has {given} bytes, but the image needs {needed}");
            return Err(bad_jpeg(reason));
        }
        check(image, pixels_max)?;
        if image.mode == ImageMode::Raw {
            rgb.copy_from_slice(image.bytes);
            return Ok(());
        }
        decode_jpeg(&mut self.library, image, rgb)
    }

    /// Decodes the part of an image that `form` uses for this sample, and brings it into the form.
    pub(super) fn deliver(
        &mut self,
        image: &Image<'_>,
        form: &ImageForm,
        (epoch, sample): (u64, u64),
        pixels_max: u64,
        delivered: &mut [u8],
    ) -> Result<(), Failed> {
        if image.rgb_bytes() == 0 {
            return Err(BetonDamage::EmptyImage.into());
        }
        let (width, height) = size_of(image);
        let part = form.crop.part(height, width, epoch, sample);
        let new_size = (usize::from(form.width()), usize::from(form.height()));
        let is_whole = (part.width, part.height) == (width, height) && new_size == (width, height);
        if is_whole && form.pixels.is_rgb() {
            return Ok(self.decode(image, pixels_max, delivered)?);
        }
        check(image, pixels_max)?;
        let pixels = match image.mode {
            ImageMode::Raw => image.bytes,
            ImageMode::Jpeg => {
                let decoded = at_least(&mut self.decoded, image.rgb_bytes())?;
                decode_jpeg(&mut self.library, image, decoded)?;
                &*decoded
            }
        };
        if form.pixels.is_rgb() {
            self.resampler.resample(pixels, (width, height), &part, new_size, delivered)?;
        } else {
            let resized = at_least(&mut self.resized, new_size.0 * new_size.1 * CHANNELS)?;
            self.resampler.resample(pixels, (width, height), &part, new_size, resized)?;
            form.pixels.convert(resized, delivered);
        }
        Ok(())
    }

    /// Gives back large memory, which the next image rarely needs.
    pub(super) fn trim(&mut self) {
        if self.decoded.len() > KEPT_BYTES_MAX {
            self.decoded = Vec::new();
            self.resampler = Resampler::default();
        }
    }
}

/// Decodes a JPEG that was checked. A panic of the library is damage of this image.
fn decode_jpeg(
    library: &mut Library,
    image: &Image<'_>,
    rgb: &mut [u8],
) -> Result<(), BetonDamage> {
    caught(library, |library| library.decode(image.bytes, size_of(image), rgb)).map_err(bad_jpeg)
}

fn caught(
    library: &mut Library,
    decode: impl FnOnce(&mut Library) -> Result<(), String>,
) -> Result<(), String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| decode(library)));
    outcome.unwrap_or_else(|_panic| {
        let _broken = mem::take(library);
        Err("its decoder panicked".to_owned())
    })
}

/// Returns width and height.
fn size_of(image: &Image<'_>) -> (usize, usize) {
    (usize::from(image.width), usize::from(image.height))
}

/// Returns `len` bytes of `memory`, after it was made larger if necessary.
fn at_least(memory: &mut Vec<u8>, len: usize) -> Result<&mut [u8], Error> {
    if memory.len() < len {
        *memory = zeroed(len)?;
    }
    Ok(&mut memory[..len])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It ended the program that asked for the batch, and nothing named the sample.
    #[test]
    fn a_panic_of_the_decoder_is_damage() {
        let mut library = DecoderState::default().library;
        let failed = caught(&mut library, |_| panic!("the test wants this panic"));
        assert_eq!(failed, Err("its decoder panicked".to_owned()));
        assert_eq!(caught(&mut library, |_| Ok(())), Ok(()));
    }

    /// After a damaged JPEG the memory stayed with the decoder, however large.
    #[test]
    fn large_memory_is_not_kept() {
        for (len, kept) in [(KEPT_BYTES_MAX, KEPT_BYTES_MAX), (KEPT_BYTES_MAX + 1, 0)] {
            let mut state = DecoderState { decoded: vec![0; len], ..DecoderState::default() };
            state.trim();
            assert_eq!(state.decoded.len(), kept);
        }
    }
}
