//! Which part of an image is used.

use ringmain_backends::mix;

use crate::{Error, Result};

/// The step between the states of a stream of random numbers: 2^64 divided by the golden ratio, as in SplitMix64.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The number of random parts that are tried until one lies inside the image.
const TRIES: usize = 10;

/// Which part of each image is used. The part is then resampled to the common size.
///
/// ```
/// use ringmain::beton::Crop;
///
/// // For training: another part in each epoch, of 8 to 100 % of the image, in proportions from 3 : 4 to 4 : 3.
/// let random = Crop::random((0.08, 1.0), (3.0 / 4.0, 4.0 / 3.0), 17)?;
/// // For validation: the square at the centre whose side is 224/256 of the shorter side.
/// let centre = Crop::center(224.0 / 256.0)?;
/// # let _ = (random, centre);
/// # Ok::<(), ringmain::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Crop(Kind);

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Kind {
    #[default]
    Whole,
    Center {
        ratio: f64,
    },
    Random {
        scale: (f64, f64),
        ratio: (f64, f64),
        seed: u64,
    },
}

/// The part of an image that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) top: usize,
    pub(super) left: usize,
    pub(super) height: usize,
    pub(super) width: usize,
}

impl Crop {
    /// Uses whole images, which changes their proportions if those of the new size differ.
    #[must_use]
    pub fn whole() -> Self {
        Self(Kind::Whole)
    }

    /// Uses the square at the centre of each image whose side is `ratio` times the image's shorter side, as FFCV's
    /// `CenterCropRGBImageDecoder`.
    pub fn center(ratio: f64) -> Result<Self> {
        if ratio > 0.0 && ratio <= 1.0 {
            return Ok(Self(Kind::Center { ratio }));
        }
        let reason = "it is a part of the shorter side: above 0, and at most 1";
        Err(Error::invalid_option("center_crop", ratio, reason))
    }

    /// Uses a random part of each image, as FFCV's `RandomResizedCropRGBImageDecoder` and torchvision's
    /// `RandomResizedCrop`.
    ///
    /// `scale` is the smallest and the largest area as a fraction of the image, and `ratio` the smallest and the largest
    /// width divided by the height. If ten random parts do not lie inside the image, the part is the largest one at
    /// the centre with a ratio in the range. Each image gets its own random numbers, from `seed`, the number of the
    /// epoch and the id of the sample, so the number of threads and workers does not matter.
    pub fn random(scale: (f64, f64), ratio: (f64, f64), seed: u64) -> Result<Self> {
        if !(scale.0 > 0.0 && scale.0 <= scale.1 && scale.1 <= 1.0) {
            let reason =
                "it is the smallest and the largest part of the area: above 0, and at most 1";
            return Err(Error::invalid_option("random_crop", format!("{scale:?}"), reason));
        }
        if !(ratio.0 > 0.0 && ratio.0 <= ratio.1 && ratio.1.is_finite()) {
            let reason = "it is the smallest and the largest width divided by the height, above 0";
            return Err(Error::invalid_option("crop_ratio", format!("{ratio:?}"), reason));
        }
        Ok(Self(Kind::Random { scale, ratio, seed }))
    }

    /// Returns the part of an image that is used. The image has at least one pixel.
    pub(super) fn part(&self, height: usize, width: usize, epoch: u64, sample: u64) -> Part {
        match self.0 {
            Kind::Whole => Part { top: 0, left: 0, height, width },
            Kind::Center { ratio } => {
                let side = ((ratio * height.min(width) as f64) as usize).max(1);
                centered(side, side, height, width)
            }
            Kind::Random { scale, ratio, seed } => {
                let mut random = Stream::new(seed, epoch, sample);
                let area = (height * width) as f64;
                let logs = (ratio.0.ln(), ratio.1.ln());
                for _ in 0..TRIES {
                    let target = area * random.between(scale.0, scale.1);
                    let aspect = random.between(logs.0, logs.1).exp();
                    let across = (target * aspect).sqrt().round_ties_even() as usize;
                    let down = (target / aspect).sqrt().round_ties_even() as usize;
                    if (1..=width).contains(&across) && (1..=height).contains(&down) {
                        let top = random.below(height - down + 1);
                        let left = random.below(width - across + 1);
                        return Part { top, left, height: down, width: across };
                    }
                }
                widest(height, width, ratio)
            }
        }
    }
}

