//! The form in which images are delivered.

use super::pixels::Pixels;
use super::{CHANNELS, Crop, PixelLayout, PixelType};
use crate::{Error, Result};

/// The form in which images are delivered: their size, the part of them that is used, and their numbers.
///
/// An image is resampled with a triangle filter. A smaller image averages all pixels that each of its pixels covers
/// (antialiasing); a larger one interpolates linearly. The levels are those of Pillow's `resize` with `BILINEAR`,
/// except that rounding may change a level by one.
///
/// ```
/// use ringmain::beton::{Crop, ImageForm, PixelLayout, PixelType};
///
/// let form = ImageForm::new(224, 256)?; // the whole image, also if its proportions change
/// assert_eq!((form.shape(), form.image_bytes()), ([224, 256, 3], 224 * 256 * 3));
///
/// let form = ImageForm::new(224, 224)?
///     .crop(Crop::center(224.0 / 256.0)?)
///     .pixels(PixelType::F32, PixelLayout::Nchw)
///     .normalized([123.7, 116.3, 103.5], [58.4, 57.1, 57.4])?;
/// assert_eq!((form.shape(), form.image_bytes()), ([3, 224, 224], 3 * 224 * 224 * 4));
/// # Ok::<(), ringmain::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ImageForm {
    height: u16,
    width: u16,
    pub(super) crop: Crop,
    pub(super) pixels: Pixels,
}

impl ImageForm {
    /// Resamples whole images to this size. Their pixels are bytes: red, green and blue.
    pub fn new(height: u16, width: u16) -> Result<Self> {
        if height == 0 || width == 0 {
            let reason = "an image has at least one row and one column";
            return Err(Error::invalid_option("resize", format!("({height}, {width})"), reason));
        }
        Ok(Self { height, width, crop: Crop::whole(), pixels: Pixels::default() })
    }

    /// Uses only a part of each image.
    #[must_use]
    pub fn crop(self, crop: Crop) -> Self {
        Self { crop, ..self }
    }

    /// Delivers numbers of this type in this order. Without [`normalized`](Self::normalized), they are the levels from
    /// 0 to 255.
    #[must_use]
    pub fn pixels(self, dtype: PixelType, layout: PixelLayout) -> Self {
        Self { pixels: Pixels::new(dtype, layout), ..self }
    }

    /// Delivers `(level - mean) / std` for the levels of red, green and blue, from 0 to 255, as FFCV's
    /// `NormalizeImage` does. Call it after [`pixels`](Self::pixels), with a type of floats.
    pub fn normalized(self, mean: [f32; 3], std: [f32; 3]) -> Result<Self> {
        Ok(Self { pixels: self.pixels.normalized(mean, std)?, ..self })
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn height(&self) -> u16 {
        self.height
    }

    /// Returns the number of columns.
    #[must_use]
    pub fn width(&self) -> u16 {
        self.width
    }

    /// Returns the type of the numbers.
    #[must_use]
    pub fn dtype(&self) -> PixelType {
        self.pixels.dtype()
    }

    /// Returns the shape of an image: (height, width, 3) or (3, height, width).
    #[must_use]
    pub fn shape(&self) -> [usize; 3] {
        let (height, width) = (self.height.into(), self.width.into());
        match self.pixels.layout {
            PixelLayout::Nhwc => [height, width, CHANNELS],
            PixelLayout::Nchw => [CHANNELS, height, width],
        }
    }

    /// Returns the size of an image in bytes.
    #[must_use]
    pub fn image_bytes(&self) -> usize {
        self.shape().into_iter().product::<usize>() * self.dtype().bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_a_row_and_a_column() {
        for (height, width) in [(0, 5), (5, 0)] {
            assert!(ImageForm::new(height, width).is_err());
        }
    }
}
