//! Decodes the images of a batch to one size.
//!
//! An image is resampled with a triangle filter, first its rows and then its columns. A smaller image
//! averages all pixels that each of its pixels covers (antialiasing); a larger one interpolates
//! linearly. The arithmetic is that of Pillow's `resize` with `BILINEAR`: weights of 22 bits, and whole
//! levels between the two passes. Pillow exchanges the passes if that is less work, which can change a
//! level by one.

use std::ops::Range;

use super::{Batch, BetonDamage, Error, Image, ImageMode, Value};
use crate::Result;
use crate::memory::vec_of;

/// The bits of a weight behind the point: 8 bits of a level, these 22, and the sign fit in 32 bits.
const WEIGHT_BITS: u32 = 22;

/// Red, green and blue.
const CHANNELS: usize = 3;

/// The size that images are resampled to, and which part of them is used.
///
/// ```
/// use ringmain::beton::Resize;
///
/// let whole = Resize::new(224, 256)?; // the whole image, also if its proportions change
/// assert_eq!(whole.rgb_bytes(), 224 * 256 * 3);
/// // The square at the centre whose side is 224/256 of the shorter side, as for validation.
/// let centre = Resize::new(224, 224)?.center_crop(224.0 / 256.0)?;
/// # let _ = centre;
/// # Ok::<(), ringmain::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resize {
    height: u16,
    width: u16,
    center_crop: Option<f64>,
}

impl Resize {
    /// Resamples whole images to this size.
    pub fn new(height: u16, width: u16) -> Result<Self> {
        if height == 0 || width == 0 {
            let reason = "an image has at least one row and one column";
            return Err(Error::invalid_option("resize", format!("({height}, {width})"), reason));
        }
        Ok(Self { height, width, center_crop: None })
    }

    /// Uses only the square at the centre of each image whose side is `ratio` times the image's
    /// shorter side, as FFCV's `CenterCropRGBImageDecoder`.
    pub fn center_crop(self, ratio: f64) -> Result<Self> {
        if ratio > 0.0 && ratio <= 1.0 {
            return Ok(Self { center_crop: Some(ratio), ..self });
        }
        let reason = "it is a part of the shorter side: above 0, and at most 1";
        Err(Error::invalid_option("center_crop", ratio, reason))
    }

    /// Returns the number of rows of a resampled image.
    #[must_use]
    pub fn height(&self) -> u16 {
        self.height
    }

    /// Returns the number of columns of a resampled image.
    #[must_use]
    pub fn width(&self) -> u16 {
        self.width
    }

    /// Returns the size of a resampled image in bytes: height × width × 3.
    #[must_use]
    pub fn rgb_bytes(&self) -> usize {
        usize::from(self.height) * usize::from(self.width) * CHANNELS
    }

    /// Returns the rows and the columns of an image that are used.
    fn part_of(&self, image: &Image<'_>) -> (Range<usize>, Range<usize>) {
        let (height, width) = (usize::from(image.height), usize::from(image.width));
        let Some(ratio) = self.center_crop else { return (0..height, 0..width) };
        let side = ((ratio * height.min(width) as f64) as usize).max(1);
        let (top, left) = ((height - side) / 2, (width - side) / 2);
        (top..top + side, left..left + side)
    }
}

impl Batch {
    /// Decodes the images of a field and resamples each to the size of `resize`. They become one array
    /// in `rgb`, of shape (batch, height, width, 3) in C order, which must have exactly that size. An
    /// error names the sample and the field.
    ///
    /// ```
    /// use ringmain::Engine;
    /// use ringmain::beton::{BetonReader, BetonWriter, Field, FieldKind, Resize};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a.beton");
    /// let fields = [Field::new("image", FieldKind::RgbImage)?];
    /// BetonWriter::new(fields).write_indexed(&path, 2, |id, sample| {
    ///     let (height, width) = ([3, 8][id as usize], 4);
    ///     sample.image_raw(width, height, &vec![9; usize::from(width * height * 3)])?;
    ///     Ok(())
    /// })?;
    /// let batch = BetonReader::open(&Engine::new()?, &path)?.read_batch(&[1, 0])?;
    /// let resize = Resize::new(2, 2)?;
    /// let mut rgb = vec![0; batch.len() * resize.rgb_bytes()];
    /// batch.decode_resized(0, &resize, &mut rgb)?;
    /// assert_eq!(rgb, [9; 2 * 2 * 2 * 3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If there is no such field.
    pub fn decode_resized(&self, field: usize, resize: &Resize, rgb: &mut [u8]) -> Result<()> {
        self.decode_resized_while(field, resize, rgb, || true).map(|_| ())
    }

