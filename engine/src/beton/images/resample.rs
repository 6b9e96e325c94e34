//! Resamples the part of an image that is used.
//!
//! fast_image_resize does it with the vector instructions of the processor: 0.1 ms for 375 × 500 pixels to 224 × 224, where
//! plain code took 0.57 ms, more than decoding the JPEG.

use fast_image_resize::images::{CroppedImage, Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

use super::crop::Part;
use crate::beton::BetonDamage;

/// Resamples images one after the other, with memory that all of them use.
#[derive(Debug, Default)]
pub(super) struct Resampler(Resizer);

impl Resampler {
    /// Resamples a part of an image of this size, (width, height), to `new_size` in `rgb`. Pixels around the part have no
    /// influence.
    pub(super) fn resample(
        &mut self,
        pixels: &[u8],
        size: (usize, usize),
        part: &Part,
        new_size: (usize, usize),
        rgb: &mut [u8],
    ) -> Result<(), BetonDamage> {
        // Sizes have 16 bits in the file.
        let small = |number: usize| number as u32;
        let failed =
            |error: &dyn std::fmt::Display| BetonDamage::BadJpeg { reason: error.to_string() };
        let pixel = PixelType::U8x3;
        let whole = ImageRef::new(small(size.0), small(size.1), pixels, pixel);
        let whole = whole.map_err(|error| failed(&error))?;
        let [left, top, width, height] = [part.left, part.top, part.width, part.height].map(small);
        let cropped = CroppedImage::new(&whole, left, top, width, height);
        let cropped = cropped.map_err(|error| failed(&error))?;
        let resized = Image::from_slice_u8(small(new_size.0), small(new_size.1), rgb, pixel);
        let mut resized = resized.map_err(|error| failed(&error))?;
        let filter = ResizeAlg::Convolution(FilterType::Bilinear);
        let options = ResizeOptions::new().resize_alg(filter).use_alpha(false);
        self.0.resize(&cropped, &mut resized, &options).map_err(|error| failed(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CHANNELS, Crop};
    use super::*;

    fn resampled(bytes: &[u8], (height, width): (u16, u16), crop: Crop, to: (u16, u16)) -> Vec<u8> {
        let [height, width, new_height, new_width] = [height, width, to.0, to.1].map(usize::from);
        let part = crop.part(height, width, 0, 0);
        let mut rgb = vec![0; new_height * new_width * CHANNELS];
        let mut resampler = Resampler::default();
        let new_size = (new_width, new_height);
        resampler.resample(bytes, (width, height), &part, new_size, &mut rgb).unwrap();
        rgb
    }

    /// Returns pixels without a pattern.
    fn noise(height: u16, width: u16) -> Vec<u8> {
        let bytes = u64::from(height) * u64::from(width) * CHANNELS as u64;
        (0..bytes).map(|at| (ringmain_backends::mix(at) >> 56) as u8).collect()
    }

    #[test]
    fn an_image_of_the_same_size_stays_as_it_is() {
        for (height, width) in [(1, 1), (1, 9), (7, 5), (32, 31)] {
            let bytes = noise(height, width);
            let size = (height, width);
            assert_eq!(resampled(&bytes, size, Crop::whole(), size), bytes);
            let side = height.min(width);
            let found = resampled(&bytes, size, Crop::center(1.0).unwrap(), (side, side));
            let (top, left) = (usize::from(height - side) / 2, usize::from(width - side) / 2);
            let row_bytes = usize::from(width) * CHANNELS;
            let rows = bytes.chunks_exact(row_bytes).skip(top).take(usize::from(side));
            let crop = rows.flat_map(|row| &row[left * CHANNELS..][..usize::from(side) * CHANNELS]);
            assert!(found.iter().eq(crop));
        }
    }

    #[test]
    fn a_crop_does_not_show_pixels_around_it() {
        // A black image with a white square of 4 × 4 at its centre.
        let (height, width) = (8, 12);
        let mut bytes = vec![0; 8 * 12 * CHANNELS];
        for row in 2..6 {
            bytes[(row * 12 + 4) * CHANNELS..][..4 * CHANNELS].fill(255);
        }
        for size in [1, 3, 4, 9] {
            let crop = Crop::center(0.5).unwrap();
            let found = resampled(&bytes, (height, width), crop, (size, size));
            assert!(found.iter().all(|level| *level == 255), "{size}: {found:?}");
        }
    }

    #[test]
    fn levels_are_those_of_the_exact_filter() {
        /// The share of each pixel of a line in the pixel at `at` of a resampled line.
        fn shares(len: usize, new_len: usize, at: usize) -> Vec<f64> {
            let scale = len as f64 / new_len as f64;
            let (centre, reach) = ((at as f64 + 0.5) * scale, scale.max(1.0));
            let share = |pixel| (1.0 - ((pixel as f64 + 0.5 - centre) / reach).abs()).max(0.0);
            let shares: Vec<f64> = (0..len).map(share).collect();
            let sum: f64 = shares.iter().sum();
            shares.iter().map(|share| share / sum).collect()
        }
        for (from, to) in
            [((9, 14), (4, 5)), ((5, 3), (11, 8)), ((40, 2), (3, 7)), ((1, 1), (3, 2))]
        {
            let ((height, width), (new_height, new_width)) = (from, to);
            let bytes = noise(height, width);
            let found = resampled(&bytes, from, Crop::whole(), to);
            let [height, width, new_height, new_width] =
                [height, width, new_height, new_width].map(usize::from);
            for (at, level) in found.iter().enumerate() {
                let (pixel, channel) = (at / CHANNELS, at % CHANNELS);
                let down = shares(height, new_height, pixel / new_width);
                let across = shares(width, new_width, pixel % new_width);
                let mut exact = 0.0;
                for (row, down) in down.iter().enumerate() {
                    for (column, across) in across.iter().enumerate() {
                        let level = bytes[(row * width + column) * CHANNELS + channel];
                        exact += down * across * f64::from(level);
                    }
                }
                // Both passes round to whole levels.
                assert!(
                    (f64::from(*level) - exact).abs() <= 1.0,
                    "{from:?} {to:?}: {level} {exact}"
                );
            }
        }
    }
}