/// Returns the largest part at the centre whose ratio is in the range.
fn widest(height: usize, width: usize, ratio: (f64, f64)) -> Part {
    let found = width as f64 / height as f64;
    if found < ratio.0 {
        let down = (width as f64 / ratio.0).round_ties_even() as usize;
        return centered(down.clamp(1, height), width, height, width);
    }
    if found > ratio.1 {
        let across = (height as f64 * ratio.1).round_ties_even() as usize;
        return centered(height, across.clamp(1, width), height, width);
    }
    Part { top: 0, left: 0, height, width }
}

fn centered(down: usize, across: usize, height: usize, width: usize) -> Part {
    Part { top: (height - down) / 2, left: (width - across) / 2, height: down, width: across }
}

/// The random numbers of one image in one epoch.
struct Stream(u64);

impl Stream {
    fn new(seed: u64, epoch: u64, sample: u64) -> Self {
        let keys = [seed, epoch, sample];
        Self(keys.into_iter().fold(0, |state, key| mix(state.wrapping_add(STEP) ^ mix(key))))
    }

    /// Returns a number from 0 up to, but not including, 1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(STEP);
        (mix(self.0) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    fn below(&mut self, count: usize) -> usize {
        ((self.unit() * count as f64) as usize).min(count - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATIO: (f64, f64) = (3.0 / 4.0, 4.0 / 3.0);

    #[test]
    fn random_parts_lie_inside_and_have_the_area_and_the_ratio() {
        let crop = Crop::random((0.08, 1.0), RATIO, 1).unwrap();
        let (mut smallest, mut largest) = (f64::MAX, 0f64);
        for sample in 0..2000 {
            let part = crop.part(375, 500, 0, sample);
            assert!(part.top + part.height <= 375 && part.left + part.width <= 500, "{part:?}");
            let area = (part.height * part.width) as f64 / (375.0 * 500.0);
            let ratio = part.width as f64 / part.height as f64;
            assert!((0.07..=1.0).contains(&area) && (0.74..=1.35).contains(&ratio), "{part:?}");
            (smallest, largest) = (smallest.min(area), largest.max(area));
        }
        assert!(smallest < 0.1 && largest > 0.9, "{smallest} {largest}");
    }

    #[test]
    fn parts_depend_on_seed_epoch_and_sample_alone() {
        let part = |seed, epoch, sample| {
            Crop::random((0.08, 1.0), RATIO, seed).unwrap().part(375, 500, epoch, sample)
        };
        assert_eq!(part(1, 2, 3), part(1, 2, 3));
        let mut all = std::collections::HashSet::new();
        for (seed, epoch, sample) in
            [(1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4), (3, 2, 1), (2, 1, 3)]
        {
            let part = part(seed, epoch, sample);
            assert!(all.insert((part.top, part.left, part.height, part.width)), "{part:?}");
        }
    }

    /// A strip of one row has no part of these proportions but a single pixel or two.
    #[test]
    fn no_part_is_larger_than_its_image() {
        for (height, width) in [(1, 1), (1, 1000), (1000, 1), (3, 2), (65535, 1)] {
            for scale in [(0.01, 0.01), (0.08, 1.0), (1.0, 1.0)] {
                let crop = Crop::random(scale, RATIO, 5).unwrap();
                for sample in 0..50 {
                    let part = crop.part(height, width, 0, sample);
                    assert!(part.height >= 1 && part.top + part.height <= height, "{part:?}");
                    assert!(part.width >= 1 && part.left + part.width <= width, "{part:?}");
                }
            }
            let part = Crop::center(0.001).unwrap().part(height, width, 0, 0);
            assert_eq!((part.height, part.width), (1, 1));
        }
        // The largest parts at the centre with these proportions.
        let crop = Crop::random((1.0, 1.0), (2.0, 2.0), 0).unwrap();
        let part = crop.part(100, 100, 0, 0);
        assert_eq!(part, Part { top: 25, left: 0, height: 50, width: 100 });
        let part = crop.part(100, 300, 0, 0);
        assert_eq!(part, Part { top: 0, left: 50, height: 100, width: 200 });
    }

    #[test]
    fn impossible_crops_are_refused() {
        for ratio in [0.0, -0.5, 1.01, f64::NAN, f64::INFINITY] {
            assert!(Crop::center(ratio).is_err(), "{ratio}");
        }
        for scale in [(0.0, 1.0), (0.5, 0.4), (0.5, 1.1), (f64::NAN, 1.0), (0.1, f64::NAN)] {
            assert!(Crop::random(scale, RATIO, 0).is_err(), "{scale:?}");
        }
        for ratio in [(0.0, 1.0), (2.0, 1.0), (1.0, f64::INFINITY), (f64::NAN, 1.0)] {
            assert!(Crop::random((0.1, 1.0), ratio, 0).is_err(), "{ratio:?}");
        }
    }
}
