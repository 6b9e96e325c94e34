//! Scales: from numbers to positions, and the round numbers on an axis.

/// From 0 to the largest value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Linear {
    pub(crate) max: f64,
    pub(crate) ticks: Vec<f64>,
}

impl Linear {
    /// Returns ticks at 1, 2 or 5 times a power of ten.
    pub(crate) fn decimal(max: f64, ticks_wanted: u32) -> Self {
        Self::with_step(max, ticks_wanted, |rough| {
            let power = 10_f64.powf(rough.log10().floor());
            let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
            steps.into_iter().find(|step| *step >= rough * 0.999).unwrap_or(rough)
        })
    }

    /// Returns ticks at powers of two, for memory.
    pub(crate) fn binary(max: f64, ticks_wanted: u32) -> Self {
        Self::with_step(max, ticks_wanted, |rough| 2_f64.powf((rough * 0.999).log2().ceil()))
    }

    fn with_step(max: f64, ticks_wanted: u32, round: impl Fn(f64) -> f64) -> Self {
        let max = if max.is_finite() && max > 0.0 { max } else { 1.0 };
        let step = round(max / f64::from(ticks_wanted.max(1)));
        let count = if step > 0.0 { (max / step + 1e-9).floor().min(50.0) as u32 } else { 0 };
        Self { max, ticks: (0..=count).map(|tick| f64::from(tick) * step).collect() }
    }

    /// Returns the position from 0 to 1; values outside are put on the edge.
    pub(crate) fn share(&self, value: f64) -> f64 {
        if value.is_nan() { 0.0 } else { (value / self.max).clamp(0.0, 1.0) }
    }
}

/// A scale on which equal ratios are equal distances.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Log {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Log {
    /// Returns a scale that is not empty and does not start at 0.
    pub(crate) fn covering(low: f64, high: f64) -> Self {
        // A result may have any number. With an infinite end there would be no last tick.
        let low = if low.is_finite() && low > 0.0 { low.min(f64::MAX / 4.0) } else { 1.0 };
        let high = if high.is_finite() { high } else { low };
        Self { low, high: high.max(low * 2.0) }
    }

    /// Returns the position from 0 to 1; values outside are put on the edge.
    pub(crate) fn share(&self, value: f64) -> f64 {
        let value = value.max(self.low).min(self.high);
        ((value / self.low).ln() / (self.high / self.low).ln()).clamp(0.0, 1.0)
    }

    /// Returns ticks at powers of ten, and at 2 and 5 times them if there are few.
    pub(crate) fn ticks(&self) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let multiples: &[f64] = if decades <= 2.2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let all = (first..=last).flat_map(|p| multiples.iter().map(move |m| m * 10_f64.powi(p)));
        let inside = |tick: &f64| *tick >= self.low * 0.999 && *tick <= self.high * 1.001;
        all.filter(inside).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(Linear::decimal(8.3, 4).ticks, [0.0, 5.0]);
        assert_eq!(Linear::decimal(4.0, 4).ticks, [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(Linear::decimal(0.9, 3).ticks, [0.0, 0.5]);
        assert_eq!(Linear::binary(100.0, 3).ticks, [0.0, 64.0]);
        assert_eq!(Linear::binary(512.0, 2).ticks, [0.0, 256.0, 512.0]);
        for exponent in -9..15 {
            for digit in 1..100 {
                let max = f64::from(digit) * 10_f64.powi(exponent);
                for scale in [Linear::decimal(max, 4), Linear::binary(max, 4)] {
                    assert!((2..=5).contains(&scale.ticks.len()), "{scale:?}");
                    assert!(scale.ticks.iter().all(|tick| *tick <= max * 1.000_001), "{scale:?}");
                }
            }
        }
    }

    #[test]
    fn odd_values_have_a_place_too() {
        for max in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let scale = Linear::decimal(max, 4);
            for value in [-1.0, 0.0, 0.5, 1e300, f64::NAN, f64::INFINITY] {
                assert!((0.0..=1.0).contains(&scale.share(value)), "{max} {value}");
            }
        }
        for (low, high) in
            [(0.0, 0.0), (5.0, 5.0), (9.0, 1.0), (f64::NAN, f64::NAN), (1.6e308, f64::INFINITY)]
        {
            let scale = Log::covering(low, high);
            assert!(scale.high.is_finite(), "{scale:?}");
            for value in [-1.0, 0.0, 7.0, 1e300, f64::NAN] {
                assert!((0.0..=1.0).contains(&scale.share(value)), "{low} {high} {value}");
            }
        }
    }

    #[test]
    fn ratios_are_distances() {
        let scale = Log::covering(100.0, 1_000_000.0);
        assert!((scale.share(10_000.0) - 0.5).abs() < 1e-12);
        assert_eq!(scale.ticks().len(), 5);
        assert_eq!(Log::covering(100.0, 1000.0).ticks().len(), 4);
        assert_eq!(Log::covering(3.0, 7.0).ticks(), [5.0]);
    }
}
