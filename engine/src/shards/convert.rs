//! Converts the values of a file to the values to deliver.
//!
//! Measurements decided where the conversion runs. Batches of device backends are converted on the
//! consumer's thread, while the reader's thread makes the next read: 1.5 times as fast as on the
//! reader's thread. Batches from the page cache are converted on the reader's thread, a little at a
//! time while the data is in the processor's cache, and on `mmap` straight out of the mapping
//! (`MappedRange::copy_blocks`). With `Residency::Release`, the pages of that mapping leave the
//! process once the batch is converted.

use ringmain_backends::MappedRange;

use super::header::VALUE_BYTES;

/// This many values are converted at a time: they fit in the first-level cache.
const CHUNK_VALUES: usize = 2048;

const OUT_BYTES: usize = size_of::<f64>();

/// If more bytes than this come before the values, the values are first moved to the start. No
/// known device has larger blocks.
const LEAD_BYTES_MAX: usize = CHUNK_VALUES / 2 * VALUE_BYTES;

/// Converts `count` values, which begin `lead` bytes after the start, to `f64` values at the start.
/// It converts from the end, so that a result only overwrites values that are already converted.
/// `lead` must be a multiple of 4.
pub(super) fn widen_in_place(bytes: &mut [u8], mut lead: usize, count: usize) {
    if lead > LEAD_BYTES_MAX {
        bytes.copy_within(lead..lead + count * VALUE_BYTES, 0);
        lead = 0;
    }
    let mut left = count;
    while left > CHUNK_VALUES {
        // From here on the results lie after all remaining values. This is below `left`, as the
        // lead is at most half a chunk of values.
        let first = (lead / VALUE_BYTES + left).div_ceil(2);
        let (raw, out) = bytes.split_at_mut(first * OUT_BYTES);
        let raw = &raw[lead + first * VALUE_BYTES..lead + left * VALUE_BYTES];
        let out = &mut out[..(left - first) * OUT_BYTES];
        widen_values(bytemuck::cast_slice(raw), bytemuck::cast_slice_mut(out));
        left = first;
    }
    let mut stage = [0f32; CHUNK_VALUES];
    let stage = &mut stage[..left];
    let raw = &bytes[lead..][..left * VALUE_BYTES];
    bytemuck::cast_slice_mut(stage).copy_from_slice(raw);
    widen_values(stage, bytemuck::cast_slice_mut(&mut bytes[..left * OUT_BYTES]));
}

/// Converts the bytes of a file, of any number and alignment, to `f64`.
pub(super) fn widen(raw: &[u8], out: &mut [f64]) {
    let mut stage = [0f32; CHUNK_VALUES];
    for (raw, out) in raw.chunks(CHUNK_VALUES * VALUE_BYTES).zip(out.chunks_mut(CHUNK_VALUES)) {
        match bytemuck::try_cast_slice(raw) {
            Ok(values) => widen_values(values, out),
            Err(_) => {
                let stage = &mut stage[..out.len()];
                bytemuck::cast_slice_mut(stage).copy_from_slice(raw);
                widen_values(stage, out);
            }
        }
    }
}

/// This many values are copied out of a mapping at a time: they fit in a few registers.
pub(super) const BLOCK_VALUES: usize = 16;

/// Converts mapped values, as many as `out` has, without a copy in between. Returns `false` if the
/// file lost pages of them.
pub(super) fn widen_mapped(mapped: &MappedRange, out: &mut [f64]) -> bool {
    const BLOCK_BYTES: usize = BLOCK_VALUES * VALUE_BYTES;
    let is_whole = out.len() % BLOCK_VALUES == 0;
    let mut blocks = out.chunks_exact_mut(BLOCK_VALUES);
    let is_intact = mapped.copy_blocks::<BLOCK_BYTES>(|_, block| {
        // Both lengths are known to the compiler, which then uses vector instructions.
        let stored: &[[u8; VALUE_BYTES]; BLOCK_VALUES] = bytemuck::cast_ref(block);
        if let Some(out) = blocks.next().and_then(<[f64]>::first_chunk_mut::<BLOCK_VALUES>) {
            for (out, stored) in out.iter_mut().zip(stored) {
                *out = f64::from(f32::from_le_bytes(*stored));
            }
        }
    });
    is_intact && is_whole
}

/// All conversions use this loop, which the compiler vectorises.
fn widen_values(stored: &[f32], out: &mut [f64]) {
    for (out, stored) in out.iter_mut().zip(stored) {
        *out = f64::from(f32::from_bits(u32::from_le(stored.to_bits())));
    }
}

/// Converts the values of a file to the byte order of the machine.
pub(super) fn to_native(bytes: &mut [u8]) {
    if cfg!(target_endian = "big") {
        for value in bytes.chunks_exact_mut(VALUE_BYTES) {
            value.reverse();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(count: usize, lead: usize) {
        let value = |at: usize| (at as f32).sin() * 1e30;
        let mut bytes = vec![0u64; (lead + count * VALUE_BYTES).max(count * 8).div_ceil(8)];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut bytes);
        for at in 0..count {
            bytes[lead + at * 4..][..4].copy_from_slice(&value(at).to_le_bytes());
        }
        let raw = bytes[lead..][..count * 4].to_vec();
        widen_in_place(bytes, lead, count);
        let out: &[f64] = bytemuck::cast_slice(&bytes[..count * 8]);
        assert!((0..count).all(|at| out[at].to_bits() == f64::from(value(at)).to_bits()));

        let mut shifted = vec![0; raw.len() + 1];
        shifted[1..].copy_from_slice(&raw);
        let mut apart = vec![0.0; count];
        widen(&shifted[1..], &mut apart);
        assert_eq!(apart, out);
    }

    #[test]
    fn widening_in_place_keeps_the_values() {
        // Miri takes a minute for ten thousand values.
        let counts: &[usize] = match cfg!(miri) {
            true => &[0, 1, 3, 65],
            false => &[0, 1, 2, 3, 2047, 2048, 2049, 10_000],
        };
        for &count in counts {
            for lead in [0, 4, 508, 4092, 4096, 8188, 65_532] {
                check(count, lead);
            }
        }
    }

    #[test]
    fn widening_is_exact() {
        let specials = [0.0, -0.0, f32::MIN_POSITIVE / 2.0, f32::INFINITY, f32::NEG_INFINITY];
        let raw: Vec<u8> = specials.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut out = vec![1.0; specials.len()];
        widen(&raw, &mut out);
        for (out, stored) in out.iter().zip(specials) {
            assert_eq!(out.to_bits(), f64::from(stored).to_bits());
        }
    }
}
