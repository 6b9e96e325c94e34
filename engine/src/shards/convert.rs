//! From the values of the file to those that are delivered.

use ringmain_backends::MappedRange;

use super::header::VALUE_BYTES;

/// Values that are converted at a time: as much as stays in the first-level cache.
const CHUNK_VALUES: usize = 2048;

const OUT_BYTES: usize = size_of::<f64>();

/// With more bytes than this before the values they are moved to the start first. No device known
/// has blocks of more.
const LEAD_BYTES_MAX: usize = CHUNK_VALUES / 2 * VALUE_BYTES;

/// Converts `count` values, which begin `lead` bytes from the start, to `f64` from the start on. The
/// last come first: what is converted is overwritten by what came after it, never by what is still
/// to come. `lead` is a multiple of 4.
pub(super) fn widen_in_place(bytes: &mut [u8], mut lead: usize, count: usize) {
    if lead > LEAD_BYTES_MAX {
        bytes.copy_within(lead..lead + count * VALUE_BYTES, 0);
        lead = 0;
    }
    let mut left = count;
    while left > CHUNK_VALUES {
        // From here on the results lie behind all values that are left; below `left`, as the lead
        // is no more than half a chunk of values.
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

/// Converts the bytes of a file, any number of them at any address, to `f64`.
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

/// Values that are taken out of a mapping at a time: as many as fit in a few registers.
pub(super) const BLOCK_VALUES: usize = 16;

/// Converts what is mapped, which has as many values as `out`, without a copy of it in between.
/// False if the file has lost pages of it.
pub(super) fn widen_mapped(mapped: &MappedRange, out: &mut [f64]) -> bool {
    const BLOCK_BYTES: usize = BLOCK_VALUES * VALUE_BYTES;
    let (blocks, rest) = out.as_chunks_mut::<BLOCK_VALUES>();
    let is_intact = mapped.copy_blocks::<BLOCK_BYTES>(|at, block| {
        let (stored, _) = block.as_chunks::<VALUE_BYTES>();
        if let Some(out) = blocks.get_mut(at) {
            for (out, stored) in out.iter_mut().zip(stored) {
                *out = f64::from(f32::from_le_bytes(*stored));
            }
        }
    });
    is_intact && rest.is_empty()
}

/// The one loop: the compiler makes vector instructions of it.
fn widen_values(stored: &[f32], out: &mut [f64]) {
    for (out, stored) in out.iter_mut().zip(stored) {
        *out = f64::from(f32::from_bits(u32::from_le(stored.to_bits())));
    }
}

/// Turns the values of a file into the machine's own, where these differ.
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
    fn values_survive_being_widened_where_they_lie() {
        for count in [0, 1, 2, 3, 2047, 2048, 2049, 10_000] {
            for lead in [0, 4, 508, 4092, 4096, 8188, 65_532] {
                check(count, lead);
            }
        }
    }

    #[test]
    fn no_bit_of_a_number_is_lost() {
        let specials = [0.0, -0.0, f32::MIN_POSITIVE / 2.0, f32::INFINITY, f32::NEG_INFINITY];
        let raw: Vec<u8> = specials.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut out = vec![1.0; specials.len()];
        widen(&raw, &mut out);
        for (out, stored) in out.iter().zip(specials) {
            assert_eq!(out.to_bits(), f64::from(stored).to_bits());
        }
    }
}
