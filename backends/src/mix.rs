//! The mixing function that orders, made-up data and hashes of this workspace share.

/// The output function of SplitMix64: different numbers become different numbers, and each bit of the input changes
/// about half of the output. Orders of epochs depend on it, so it never changes.
#[inline]
#[must_use]
pub const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}