    /// Like [`decode_resized`](Self::decode_resized), but calls `go_on` before each image. If it returns `false`, the rest
    /// of `rgb` is unchanged, and the result is `false`.
    ///
    /// # Panics
    /// If there is no such field.
    pub fn decode_resized_while(
        &self,
        field: usize,
        resize: &Resize,
        rgb: &mut [u8],
        mut go_on: impl FnMut() -> bool,
    ) -> Result<bool> {
        let (needed, given) = (self.len().saturating_mul(resize.rgb_bytes()), rgb.len());
        if needed != given {
            return Err(Error::BufferSize { item: None, needed, given });
        }
        let mut resampler = Resampler::default();
        for (at, rgb) in rgb.chunks_exact_mut(resize.rgb_bytes()).enumerate() {
            if !go_on() {
                return Ok(false);
            }
            let damaged = |damage| self.dataset.damaged(self.ids()[at], field, damage);
            let Value::Image(image) = self.value(at, field)? else {
                let reason = "the field has no images".to_owned();
                return Err(damaged(BetonDamage::BadJpeg { reason }));
            };
            if image.rgb_bytes() == 0 {
                return Err(damaged(BetonDamage::EmptyImage));
            }
            let pixels = match image.mode {
                ImageMode::Raw => image.bytes,
                ImageMode::Jpeg => {
                    let decoded = at_least(&mut resampler.decoded, image.rgb_bytes())?;
                    image.decode_into(decoded).map_err(damaged)?;
                    &*decoded
                }
            };
            let (rows, columns) = resize.part_of(&image);
            let pixels = Pixels { bytes: pixels, width: usize::from(image.width), rows, columns };
            pixels.resample(resize, &mut resampler.narrowed, rgb)?;
        }
        Ok(true)
    }
}

/// Memory that all images of a batch use, one after the other.
#[derive(Debug, Default)]
struct Resampler {
    /// The pixels of a JPEG.
    decoded: Vec<u8>,
    /// The rows of the image, resampled to the new width.
    narrowed: Vec<u8>,
}

/// Returns `len` bytes of `memory`, after it was made larger if necessary.
fn at_least(memory: &mut Vec<u8>, len: usize) -> Result<&mut [u8]> {
    if memory.len() < len {
        *memory = vec_of(len)?;
    }
    Ok(&mut memory[..len])
}

/// The part of an image that is used.
struct Pixels<'a> {
    /// All pixels of the image.
    bytes: &'a [u8],
    /// The number of pixels in a row of the image.
    width: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}

impl Pixels<'_> {
    /// Resamples the rows into `narrowed`, and the columns of the result into `rgb`.
    fn resample(&self, resize: &Resize, narrowed: &mut Vec<u8>, rgb: &mut [u8]) -> Result<()> {
        let (height, width) = (usize::from(resize.height), usize::from(resize.width));
        let (row_bytes, new_row_bytes) = (self.width * CHANNELS, width * CHANNELS);
        let narrowed = at_least(narrowed, self.rows.len() * new_row_bytes)?;
        let across = Taps::new(self.columns.len(), width);
        let rows = self.rows.clone().zip(narrowed.chunks_exact_mut(new_row_bytes));
        for (row, narrowed) in rows {
            let start = row * row_bytes + self.columns.start * CHANNELS;
            across.narrow(&self.bytes[start..][..self.columns.len() * CHANNELS], narrowed);
        }
        let down = Taps::new(self.rows.len(), height);
        let mut sums = vec![0; new_row_bytes];
        for (taps, rgb) in down.iter().zip(rgb.chunks_exact_mut(new_row_bytes)) {
            taps.blend_rows(narrowed, &mut sums, rgb);
        }
        Ok(())
    }
}

/// For each pixel of a resampled line, the neighbouring pixels of the original line that it is made of.
struct Taps {
    /// For each pixel: its first neighbour, and where its weights end.
    pixels: Vec<(usize, usize)>,
    weights: Vec<i32>,
}

/// The neighbours of one pixel.
struct PixelTaps<'a> {
    first: usize,
    /// The weights of the neighbours. Their sum is one, up to rounding.
    weights: &'a [i32],
}

