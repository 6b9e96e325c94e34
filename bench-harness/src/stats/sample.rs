//! What a sample says of the whole.

/// The largest share of a whole that may be off if `off` of `checked` random samples are. A larger
/// one would have shown no more than that many with a probability below `risk` (Clopper and Pearson's
/// upper bound).
pub(crate) fn share_max(checked: u64, off: u64, risk: f64) -> f64 {
    if off >= checked {
        return 1.0;
    }
    let (mut low, mut high) = (off as f64 / checked as f64, 1.0);
    // Enough halvings for every digit that anybody prints.
    for _ in 0..40 {
        let share = f64::midpoint(low, high);
        if at_most(checked, off, share) > risk { low = share } else { high = share }
    }
    high
}

/// The probability that at most `off` of `checked` samples are off where this share of all is.
fn at_most(checked: u64, off: u64, share: f64) -> f64 {
    let mut term = (1.0 - share).powf(checked as f64);
    let mut sum = term;
    for count in 0..off {
        term *= (checked - count) as f64 / (count + 1) as f64 * share / (1.0 - share);
        sum += term;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_the_tables() {
        // The rule of three, and published values of the exact interval.
        for (checked, off, expected) in
            [(128, 0, 0.0231), (300, 0, 0.00994), (20, 1, 0.216), (100, 5, 0.1023), (3, 3, 1.0)]
        {
            let share = share_max(checked, off, 0.05);
            assert!((share - expected).abs() < 0.0005, "{off} of {checked}: {share}");
        }
    }
}
