//! NumPy's `.npy` with random elements.

use super::{RawBytes, write_data};
use crate::cli::GenNpyArgs;
use crate::failure::Failure;
use crate::system::whole_file::refuse_existing;
use crate::text::size::format_bytes;

/// Data begins at a multiple of this, as NumPy writes it.
const ALIGN: usize = 64;

pub(crate) fn run(args: &GenNpyArgs) -> Result<String, Failure> {
    let header = header(&args.shape);
    let elements = args.shape.iter().try_fold(1u64, |product, axis| product.checked_mul(*axis));
    let data_bytes = elements.and_then(|count| count.checked_mul(4)).ok_or_else(|| {
        Failure::Usage { message: format!("an array of shape {:?} is too large", args.shape) }
    })?;
    refuse_existing(&args.path, "file")?;
    write_data(&args.path, data_bytes.saturating_add(header.len() as u64), "--shape", |file| {
        file.write_all(&header)?;
        let mut random = RawBytes::new(args.seed);
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
    })?;
    let bytes = format_bytes(data_bytes);
    Ok(format!("{}: f32 {:?}, {bytes}, seed {}", args.path.display(), args.shape, args.seed))
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
            run(&GenNpyArgs { path: path.clone(), shape: shape.clone(), seed: 3 }).unwrap();
            let array = Engine::new().unwrap().open_npy(&path).unwrap();
            let axes: Vec<u64> = array.shape().iter().map(|axis| *axis as u64).collect();
            assert_eq!(axes, shape);
            let elements = array.read_vec::<f32>().unwrap();
            assert!(elements.iter().all(|element| (0.0..1.0).contains(element)));
        }
    }
}