impl Taps {
    /// Resamples a line of `len` pixels to `new_len`.
    fn new(len: usize, new_len: usize) -> Self {
        let scale = len as f64 / new_len as f64;
        // The filter covers all pixels that a pixel of a smaller image covers, and at least two.
        let reach = scale.max(1.0);
        let per_reach = 1.0 / reach;
        let mut taps = Self { pixels: Vec::with_capacity(new_len), weights: Vec::new() };
        let mut shares = Vec::new();
        for pixel in 0..new_len {
            let centre = (pixel as f64 + 0.5) * scale;
            let first = (centre - reach + 0.5).max(0.0) as usize;
            let end = ((centre + reach + 0.5) as usize).min(len);
            shares.clear();
            shares.extend((first..end).map(|neighbour| {
                let distance = (neighbour as f64 - centre + 0.5) * per_reach;
                (1.0 - distance.abs()).max(0.0)
            }));
            let sum: f64 = shares.iter().sum();
            let one = f64::from(1 << WEIGHT_BITS);
            taps.weights.extend(shares.iter().map(|share| (share / sum * one).round() as i32));
            taps.pixels.push((first, taps.weights.len()));
        }
        taps
    }

    fn iter(&self) -> impl Iterator<Item = PixelTaps<'_>> {
        let mut start = 0;
        self.pixels.iter().map(move |(first, end)| {
            let weights = &self.weights[start..*end];
            start = *end;
            PixelTaps { first: *first, weights }
        })
    }

    /// Resamples a row of pixels.
    fn narrow(&self, row: &[u8], narrowed: &mut [u8]) {
        for (taps, pixel) in self.iter().zip(narrowed.chunks_exact_mut(CHANNELS)) {
            let mut sums = [HALF; CHANNELS];
            let neighbours = row[taps.first * CHANNELS..].chunks_exact(CHANNELS);
            for (weight, neighbour) in taps.weights.iter().zip(neighbours) {
                for (sum, level) in sums.iter_mut().zip(neighbour) {
                    *sum += weight * i32::from(*level);
                }
            }
            levels(&sums, pixel);
        }
    }
}

impl PixelTaps<'_> {
    /// Adds whole rows, each times its weight.
    fn blend_rows(&self, rows: &[u8], sums: &mut [i32], blended: &mut [u8]) {
        sums.fill(HALF);
        let row_bytes = blended.len();
        let neighbours = rows[self.first * row_bytes..].chunks_exact(row_bytes);
        for (weight, neighbour) in self.weights.iter().zip(neighbours) {
            for (sum, level) in sums.iter_mut().zip(neighbour) {
                *sum += weight * i32::from(*level);
            }
        }
        levels(sums, blended);
    }
}

/// Half a level, for rounding.
const HALF: i32 = 1 << (WEIGHT_BITS - 1);

/// Converts weighted sums to levels. Rounded weights may add up to slightly more than one.
fn levels(sums: &[i32], levels: &mut [u8]) {
    for (sum, level) in sums.iter().zip(levels) {
        *level = (sum >> WEIGHT_BITS).clamp(0, 255) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resampled(image: &Image<'_>, resize: &Resize) -> Vec<u8> {
        let (rows, columns) = resize.part_of(image);
        let width = usize::from(image.width);
        let mut rgb = vec![0; resize.rgb_bytes()];
        let pixels = Pixels { bytes: image.bytes, width, rows, columns };
        pixels.resample(resize, &mut Vec::new(), &mut rgb).unwrap();
        rgb
    }

    fn raw(bytes: &[u8], height: u16, width: u16) -> Image<'_> {
        Image { mode: ImageMode::Raw, width, height, bytes }
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
            let resize = Resize::new(height, width).unwrap();
            assert_eq!(resampled(&raw(&bytes, height, width), &resize), bytes);
            let side = height.min(width);
            let square = Resize::new(side, side).unwrap().center_crop(1.0).unwrap();
            let found = resampled(&raw(&bytes, height, width), &square);
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
            let resize = Resize::new(size, size).unwrap().center_crop(0.5).unwrap();
            let found = resampled(&raw(&bytes, height, width), &resize);
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
            let found = resampled(
                &raw(&bytes, height, width),
                &Resize::new(new_height, new_width).unwrap(),
            );
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

    #[test]
    fn impossible_sizes_and_crops_are_refused() {
        for (height, width) in [(0, 5), (5, 0)] {
            assert!(Resize::new(height, width).is_err());
        }
        let resize = Resize::new(1, 1).unwrap();
        for ratio in [0.0, -0.5, 1.01, f64::NAN, f64::INFINITY] {
            assert!(resize.center_crop(ratio).is_err(), "{ratio}");
        }
        // A crop has at least one pixel.
        let found = resampled(&raw(&noise(2, 2), 2, 2), &resize.center_crop(0.01).unwrap());
        assert_eq!(found, noise(2, 2)[..CHANNELS]);
    }
}
