//! NumPy's `.npy` with random elements.

use std::path::Path;

use super::{RawBytes, write_data};
use crate::failure::Failure;

/// Data begins at a multiple of this, as NumPy writes it.
const ALIGN: usize = 64;

/// Returns the bytes of the elements of an array of f32.
pub(crate) fn npy_bytes(shape: &[u64]) -> Result<u64, Failure> {
    let elements = shape.iter().try_fold(1u64, |product, axis| product.checked_mul(*axis));
    elements.and_then(|count| count.checked_mul(4)).ok_or_else(|| Failure::Usage {
        message: format!("an array of shape {shape:?} is too large"),
    })
}

/// Writes an array of f32, each from 0 to 1, that depend on the seed only.
pub(crate) fn write_npy(path: &Path, shape: &[u64], seed: u64) -> Result<(), Failure> {
    let (header, data_bytes) = (header(shape), npy_bytes(shape)?);
    write_data(path, data_bytes.saturating_add(header.len() as u64), "--shape", |file| {
        file.write_all(&header)?;
        let mut random = RawBytes::new(seed);
        let mut elements = vec![0u8; 1 << 20];
        let mut left = data_bytes;
        while left > 0 {
            let len = elements.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            random.fill(&mut elements[..len]);
            elements[..len].chunks_exact_mut(4).for_each(to_unit_float);
            file.write_all(&elements[..len])?;
            left -= len as u64;
        }
        Ok(())
    })
}

/// Turns random bits into a number from 0 to 1, so that there is no NaN, which is not equal to itself.
fn to_unit_float(bits: &mut [u8]) {
    let mut word = [0; 4];
    word.copy_from_slice(bits);
    let unit = (u32::from_le_bytes(word) >> 8) as f32 / (1 << 24) as f32;
    bits.copy_from_slice(&unit.to_le_bytes());
}

/// Returns a header of version 1.0: magic, version, length, and a dict that ends with a newline.
fn header(shape: &[u64]) -> Vec<u8> {
    let axes: String = shape.iter().map(|axis| format!("{axis}, ")).collect();
    let axes = if shape.len() == 1 { axes.trim_end() } else { axes.trim_end_matches(", ") };
    let dict = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({axes}), }}");
    let prefix = 10;
    let total = (prefix + dict.len() + 1).next_multiple_of(ALIGN);
    let text = format!("{dict:width$}\n", width = total - prefix - 1);
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    // The dict of a shape that fits a command line is far below 64 KiB.
    header.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes());
    header.extend(text.as_bytes());
    header
}

#[cfg(test)]
mod tests {
    use ringmain::Engine;

    use super::*;

    #[test]
    fn the_engine_reads_it_back() {
        let dir = tempfile::tempdir().unwrap();
        for shape in [vec![7], vec![3, 5], vec![2, 3, 4]] {
            let path = dir.path().join(format!("{}.npy", shape.len()));
            write_npy(&path, &shape, 3).unwrap();
            let array = Engine::new().unwrap().open_npy(&path).unwrap();
            let axes: Vec<u64> = array.shape().iter().map(|axis| *axis as u64).collect();
            assert_eq!(axes, shape);
            let elements = array.read_vec::<f32>().unwrap();
            assert!(elements.iter().all(|element| (0.0..1.0).contains(element)));
        }
    }
}
