//! The numbers that images are delivered as.

use std::fmt;
use std::sync::Arc;

use half::f16;

use super::CHANNELS;
use crate::{Error, Result};

/// The type of the numbers of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PixelType {
    /// Levels from 0 to 255.
    #[default]
    U8,
    /// Floats of 16 bits.
    F16,
    /// Floats of 32 bits.
    F32,
}

impl PixelType {
    /// Returns the size of a number in bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::F16 => 2,
            Self::F32 => 4,
        }
    }
}

/// The order of the numbers of a batch of images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PixelLayout {
    /// Batch, height, width, colour.
    #[default]
    Nhwc,
    /// Batch, colour, height, width.
    Nchw,
}

/// The number that each level of each colour becomes.
type Table<const N: usize> = Arc<[[[u8; N]; 256]; CHANNELS]>;

/// The type and the order of the numbers, and the numbers themselves.
#[derive(Clone, PartialEq)]
pub(super) struct Pixels {
    pub(super) layout: PixelLayout,
    table: Tables,
}

#[derive(Clone, PartialEq)]
enum Tables {
    U8,
    F16(Table<2>),
    F32(Table<4>),
}

impl Pixels {
    pub(super) fn new(dtype: PixelType, layout: PixelLayout) -> Self {
        Self { layout, table: Tables::new(dtype, [0.0; CHANNELS], [1.0; CHANNELS]) }
    }

    pub(super) fn normalized(self, mean: [f32; 3], std: [f32; 3]) -> Result<Self> {
        if self.dtype() == PixelType::U8 {
            let reason = "levels of 8 bits cannot be normalised; choose f16 or f32 as their type";
            return Err(Error::invalid_option("mean", format!("{mean:?}"), reason));
        }
        if !mean.iter().all(|mean| mean.is_finite()) {
            let reason = "it is a level from 0 to 255 for each colour";
            return Err(Error::invalid_option("mean", format!("{mean:?}"), reason));
        }
        // A deviation below one level is that of levels from 0 to 1, as torchvision has them.
        if !std.iter().all(|std| *std >= 1.0 && std.is_finite()) {
            let reason = "it counts levels from 0 to 255 and is at least 1; multiply the values of torchvision by 255";
            return Err(Error::invalid_option("std", format!("{std:?}"), reason));
        }
        Ok(Self { table: Tables::new(self.dtype(), mean, std), ..self })
    }

    pub(super) fn dtype(&self) -> PixelType {
        match self.table {
            Tables::U8 => PixelType::U8,
            Tables::F16(_) => PixelType::F16,
            Tables::F32(_) => PixelType::F32,
        }
    }

    /// Returns `true` if the numbers are the levels in the order of the decoder.
    pub(super) fn is_rgb(&self) -> bool {
        self.table == Tables::U8 && self.layout == PixelLayout::Nhwc
    }

    /// Converts the pixels of an image. `delivered` must have its size.
    pub(super) fn convert(&self, rgb: &[u8], delivered: &mut [u8]) {
        match (&self.table, self.layout) {
            (Tables::U8, PixelLayout::Nhwc) => delivered.copy_from_slice(rgb),
            (Tables::U8, PixelLayout::Nchw) => {
                let planes = delivered.chunks_exact_mut((rgb.len() / CHANNELS).max(1));
                for (colour, plane) in planes.enumerate() {
                    for (pixel, level) in rgb.chunks_exact(CHANNELS).zip(plane) {
                        *level = pixel[colour];
                    }
                }
            }
            (Tables::F16(table), layout) => convert(rgb, table, layout, delivered),
            (Tables::F32(table), layout) => convert(rgb, table, layout, delivered),
        }
    }
}

