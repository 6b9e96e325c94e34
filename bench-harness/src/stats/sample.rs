//! Estimates of a share from a sample.

/// Returns the largest share of a whole that may be off if `off` of `checked` random samples are: the
/// upper bound of Clopper and Pearson with the probability of error `risk`.
pub(crate) fn share_max(checked: u64, off: u64, risk: f64) -> f64 {
    if off >= checked {
        return 1.0;
    }
    let (mut low, mut high) = (off as f64 / checked as f64, 1.0);
    // Enough halvings for all printed digits.
    for _ in 0..40 {
        let share = f64::midpoint(low, high);
        if at_most(checked, off, share) > risk { low = share } else { high = share }
    }
    high
}

/// Returns the probability that at most `off` of `checked` samples are off if this share of all is.
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