fn convert<const N: usize>(
    rgb: &[u8],
    table: &[[[u8; N]; 256]; CHANNELS],
    layout: PixelLayout,
    delivered: &mut [u8],
) {
    match layout {
        PixelLayout::Nhwc => {
            let pixels = rgb.chunks_exact(CHANNELS).zip(delivered.chunks_exact_mut(CHANNELS * N));
            for (pixel, numbers) in pixels {
                for ((table, level), number) in
                    table.iter().zip(pixel).zip(numbers.chunks_exact_mut(N))
                {
                    number.copy_from_slice(&table[usize::from(*level)]);
                }
            }
        }
        PixelLayout::Nchw => {
            let planes = delivered.chunks_exact_mut((rgb.len() / CHANNELS * N).max(1));
            for ((colour, plane), table) in planes.enumerate().zip(table) {
                for (pixel, number) in rgb.chunks_exact(CHANNELS).zip(plane.chunks_exact_mut(N)) {
                    number.copy_from_slice(&table[usize::from(pixel[colour])]);
                }
            }
        }
    }
}

impl Tables {
    fn new(dtype: PixelType, mean: [f32; CHANNELS], std: [f32; CHANNELS]) -> Self {
        let number = |colour: usize, level: usize| (level as f32 - mean[colour]) / std[colour];
        match dtype {
            PixelType::U8 => Self::U8,
            PixelType::F16 => Self::F16(Arc::new(std::array::from_fn(|colour| {
                std::array::from_fn(|level| f16::from_f32(number(colour, level)).to_ne_bytes())
            }))),
            PixelType::F32 => Self::F32(Arc::new(std::array::from_fn(|colour| {
                std::array::from_fn(|level| number(colour, level).to_ne_bytes())
            }))),
        }
    }
}

impl Default for Pixels {
    fn default() -> Self {
        Self::new(PixelType::U8, PixelLayout::Nhwc)
    }
}

impl fmt::Debug for Pixels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.dtype(), self.layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RGB: [u8; 6] = [0, 10, 255, 1, 20, 128];

    fn floats(pixels: &Pixels) -> Vec<f32> {
        let bytes = pixels.dtype().bytes();
        let mut delivered = vec![0; RGB.len() * bytes];
        pixels.convert(&RGB, &mut delivered);
        let numbers = delivered.chunks_exact(bytes);
        numbers
            .map(|number| match *number {
                [level] => f32::from(level),
                [a, b] => f16::from_ne_bytes([a, b]).to_f32(),
                [a, b, c, d] => f32::from_ne_bytes([a, b, c, d]),
                _ => unreachable!(),
            })
            .collect()
    }

    #[test]
    fn numbers_have_the_type_and_the_order() {
        for dtype in [PixelType::U8, PixelType::F16, PixelType::F32] {
            let rows = floats(&Pixels::new(dtype, PixelLayout::Nhwc));
            assert_eq!(rows, [0.0, 10.0, 255.0, 1.0, 20.0, 128.0], "{dtype:?}");
            let planes = floats(&Pixels::new(dtype, PixelLayout::Nchw));
            assert_eq!(planes, [0.0, 1.0, 10.0, 20.0, 255.0, 128.0], "{dtype:?}");
        }
    }

    #[test]
    fn levels_are_normalised_by_colour() {
        let (mean, std) = ([1.0, 10.0, 127.0], [1.0, 2.0, 64.0]);
        for dtype in [PixelType::F16, PixelType::F32] {
            let pixels = Pixels::new(dtype, PixelLayout::Nhwc).normalized(mean, std).unwrap();
            assert_eq!(floats(&pixels), [-1.0, 0.0, 2.0, 0.0, 5.0, 1.0 / 64.0], "{dtype:?}");
        }
    }

    #[test]
    fn impossible_numbers_are_refused() {
        let floats = || Pixels::new(PixelType::F32, PixelLayout::Nchw);
        assert!(Pixels::default().normalized([0.0; 3], [1.0; 3]).is_err());
        assert!(floats().normalized([0.0, f32::NAN, 0.0], [1.0; 3]).is_err());
        for std in [0.0, -1.0, 0.229, f32::NAN, f32::INFINITY] {
            assert!(floats().normalized([0.0; 3], [1.0, std, 1.0]).is_err(), "{std}");
        }
    }
}
